"""The transcript and the turns of a session, wherever they are: in the session, in the archive, on their way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perdure import Agent, App, SessionHandle, TurnStatus
from perdure.archive import Archive
from perdure.errors import SessionClosed, SessionNotFound, SetupRequired, TurnConflict, TurnNotFound
from perdure.testing import ScriptedModel
from tests.support.entries import fresh_key, numbers, said
from tests.support.world import fresh, until, world

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from perdure import TranscriptEntry
    from perdure.testing import Served
    from worker.embedded import EmbeddedServer

TURNS = 90
"""So many turns of four entries are more than a session keeps until it hands them over."""


def app() -> App:
    return App([Agent("a", ScriptedModel(lambda request: f"{request.messages[-1].text}? {'x' * 400}"))])


@pytest.fixture
async def served(server: EmbeddedServer) -> AsyncGenerator[Served]:
    async with world(server, app()) as served:
        yield served


async def talked(served: Served, turns: int = TURNS) -> SessionHandle:
    """Return a session that has said so much that the archive has part of it."""
    session = served.sessions.session("a", fresh(), "alice")
    for number in range(1, turns + 1):
        await session.submit(f"hello {number}", turn_id=f"t-{number}", on_busy="enqueue")
        if number % 50 == 0:
            await session.result(f"t-{number}")
    await session.result(f"t-{turns}")
    return session


async def archived(served: Served, session: SessionHandle) -> bool:
    assert served.archive is not None
    return await served.archive.last_seq(session.workflow_id) > 0


async def whole(session: SessionHandle, after: int = 0) -> list[TranscriptEntry]:
    return [entry async for entry in session.transcript(after)]


async def test_a_transcript_is_read_from_both_as_one(served: Served) -> None:
    """B61."""
    session = await talked(served)
    await until(lambda: archived(served, session))
    entries = await whole(session)
    assert numbers(entries) == list(range(1, len(entries) + 1))
    spoken = [entry.turn_id for entry in entries if entry.kind == "input"]
    assert spoken == [f"t-{number}" for number in range(1, TURNS + 1)]
    assert await whole(session, after=7) == entries[7:]
    with pytest.raises(SetupRequired, match="PERDURE_ARCHIVE_URL"):
        await whole(SessionHandle(served.client, session.key))
    last = entries[-1].seq
    near = SessionHandle(served.client, session.key)
    assert await whole(near, after=last - 3) == entries[-3:]  # of which nothing is missing


async def test_a_turn_of_long_ago_is_whole(served: Served) -> None:
    session = await talked(served)
    await until(lambda: archived(served, session))
    turn = await session.turn("t-1")
    assert (turn.status, turn.archived) == (TurnStatus.COMPLETED, False)
    assert turn.output.startswith("hello 1?")
    assert (await session.result("t-1")).output == turn.output
    assert (turn.steps, len(turn.runs)) == (1, 1)
    with pytest.raises(SetupRequired, match="PERDURE_ARCHIVE_URL"):
        await SessionHandle(served.client, session.key).turn("t-1")
    with pytest.raises(TurnNotFound):
        await session.turn("never")


async def test_reading_while_entries_move_to_the_archive_gives_each_once(served: Served) -> None:
    """B61: a reader who follows from the start, beside turns that push entries out of the session."""
    session = served.sessions.session("a", fresh(), "alice")
    await session.ask("hello 0", turn_id="t-0")
    seen: list[int] = []
    following = session.transcript(follow=True)
    seen.append((await anext(following)).seq)
    for number in range(1, TURNS + 1):
        await session.submit(f"hello {number}", turn_id=f"t-{number}")
        if number % 45 == 0:
            await session.result(f"t-{number}")
    await until(lambda: archived(served, session))
    last = numbers(await whole(session))[-1]
    async for entry in following:
        seen.append(entry.seq)
        if entry.seq == last:
            break
    assert seen == list(range(1, last + 1))


async def only_archived(served: Served, entries: list[TranscriptEntry]) -> SessionHandle:
    """Return a session that the archive has and Temporal has not, as when its retention is over."""
    assert served.archive is not None
    session = served.sessions.session("a", fresh(), "alice")
    writer = Archive.at(served.archive.url)
    await writer.append(session.workflow_id, entries)
    await writer.aclose()
    return session


async def test_a_session_that_temporal_has_forgotten_is_read_from_the_archive(served: Served) -> None:
    lived = served.sessions.session("a", fresh(), "alice")
    await lived.ask("hello", turn_id="t-1")
    entries = await whole(lived)
    session = await only_archived(served, entries)
    assert await whole(session) == entries
    assert await session.turn("t-1") == await lived.turn("t-1")
    assert (await session.result("t-1")).status is TurnStatus.COMPLETED
    with pytest.raises(SessionNotFound):
        await session.turn("t-2")
    with pytest.raises(SessionNotFound):
        await whole(SessionHandle(served.client, session.key))


async def test_a_turn_is_not_done_again_because_temporal_has_forgotten_it(served: Served) -> None:
    """B13."""
    lived = served.sessions.session("a", fresh(), "alice")
    await lived.ask("hello", turn_id="t-1")
    entries = await whole(lived)
    session = await only_archived(served, entries)
    assert (await session.submit("hello", turn_id="t-1")).disposition == "settled"
    with pytest.raises(TurnConflict):
        await session.submit("something else", turn_id="t-1")
    in_the_middle = await only_archived(served, [entry for entry in entries if entry.kind != "turn"])
    with pytest.raises(SessionClosed, match="in the middle"):
        await in_the_middle.submit("hello", turn_id="t-1")
    assert (await session.ask("and now?", turn_id="t-2")).output.startswith("and now?")
    found = numbers(await whole(session))
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= 8


async def test_a_session_that_was_closed_and_comes_back_has_its_transcript_from_the_start(served: Served) -> None:
    """B20, B61."""
    session = served.sessions.session("a", fresh(), "alice")
    await session.ask("hello", turn_id="t-1")
    await session.close()
    before = await whole(session)
    await served.client.get_workflow_handle(session.workflow_id).result()
    await session.ask("and now?", turn_id="t-2")
    entries = await whole(session)
    assert entries[: len(before)] == before
    assert numbers(entries) == list(range(1, len(entries) + 1))
    assert (await session.turn("t-1")).output.startswith("hello?")


async def test_without_an_archive_the_transcript_begins_where_the_session_begins(server: EmbeddedServer) -> None:
    async with world(server, app(), archive_url="none") as served:
        assert served.archive is None
        session = await talked(served, turns=3)
        entries = await whole(session)
        assert numbers(entries) == list(range(1, len(entries) + 1))


async def test_reading_makes_no_archive_and_nothing_in_temporal(served: Served, tmp_path: Path) -> None:
    """B10."""
    file = tmp_path / "elsewhere" / "archive.db"
    archive = Archive.at(f"sqlite:///{file}", create=False)
    session = SessionHandle(served.client, fresh_key(), archive=archive)
    with pytest.raises(SessionNotFound):
        await whole(session)
    with pytest.raises(SessionNotFound):
        await session.turn("t-1")
    assert not file.parent.exists()
    await archive.aclose()


async def test_what_only_the_archive_knows_has_gaps_where_numbers_were_never_used(served: Served) -> None:
    key = fresh_key()
    assert served.archive is not None
    writer = Archive.at(served.archive.url)
    await writer.append(key.workflow_id, [said(1), said(2), said(1000), said(1001)])
    await writer.aclose()
    session = SessionHandle(served.client, key, archive=served.archive)
    assert numbers(await whole(session)) == [1, 2, 1000, 1001]
    assert numbers(await whole(session, after=2)) == [1000, 1001]
