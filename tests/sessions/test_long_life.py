"""Sessions that go on for long: new runs, the archive, closing and coming back."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from perdure import Agent, App, Effect, ModelRequest, Sessions, ToolCall, tool
from perdure.archive import Archive, Checkpoint
from perdure.calls import NotOpenYet
from perdure.errors import SessionNotFound, SetupRequired, TurnConflict
from perdure.models import Purpose
from perdure.results import TurnStatus
from perdure.testing import Reply, ScriptedModel, serve
from tests.sessions.test_turns import echo
from tests.support.world import AT_ONCE, failed_tasks, fresh, until, world

if TYPE_CHECKING:
    from pathlib import Path

    from perdure import SessionHandle
    from perdure.testing import Served
    from worker.embedded import EmbeddedServer

pytestmark = pytest.mark.timeout(300)

OFTEN = {"renew_events": 24, "renew_idle_events": 16}
"""A new run after a turn or two."""


async def numbers(session: SessionHandle) -> list[int]:
    return [entry.seq async for entry in session.transcript()]


async def run_id(session: SessionHandle) -> str:
    return (await session.client.get_workflow_handle(session.workflow_id).describe()).run_id


async def all_runs(session: SessionHandle) -> set[str]:
    """The workflow runs that the session has had, from the newest on."""
    handle = session.client.get_workflow_handle(session.workflow_id, run_id=await run_id(session))
    found = set[str]()
    while True:
        found.add(handle.run_id or "")
        event = [event async for event in handle.fetch_history_events()][0]  # noqa: RUF015
        before = event.workflow_execution_started_event_attributes.continued_execution_run_id
        if not before:
            return found
        handle = session.client.get_workflow_handle(session.workflow_id, run_id=before)


async def test_three_hundred_submits_of_ten_clients_over_many_runs_are_each_taken_once_and_in_order(
    server: EmbeddedServer,
) -> None:
    """B12, B13: submits of one client keep their order; a repeated one is the same turn, in a later run too."""
    async with world(server, App([Agent("a", ScriptedModel(echo), queue_limit=1_000)]), **OFTEN) as served:
        session = served.sessions.session("a", fresh())

        async def client(name: str) -> None:
            for number in range(30):
                turn_id = f"{name}-{number}"
                result = await session.ask(f"{name} {number}", turn_id=turn_id, timeout=120)
                assert (result.status, result.output) == (TurnStatus.COMPLETED, f"heard {name} {number}")
                if number % 10 == 0:
                    again = await session.submit(f"{name} {number}", turn_id=turn_id)
                    assert (again.turn_id, again.disposition) == (turn_id, "settled")

        await asyncio.gather(*(client(name) for name in "abcdefghij"))
        with pytest.raises(TurnConflict):
            await session.submit("another", turn_id="a-0")
        assert (await session.result("a-0")).output == "heard a 0"
        assert len(await all_runs(session)) >= 15
        told = [entry async for entry in session.transcript() if entry.kind == "input"]
        for name in "abcdefghij":
            assert [entry.turn_id for entry in told if (entry.turn_id or "").startswith(name)] == [
                f"{name}-{number}" for number in range(30)
            ]
        assert await numbers(session) == list(range(1, 1_201))
        assert not await failed_tasks(session)


async def test_a_session_lives_through_five_hundred_turns_on_a_server_that_allows_two_thousand_events() -> None:
    """B59: it renews itself long before, by its own limits."""
    config = AT_ONCE | {"limit.historyCount.error": 2_000, "limit.historyCount.warn": 1_900}
    async with serve(App([Agent("a", ScriptedModel(echo), compact_over=None)]), dynamic_config=config) as served:
        session = served.sessions.session("a", fresh())
        for number in range(500):
            result = await session.ask(f"hello {number}", timeout=60)
            assert result.output == f"heard hello {number}"
        view = await session.view()
        assert view.turns == 500
        assert view.history_length < 1_100
        assert await numbers(session) == list(range(1, 2_001))


async def test_the_transcript_is_whole_after_many_runs_clears_a_summary_and_an_archive_that_was_down(
    tmp_path: Path, server: EmbeddedServer
) -> None:
    """B61: each entry once and in order, wherever it is."""

    def reply(request: ModelRequest) -> str:
        return "what was said" if request.purpose is Purpose.SUMMARY else echo(request)

    blocked = tmp_path / "later"
    blocked.write_text("in the way of the archive's folder")
    url = f"sqlite:///{blocked / 'archive.db'}"
    async with world(server, App([Agent("a", ScriptedModel(reply))]), archive_url=url, **OFTEN) as served:
        session = served.sessions.session("a", fresh())
        for number in range(30):
            if number in (10, 20):
                await session.clear_context()
            if number == 16:
                await session.compact()
            if number == 25:
                blocked.unlink()  # the archive is there again
            result = await session.ask(f"hello {number}", timeout=60)
            assert result.output == f"heard hello {number}"
        assert len(await all_runs(session)) > 10
        found = await numbers(session)
        assert found == list(range(found[0], found[0] + len(found)))
        kinds = [entry.kind async for entry in session.transcript()]
        assert kinds.count("input") == 30
        assert kinds.count("change") == 2
        assert kinds.count("summary") == 1
        await until(lambda: _archived(served, session))
        assert not await failed_tasks(session)


async def _archived(served: Served, session: SessionHandle) -> bool:
    assert served.archive is not None
    await session.ask("more", timeout=60)
    return await served.archive.last_seq(session.workflow_id) > 0


# ---- closing and coming back -------------------------------------------------------------------------------------


async def ended(session: SessionHandle) -> None:
    """Close a session, and wait until its workflow has ended."""
    await session.close("done")
    await asyncio.wait_for(session.client.get_workflow_handle(session.workflow_id).result(), 60)


async def test_a_closed_session_comes_back_as_it_was(server: EmbeddedServer) -> None:
    """B20: what was said, its rules, and the turns that it has had."""
    calls = itertools.count()

    @tool(effect=Effect.READ, approval="ask")
    def look() -> str:
        next(calls)
        return "all is well"

    def reply(request: ModelRequest) -> str | ToolCall:
        asked = request.messages[-1]
        return ToolCall("look") if asked.text == "look" else f"{len(request.messages)} messages"

    async with world(server, App([Agent("a", ScriptedModel(reply), tools=[look])])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        await session.ask("hello", turn_id="t1")
        assert (await session.ask("look", turn_id="t2")).status is TurnStatus.SUSPENDED
        request = (await session.view()).interactions[0]
        await session.respond(request.request_id, True, remember=True)
        assert (await session.result("t2", timeout=30)).status is TurnStatus.COMPLETED
        before = await session.state()
        await ended(session)
        assert (await session.state()).context == before.context
        assert (await session.ask("and now?", turn_id="t3", timeout=60)).output == "7 messages"
        after = await session.state()
        assert after.context[: len(before.context)] == before.context
        assert after.permission_context == before.permission_context
        assert (await session.ask("hello", turn_id="t1")).output == "1 messages", "it is not run again"
        assert (await session.turn("t2")).status is TurnStatus.COMPLETED
        assert next(calls) == 1
        found = await numbers(session)
        assert found == list(range(1, len(found) + 1))


async def test_a_closed_session_comes_back_when_temporal_has_forgotten_it(tmp_path: Path) -> None:
    """B20: on another server even, that never heard of it."""
    app, url = App([Agent("a", ScriptedModel(echo))]), f"sqlite:///{tmp_path / 'archive.db'}"
    async with serve(app, archive_url=url) as served:
        session = served.sessions.session("a", "one", "alice")
        await session.ask("hello", turn_id="t1")
        await ended(session)
    async with serve(app, archive_url=url) as served:
        session = served.sessions.session("a", "one", "alice")
        kinds = [entry.kind async for entry in session.transcript()]
        assert kinds == ["input", "run", "assistant", "turn", "command"], "the archive still has it all"
        with pytest.raises(TurnConflict):
            await session.submit("something else", turn_id="t1")
        assert (await session.ask("hello", turn_id="t1", timeout=60)).output == "heard hello"
        with pytest.raises(SessionNotFound):  # the archive has answered, and nothing was run again
            await session.state()
        await session.ask("and now?", timeout=60)
        assert len((await session.state()).context) == 4
        found = await numbers(session)
        assert found == list(range(1, len(found) + 1))


async def test_a_large_session_comes_back_without_external_storage(server: EmbeddedServer) -> None:
    """B20, B60: it travels in slices."""
    async with world(server, App([Agent("a", ScriptedModel(echo))]), storage=None) as served:
        session = served.sessions.session("a", fresh())
        for number in range(4):
            await session.ask(f"{number}" + "ü" * 200_000, timeout=60)
        before = await session.state()
        await ended(session)
        await session.ask("still there?", timeout=60)
        assert (await session.state()).context[: len(before.context)] == before.context


@pytest.mark.parametrize("afterwards", ["another", "none"])
async def test_a_checkpoint_that_changes_while_it_is_read_is_read_anew(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, afterwards: str
) -> None:
    """B20: its parts fit together, or it was forgotten and the session begins empty; it never stays half open."""
    reads, read = itertools.count(1), Archive.checkpoint

    async def changing(archive: Archive, workflow_id: str) -> Checkpoint | None:
        found = await read(archive, workflow_id)
        if next(reads) == 1 or found is None:
            return found
        return None if afterwards == "none" else replace(found, seq=found.seq + 1, data=found.data + " ")

    async with world(server, App([Agent("a", ScriptedModel(echo))]), storage=None) as served:
        session = served.sessions.session("a", fresh())
        for number in range(4):
            await session.ask(f"{number}" + "ü" * 200_000, timeout=60)
        before = await session.state()
        await ended(session)
        monkeypatch.setattr(Archive, "checkpoint", changing)
        await session.ask("still there?", timeout=60)
        context = (await session.state()).context
        assert len(context) == 2 + (0 if afterwards == "none" else len(before.context))
        assert await failed_tasks(session) == 0


async def test_a_session_that_was_there_waits_for_an_archive_that_is_down(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    """B20: it goes on with what it was, or not at all."""
    aside, place = tmp_path / "aside", tmp_path / "archive"
    place.mkdir()
    url = f"sqlite:///{place / 'archive.db'}"
    async with world(server, App([Agent("a", ScriptedModel(echo))]), archive_url=url) as served:
        session = served.sessions.session("a", fresh())
        await session.ask("hello")
        await ended(session)
        await served.stop_worker()
        place.rename(aside)
        place.write_text("in the way")
        await served.start_worker()
        asking = asyncio.create_task(session.ask("are you there?", timeout=120))
        await until(lambda: _waits_for_the_archive(session), patience=60)
        assert not asking.done()
        place.unlink()
        aside.rename(place)
        assert (await asking).output == "heard are you there?"
        assert len((await session.state()).context) == 4


async def _waits_for_the_archive(session: SessionHandle) -> bool:
    try:
        await session.view()
    except NotOpenYet as error:
        return "waits for the archive" in str(error)
    return False


async def test_a_new_session_does_not_wait_for_an_archive_that_is_down(server: EmbeddedServer, tmp_path: Path) -> None:
    """B61: it begins, with numbers that no former life can have had; when it was closed, it opens where it is."""
    (tmp_path / "file").write_text("")
    url = f"sqlite:///{tmp_path / 'file' / 'archive.db'}"
    async with world(server, App([Agent("a", ScriptedModel(echo))]), archive_url=url) as served:
        session = served.sessions.session("a", fresh())
        assert (await session.ask("hello", timeout=60)).output == "heard hello"
        found = await numbers(session)
        assert found == list(range(found[0], found[0] + 5))
        assert found[0] > 1_000_000_000_000
        await session.close()
        before = await run_id(session)
        assert (await session.ask("I am back", timeout=60)).output == "heard I am back"
        assert await run_id(session) == before
        assert len((await session.state()).context) == 4


async def test_without_an_archive_a_closed_session_comes_back_empty(server: EmbeddedServer) -> None:
    """B20: as the setting says."""
    async with world(server, App([Agent("a", ScriptedModel(echo))]), archive_url="none") as served:
        session = served.sessions.session("a", fresh())
        await session.ask("hello")
        await ended(session)
        await session.ask("hello again", timeout=60)
        assert len((await session.state()).context) == 2


async def test_a_client_without_the_archive_is_told_what_to_set(server: EmbeddedServer) -> None:
    """B61: only when something is missing."""
    async with world(server, App([Agent("a", ScriptedModel(lambda _: Reply("y" * 20_000)))]), **OFTEN) as served:
        session = served.sessions.session("a", fresh())
        other = Sessions(served.client).session("a", session.key.session_id)
        await session.ask("hello", turn_id="first")
        assert (await other.turn("first")).output == "y" * 20_000
        for number in range(10):
            await session.ask(f"hello {number}")
        with pytest.raises(SetupRequired, match="PERDURE_ARCHIVE_URL"):
            await other.turn("first")
        with pytest.raises(SetupRequired, match="PERDURE_ARCHIVE_URL"):
            await numbers(other)
        view = await session.turn("first")
        assert (view.output, view.steps, view.status) == ("y" * 20_000, 1, TurnStatus.COMPLETED)
        assert view.input


async def test_a_turn_of_long_ago_is_told_in_full_and_not_taken_for_new(server: EmbeddedServer) -> None:
    """B13: the session has its fingerprint, and the archive the rest."""
    async with world(server, App([Agent("a", ScriptedModel(echo), compact_over=200)]), **OFTEN) as served:
        session = served.sessions.session("a", fresh())
        for number in range(120):
            await session.ask(f"hello {number}", turn_id=f"t{number}", timeout=60)
        first = await session.turn("t0")
        assert (first.output, first.status, len(first.runs)) == ("heard hello 0", TurnStatus.COMPLETED, 1)
        with pytest.raises(TurnConflict):
            await session.submit("other words", turn_id="t0")
