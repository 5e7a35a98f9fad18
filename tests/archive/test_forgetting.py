"""Forgetting a person: what was kept of them is gone, what was kept of others is not."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from perdure import Agent, App, Effect, SessionKey, Sessions, ToolCall, tool
from perdure.archive import Archive, Forgotten
from perdure.errors import ArchiveUnavailable, InvalidSessionKey
from perdure.testing import ScriptedModel, Served
from tests.cli.programs import inside
from tests.support.entries import said
from tests.support.world import fresh, until, world

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
    from datetime import datetime

    from perdure import SessionHandle
    from worker.embedded import EmbeddedServer

LARGE = "secret " * 40_000


@tool(effect=Effect.READ)
async def look() -> str:
    """Return more than history keeps."""
    return LARGE


def app() -> App:
    def answer(request: object) -> str | ToolCall:
        spoken = request.messages[-1].text  # type: ignore[attr-defined]
        return ToolCall("look", {}) if spoken == "look" else "hello"

    return App([Agent("a", ScriptedModel(answer), tools=[look]), Agent("b", ScriptedModel(answer), tools=[look])])  # pyright: ignore[reportArgumentType]


@pytest.fixture
async def served(server: EmbeddedServer) -> AsyncGenerator[Served]:
    async with world(server, app(), storage_threshold=1000) as served:
        yield served


async def visible(served: Served, *sessions: SessionHandle) -> None:
    """Wait until Temporal lists these sessions."""

    async def listed() -> bool:
        found = {info.key async for info in served.sessions.list()}
        return {session.key for session in sessions} <= found

    await until(listed)


async def archive_of(served: Served) -> Archive:
    assert served.archive is not None
    return Archive.at(served.archive.url)


def stored(served: Served) -> list[Path]:
    assert isinstance(served.settings.storage, Path)
    return [path for path in served.settings.storage.rglob("*") if path.is_file()]


async def test_all_that_was_kept_of_a_user_goes_and_of_others_nothing(served: Served) -> None:
    user, other = fresh("alice"), fresh("bob")
    mine = served.sessions.session("a", "s", user)
    also = served.sessions.session("b", "s", user)
    theirs = served.sessions.session("a", "s", other)
    for session in (mine, also, theirs):
        await session.ask("look")
    await also.close()
    await visible(served, mine, also, theirs)
    archive = await archive_of(served)
    await archive.append(mine.workflow_id, [said(1)])
    receipt = await served.sessions.forget(user)
    assert set(receipt.sessions) == {mine.key, also.key}
    assert receipt.entries >= 1
    assert (receipt.deleted, receipt.held) == (2, 0)
    assert receipt.files > 0
    assert {path.parent.name for path in stored(served)} == {sha256(theirs.workflow_id.encode()).hexdigest()[:32]}
    assert await archive.sessions(user_id=user) == ()
    assert await archive.checkpoint(mine.workflow_id) is None
    assert (await theirs.ask("still there?")).output == "hello"
    assert len((await theirs.state()).context) > 2
    await archive.aclose()


async def test_one_session_or_one_agent_of_a_user_can_be_forgotten(served: Served) -> None:
    user = fresh("alice")
    sessions = [served.sessions.session(agent, name, user) for agent, name in ("a1", "a2", "b1")]
    for session in sessions:
        await session.ask("hi")
    await visible(served, *sessions)
    assert {known.key for known in await served.sessions.kept_of(user)} == {session.key for session in sessions}
    one = await served.sessions.forget(user, agent_id="a", session_id="1")
    assert one.sessions == (sessions[0].key,)
    assert {known.key for known in await served.sessions.kept_of(user, agent_id="b")} == {sessions[2].key}
    assert (await sessions[1].view()).turns == 1
    assert (await sessions[2].view()).turns == 1


async def test_a_session_that_began_a_moment_ago_is_found_by_its_name(served: Served) -> None:
    user = fresh("alice")
    session = served.sessions.session("a", "s", user)
    await session.submit("hi")
    receipt = await served.sessions.forget(user, agent_id="a", session_id="s")
    assert (receipt.sessions, receipt.ended) == ((session.key,), 1)


async def test_the_anonymous_user_is_nobody_else(served: Served) -> None:
    name = fresh()
    nobody, tilde = served.sessions.session("a", name), served.sessions.session("a", name, "~")
    for session in (nobody, tilde):
        await session.ask("hi")
    await visible(served, nobody, tilde)
    receipt = await served.sessions.forget(None, session_id=name)
    assert receipt.sessions == (nobody.key,)
    assert (await tilde.view()).turns == 1
    with pytest.raises(InvalidSessionKey, match="blank"):
        await served.sessions.forget("  ")


async def test_forgetting_again_finds_nothing_and_the_person_may_come_back_as_a_stranger(served: Served) -> None:
    user = fresh("alice")
    session = served.sessions.session("a", "s", user)
    await session.ask("my secret", turn_id="t-1")
    await session.close()
    await served.sessions.forget(user, agent_id="a", session_id="s")
    again = await served.sessions.forget(user, agent_id="a", session_id="s")
    assert (again.ended, again.entries, again.checkpoints, again.files) == (0, 0, 0, 0)
    await session.ask("hello?", turn_id="t-2")
    assert [message.text for message in (await session.state()).context] == ["hello?", "hello"]
    await session.close()

    async def kept() -> bool:
        archive = await archive_of(served)
        found = await archive.checkpoint(session.workflow_id)
        await archive.aclose()
        return found is not None and "secret" not in found.data

    await until(kept)


async def test_what_an_activity_brings_late_is_not_kept(served: Served) -> None:
    user = fresh("alice")
    session = served.sessions.session("a", "s", user)
    await session.ask("my secret")
    late = [entry async for entry in session.transcript()]
    archive = await archive_of(served)
    await archive.append(session.workflow_id, late[:2])
    await served.sessions.forget(user, agent_id="a", session_id="s")
    await archive.append(session.workflow_id, late)
    await archive.keep_checkpoint(session.workflow_id, late[-1].seq, late[-1].at, "my secret")
    assert await archive.entries(session.workflow_id) == ()
    assert await archive.checkpoint(session.workflow_id) is None
    await archive.aclose()


async def test_who_comes_back_is_not_stopped_by_what_temporal_holds_without_its_payloads(served: Served) -> None:
    """Temporal deletes a history some time later, or never; what it refers to is gone."""
    session = served.sessions.session("a", "s", fresh("alice"))
    await session.ask(LARGE, turn_id="t-1")
    await served.sessions.forget(session.key.user_id, agent_id="a", session_id="s")
    await served.stop_worker()  # and what it has in memory
    await served.start_worker()
    assert (await session.ask("hello?", turn_id="t-2")).output == "hello"
    assert [message.text for message in (await session.state()).context] == ["hello?", "hello"]


class Interrupted(Archive):
    """An archive before whose forgetting somebody opens the session again."""

    meddle: Callable[[], Awaitable[object]]
    times = 1

    async def forget(self, workflow_ids: Iterable[str], *, until: datetime | None = None) -> Forgotten:
        if self.times:
            self.times -= 1
            await self.meddle()
        return await super().forget(workflow_ids, until=until)


async def test_who_opens_the_session_in_the_middle_does_not_bring_it_back(served: Served) -> None:
    session = served.sessions.session("a", "s", fresh("alice"))
    await session.ask("my secret")
    assert served.archive is not None
    archive = Interrupted.at(served.archive.url)
    archive.meddle = lambda: session.ask("me again")
    sessions = Sessions(served.client, served.settings.task_queue, archive)
    receipt = await sessions.forget(session.key.user_id, agent_id="a", session_id="s")
    assert receipt.ended == 2
    await session.ask("hello?")
    assert [message.text for message in (await session.state()).context] == ["hello?", "hello"]
    await archive.aclose()


async def test_without_a_worker_sessions_are_terminated(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.client.forgetting.CLOSING_SECONDS", 0.5)
    user = fresh("alice")
    session = served.sessions.session("a", "s", user)
    await session.ask("hi")
    await served.stop_worker()
    receipt = await served.sessions.forget(user, agent_id="a", session_id="s")
    assert (receipt.sessions, receipt.ended, receipt.deleted) == ((session.key,), 1, 1)


async def test_nothing_is_begun_while_the_archive_is_down(served: Served) -> None:
    user = fresh("alice")
    session = served.sessions.session("a", "s", user)
    await session.ask("hi")
    down = Archive.at("postgresql://127.0.0.1:1/nowhere", create=False)
    sessions = Sessions(served.client, served.settings.task_queue, down)
    with pytest.raises(ArchiveUnavailable):
        await sessions.forget(user, agent_id="a", session_id="s")
    assert (await session.view()).turns == 1
    await down.aclose()


async def test_what_only_the_archive_knows_is_forgotten_too(served: Served) -> None:
    key = SessionKey("a", "s", fresh("alice"))
    archive = await archive_of(served)
    await archive.append(key.workflow_id, [said(1), said(2)])
    receipt = await served.sessions.forget(key.user_id)
    assert (receipt.sessions, receipt.entries, receipt.deleted) == ((key,), 2, 0)
    assert await archive.entries(key.workflow_id) == ()
    await archive.aclose()


# ---- the command line -------------------------------------------------------------------------------------------


async def test_the_command_asks_before_it_forgets(served: Served) -> None:
    user = fresh("alice")
    session = served.sessions.session("a", "s", user)
    await session.ask("hi")
    refused = await inside("forget", "-u", user, "-a", "a", "-s", "s", env=served.env)
    assert refused.code == 2
    assert "--yes" in refused.err
    assert (await session.view()).turns == 1
    done = await inside("forget", "-u", user, "-a", "a", "-s", "s", "--yes", "--json", env=served.env)
    assert (done.code, done.json()["ended"]) == (0, 1), done.err
    assert done.json()["sessions"] == [{"agent_id": "a", "session_id": "s", "user_id": user}]


async def test_the_command_says_when_nothing_is_kept(served: Served) -> None:
    ended = await inside("forget", "-u", fresh("nobody"), "--yes", env=served.env)
    assert (ended.code, ended.out) == (0, "nothing is kept of it\n"), ended.err


async def test_the_command_reads_no_name_from_the_environment(served: Served) -> None:
    ended = await inside("forget", "--yes", env=served.env | {"PERDURE_USER": "alice"})
    assert ended.code == 2
    assert "--anonymous" in ended.err


async def test_the_anonymous_user_is_said_on_the_command_line(served: Served) -> None:
    name = fresh()
    session = served.sessions.session("a", name)
    await session.ask("hi")
    ended = await inside("forget", "--anonymous", "-a", "a", "-s", name, "--yes", env=served.env)
    assert ended.code == 0, ended.err
    assert "1 session, 1 of them ended" in ended.out


async def test_two_who_forget_at_once_do_no_harm(served: Served) -> None:
    user = fresh("alice")
    session = served.sessions.session("a", "s", user)
    await session.ask("look")
    receipts = await asyncio.gather(*(served.sessions.forget(user, agent_id="a", session_id="s") for _ in range(2)))
    assert all(receipt.held == 0 for receipt in receipts)
    archive = await archive_of(served)
    assert await archive.sessions(user_id=user) == ()
    await archive.aclose()
