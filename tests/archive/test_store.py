"""What the archive keeps, on each kind of database."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from sqlalchemy import text
from sqlalchemy.engine import make_url

from perdure.archive import Archive, Checkpoint, Forgotten
from perdure.archive.tables import engine_for, parsed
from perdure.archive.writing import REMEMBERED
from perdure.errors import ArchiveUnavailable, ConfigurationError
from tests.support.entries import fresh_key, moment, numbers, said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure import TranscriptEntry


def rows_of(url: str, query: str) -> list[Any]:
    """Return what a query finds in the database itself."""
    engine = engine_for(parsed(url))
    with engine.connect() as connection:
        rows = list(connection.execute(text(query)))
    engine.dispose()
    return rows


ONCE = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
"""The archive is shared by the examples of a test; each has a session of its own."""


async def test_what_was_appended_is_read_as_it_was_in_order(archive: Archive) -> None:
    session = fresh_key().workflow_id
    entries = [said(seq) for seq in range(1, 6)]
    await archive.append(session, entries[2:])
    await archive.append(session, entries[:3])
    assert list(await archive.entries(session)) == entries
    assert await archive.last_seq(session) == 5


async def test_an_entry_that_is_there_stays_as_it_is(archive: Archive) -> None:
    session = fresh_key().workflow_id
    await archive.append(session, [said(1, "first")])
    await archive.append(session, [said(1, "second"), said(2, "second")])
    assert list(await archive.entries(session)) == [said(1, "first"), said(2, "second")]


@ONCE
@given(batches=st.lists(st.sets(st.integers(1, 30), min_size=1), max_size=6))
def test_whatever_is_appended_in_whatever_order_at_once_is_there_once(url: str, batches: list[set[int]]) -> None:
    """As a set by number: two workers, batches that overlap, the order of chance."""
    session = fresh_key().workflow_id

    async def run() -> Sequence[TranscriptEntry]:
        one, other = Archive.at(url), Archive.at(url)
        try:
            await asyncio.gather(
                *(
                    (one, other)[index % 2].append(
                        session, [said(seq) for seq in sorted(batch, reverse=index % 3 == 0)]
                    )
                    for index, batch in enumerate(batches)
                )
            )
            return await one.entries(session)
        finally:
            await one.aclose()
            await other.aclose()

    expected = {seq for batch in batches for seq in batch}
    assert list(asyncio.run(run())) == [said(seq) for seq in sorted(expected)]


async def test_entries_of_one_session_are_not_those_of_another(archive: Archive) -> None:
    mine, theirs = fresh_key().workflow_id, fresh_key().workflow_id
    await archive.append(mine, [said(1, "mine")])
    await archive.append(theirs, [said(1, "theirs")])
    assert list(await archive.entries(mine)) == [said(1, "mine")]


async def test_a_page_ends_by_bytes_and_by_number_and_has_always_something(archive: Archive) -> None:
    session = fresh_key().workflow_id
    await archive.append(session, [said(seq, "x" * 1000) for seq in range(1, 301)])
    by_bytes = await archive.entries(session, after=10, max_bytes=5_500)
    assert numbers(by_bytes) == [11, 12, 13, 14]
    assert sum(len(entry.model_dump_json()) for entry in by_bytes) <= 5_500
    assert numbers(await archive.entries(session, after=10, max_bytes=1)) == [11]
    assert numbers(await archive.entries(session, after=297, limit=2)) == [298, 299]
    assert await archive.entries(session, after=300) == ()


async def test_entries_of_one_turn_are_found(archive: Archive) -> None:
    session = fresh_key().workflow_id
    turns = ["t-1", "t\0", None, "t\ufffd", "t-1"]
    await archive.append(session, [said(seq, turn_id=turn) for seq, turn in enumerate(turns, 1)])
    assert numbers(await archive.entries(session, turn_id="t-1")) == [1, 5]
    assert numbers(await archive.entries(session, turn_id="t\0")) == [2]
    assert numbers(await archive.entries(session, turn_id="t\ufffd")) == [4]
    assert await archive.entries(session, turn_id="t-2") == ()


@ONCE
@given(
    spoken=st.text(st.characters(exclude_categories=["Cs"]), max_size=50),
    turn_id=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10),
)
def test_text_of_any_kind_comes_back(url: str, spoken: str, turn_id: str) -> None:
    session = fresh_key().workflow_id
    entry = said(1, spoken, turn_id)

    async def run() -> None:
        archive = Archive.at(url)
        try:
            await archive.append(session, [entry])
            assert await archive.entries(session, turn_id=turn_id) == (entry,)
            await archive.keep_checkpoint(session, 1, moment(1), entry.model_dump_json())
            assert await archive.checkpoint(session) == Checkpoint(1, moment(1), entry.model_dump_json())
        finally:
            await archive.aclose()

    asyncio.run(run())


async def test_a_large_batch_and_megabytes_in_one_entry_are_kept(archive: Archive) -> None:
    session = fresh_key().workflow_id
    entries = [said(seq) for seq in range(1, 9_001)]
    entries.append(said(9_001, "\N{SNOWMAN}" * 3_000_000))
    await archive.append(session, entries)
    assert await archive.last_seq(session) == 9_001
    assert await archive.entries(session, after=9_000) == (entries[-1],)


async def test_a_batch_is_kept_whole_or_not_at_all(archive: Archive) -> None:
    session = fresh_key().workflow_id
    too_large = said(2).model_copy(update={"seq": 2**70})
    with pytest.raises((ArchiveUnavailable, OverflowError)):
        await archive.append(session, [said(1), too_large])
    assert await archive.entries(session) == ()
    assert await archive.sessions(user_id="alice") == ()


# ---- checkpoints ------------------------------------------------------------------------------------------------


@ONCE
@given(order=st.permutations(range(1, 6)))
def test_the_newest_checkpoint_wins_in_whatever_order_they_come(url: str, order: list[int]) -> None:
    session = fresh_key().workflow_id

    async def run() -> Checkpoint | None:
        archive = Archive.at(url)
        try:
            await asyncio.gather(*(archive.keep_checkpoint(session, seq, moment(seq), f"state {seq}") for seq in order))
            return await archive.checkpoint(session)
        finally:
            await archive.aclose()

    assert asyncio.run(run()) == Checkpoint(5, moment(5), "state 5")


async def test_of_two_checkpoints_at_one_entry_the_later_one_stays(archive: Archive) -> None:
    session = fresh_key().workflow_id
    await archive.keep_checkpoint(session, 3, moment(9), "later")
    await archive.keep_checkpoint(session, 3, moment(8), "earlier")
    assert await archive.checkpoint(session) == Checkpoint(3, moment(9), "later")


# ---- sessions, and forgetting them ------------------------------------------------------------------------------


async def test_sessions_are_found_by_user_and_agent(archive: Archive) -> None:
    keys = [fresh_key("alice"), fresh_key("alice", "sales"), fresh_key(None), fresh_key("~"), fresh_key("a%l_ice")]
    for key in keys:
        await archive.append(key.workflow_id, [said(1)])
    ids = [key.workflow_id for key in keys]
    assert set(await archive.sessions(user_id="alice")) == set(ids[:2])
    assert await archive.sessions(user_id="alice", agent_id="sales") == (ids[1],)
    assert await archive.sessions(user_id=None) == (ids[2],)
    assert await archive.sessions(user_id="~") == (ids[3],)
    assert await archive.sessions(user_id="a%l_ice") == (ids[4],)


async def test_what_is_forgotten_is_gone_and_the_rest_stays(archive: Archive) -> None:
    gone, stays = fresh_key().workflow_id, fresh_key().workflow_id
    for session in (gone, stays):
        await archive.append(session, [said(1), said(2)])
        await archive.keep_checkpoint(session, 2, moment(2), "state")
    assert await archive.forget([gone, "session:a:b:never-there"]) == Forgotten(sessions=1, entries=2, checkpoints=1)
    assert await archive.forget([gone]) == Forgotten()
    assert (await archive.entries(gone), await archive.checkpoint(gone)) == ((), None)
    assert await archive.sessions(user_id="alice") == (stays,)
    assert len(await archive.entries(stays)) == 2


async def test_what_comes_late_of_a_forgotten_session_is_not_taken_and_a_new_one_is(archive: Archive) -> None:
    """An archive activity that was under way; then the same person again, under the same name."""
    session = fresh_key().workflow_id
    await archive.append(session, [said(1)])
    await archive.forget([session], until=moment(5))
    await archive.append(session, [said(1), said(5)])
    await archive.keep_checkpoint(session, 5, moment(5), "old")
    assert (await archive.entries(session), await archive.checkpoint(session)) == ((), None)
    assert await archive.sessions(user_id="alice") == ()
    anew = said(1, "anew").model_copy(update={"at": moment(6)})
    await archive.append(session, [anew])
    await archive.keep_checkpoint(session, 1, moment(7), "new")
    assert await archive.entries(session) == (anew,)
    assert await archive.checkpoint(session) == Checkpoint(1, moment(7), "new")


async def test_what_the_archive_had_says_how_long_ago_it_was_where_nobody_else_does(archive: Archive) -> None:
    session = fresh_key().workflow_id
    await archive.append(session, [said(1), said(7)])
    await archive.forget([session])
    await archive.append(session, [said(1), said(7)])
    assert await archive.entries(session) == ()
    await archive.append(session, [said(8)])
    assert numbers(await archive.entries(session)) == [8]


async def test_forgetting_again_takes_nothing_back(archive: Archive) -> None:
    session = fresh_key().workflow_id
    await archive.append(session, [said(1)])
    assert await archive.forgotten(session) is None
    await archive.forget([session], until=moment(9))
    await archive.forget([session], until=moment(2))
    assert await archive.forgotten(session) == moment(9)
    await archive.append(session, [said(5)])
    assert await archive.entries(session) == ()


@ONCE
@given(appends=st.integers(2, 6))
def test_nothing_is_left_of_a_session_that_is_forgotten_while_it_is_written(url: str, appends: int) -> None:
    session = fresh_key().workflow_id

    async def run() -> None:
        one, other = Archive.at(url), Archive.at(url)
        try:
            await one.prepare()
            late, late_too = ([one.append(session, [said(seq)]) for seq in range(1, appends)] for _ in range(2))
            await asyncio.gather(*late, other.forget([session], until=moment(100)), *late_too)
            assert await one.entries(session) == ()
        finally:
            await one.aclose()
            await other.aclose()

    asyncio.run(run())


async def test_the_name_of_who_was_forgotten_is_nowhere_in_the_database(archive: Archive, url: str) -> None:
    session = fresh_key("mrs-secret").workflow_id
    await archive.append(session, [said(1)])
    await archive.forget([session], until=moment(1))
    for table in ("sessions", "entries", "checkpoints", "forgotten"):
        assert "secret" not in str(rows_of(url, f"SELECT * FROM perdure_{table}"))  # noqa: S608  # our own names


# ---- the database -----------------------------------------------------------------------------------------------


async def test_reading_makes_no_database(url: str) -> None:
    """B10."""
    archive = Archive.at(url, create=False)
    session = fresh_key().workflow_id
    assert await archive.entries(session) == ()
    assert await archive.last_seq(session) == 0
    assert await archive.checkpoint(session) is None
    assert await archive.sessions(user_id=None) == ()
    assert await archive.forget([session]) == Forgotten()
    await archive.aclose()
    database = make_url(url).database or ""
    assert not Path(database).parent.exists() or "postgresql" in url
    if "postgresql" in url:
        assert rows_of(url, "SELECT * FROM pg_tables WHERE tablename LIKE 'perdure%'") == []


async def test_a_caller_who_is_cancelled_leaves_the_archive_working(archive: Archive) -> None:
    session = fresh_key().workflow_id
    await archive.prepare()
    tasks = [asyncio.create_task(archive.append(session, [said(seq, "x" * 100_000)])) for seq in range(1, 41)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(*(archive.append(session, [said(seq)]) for seq in range(41, 61)))
    found = numbers(await archive.entries(session, max_bytes=100_000_000))
    assert set(range(2, 41, 2)) | set(range(41, 61)) <= set(found)


async def test_an_archive_belongs_to_no_event_loop(url: str) -> None:
    archive = Archive.at(url)
    session = fresh_key().workflow_id
    await asyncio.to_thread(lambda: asyncio.run(archive.append(session, [said(1)])))
    assert numbers(await archive.entries(session)) == [1]
    await archive.aclose()


async def test_a_file_that_was_taken_away_is_made_again(tmp_path: Path) -> None:
    file = tmp_path / "archive.db"
    archive = Archive.at(f"sqlite:///{file}")
    session = fresh_key().workflow_id
    await archive.append(session, [said(1)])
    for each in list(tmp_path.iterdir()):  # noqa: ASYNC240  # the test has the loop to itself
        each.unlink()
    assert await archive.entries(session) == ()
    await archive.append(session, [said(2)])
    assert numbers(await archive.entries(session)) == [2]
    await archive.aclose()


async def test_the_file_is_for_its_owner_alone_and_lets_readers_go_on(tmp_path: Path) -> None:
    file = tmp_path / "archive.db"
    archive = Archive.at(f"sqlite:///{file}")
    await archive.prepare()
    assert file.stat().st_mode & 0o077 == 0
    engine = engine_for(parsed(f"sqlite:///{file}"))
    with engine.connect() as writer:
        writer.exec_driver_sql("INSERT INTO perdure_sessions VALUES ('session:a:~:s', 'a', NULL, 's')")
        async with asyncio.timeout(5):
            assert await archive.sessions(user_id=None) == ()
    await archive.aclose()


@pytest.mark.parametrize("secret", ["bob:hunter2@127.0.0.1:1/nowhere", "bob@127.0.0.1:1/nowhere?password=hunter2"])
async def test_a_database_that_can_not_be_reached_is_named_without_its_password(secret: str) -> None:
    archive = Archive.at(f"postgresql://{secret}")
    with pytest.raises(ArchiveUnavailable) as failed:
        await archive.last_seq(fresh_key().workflow_id)
    assert "hunter2" not in str(failed.value)
    assert "127.0.0.1:1/nowhere" in str(failed.value)
    assert "PERDURE_ARCHIVE_URL" in str(failed.value)
    await archive.aclose()


async def test_a_file_that_is_no_database_is_an_error_that_names_it(tmp_path: Path) -> None:
    file = tmp_path / "archive.db"
    file.write_text("this is not a database, and was never one; it is long enough to be looked at")
    archive = Archive.at(f"sqlite:///{file}")
    with pytest.raises(ArchiveUnavailable, match="not a database") as failed:
        await archive.append(fresh_key().workflow_id, [said(1)])
    assert str(file) in str(failed.value)
    await archive.aclose()


async def test_a_folder_that_can_not_be_made_is_an_error_and_works_when_it_can(tmp_path: Path) -> None:
    (tmp_path / "in-the-way").write_text("")
    archive = Archive.at(f"sqlite:///{tmp_path / 'in-the-way' / 'archive.db'}")
    with pytest.raises(ArchiveUnavailable):
        await archive.prepare()
    (tmp_path / "in-the-way").unlink()
    await archive.prepare()
    await archive.aclose()


async def test_what_was_said_is_in_no_error(archive: Archive) -> None:
    secret = said(1, "my secret").model_copy(update={"seq": 2**63 + 5})
    with pytest.raises((ArchiveUnavailable, OverflowError)) as failed:
        await archive.append(fresh_key().workflow_id, [secret])
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("nonsense", "no SQLAlchemy URL"),
        ("", "no SQLAlchemy URL"),
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        ("sqlite:///file:memory?mode=memory&uri=true", "needs a file"),
        ("sqlite+aiosqlite:///a.db", "can't be kept in"),
        ("mysql://u:hunter2@h/d", "can't be kept in mysql"),
        ("postgresql+asyncpg://u:hunter2@h/d", "can't be kept in"),
        ("postgresql://u:hunter2@h:nonsense/d", "no SQLAlchemy URL"),
    ],
)
def test_an_url_that_can_not_be_used_is_refused_before_anything_is_opened(given: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as refused:
        Archive.at(given)
    assert "sqlite:///" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_the_usual_spellings_of_an_url_mean_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    names = {str(Archive.at(f"{scheme}://u@h/d")) for scheme in ("postgres", "postgresql", "postgresql+psycopg")}
    assert names == {"postgresql+psycopg://u@h/d"}
    files = {str(Archive.at(each)) for each in ("sqlite:///a.db", "sqlite:///~/a.db", "sqlite+pysqlite:///a.db")}
    assert files == {f"sqlite:///{tmp_path / 'a.db'}"}


def test_nothing_is_late_forever() -> None:
    """What is known of the forgotten is itself forgotten, by far later than anything can be late."""
    assert timedelta(days=1) < REMEMBERED < timedelta(days=365)
