"""What is too large for history: where it can go when there is a storage, and what is said when there is none (B60)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.service import RPCError

from perdure import Agent, AgentState, App, Message, ModelRequest, Role, SessionHandle, ToolCall, tool
from perdure.changes import SetContext
from perdure.errors import ContextTooLarge
from perdure.testing import ReplyLike, ScriptedModel
from tests.sessions.test_hostile import send
from tests.support.world import failed_tasks, fresh, until, world

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from worker.embedded import EmbeddedServer

HUGE = "x" * 3_000_000
JUST_BELOW_TEMPORALS_BOUND = "x" * 1_990_000


@tool(external=True)
def outside() -> str:
    """Be done elsewhere."""
    raise NotImplementedError


def answer(request: ModelRequest) -> ReplyLike:
    last = request.messages[-1]
    if last.text == "outside" and not last.results:
        return ToolCall("outside")
    return f"{sum(len(message.text) for message in request.messages)} in {len(request.messages)}"


def conversation(size: int) -> tuple[Message, ...]:
    roles = (Role.USER, Role.ASSISTANT)
    return tuple(Message(id=f"m-{n}", role=roles[n % 2], content="x" * 100_000) for n in range(size // 100_000))


def app() -> App:
    return App([Agent("a", ScriptedModel(answer), tools=[outside])])


async def suspended(session: SessionHandle) -> str:
    """Have a turn wait for a result from outside; return the request's id."""
    await session.ask("outside", timeout=30)
    (request,) = (await session.view()).interactions
    return request.request_id


async def call_id(session: SessionHandle) -> str:
    (request,) = (await session.view()).interactions
    return request.calls[0].call_id


ENTRIES: dict[str, Callable[[SessionHandle], Awaitable[object]]] = {
    "submit": lambda session: session.submit(HUGE),
    "ask": lambda session: session.ask(HUGE),
    "steer": lambda session: session.steer(HUGE),
    "inject": lambda session: session.inject(HUGE),
    "clear": lambda session: session.change_state(lambda _: [SetContext(conversation(3_000_000))], reason="a test"),
}


@pytest.mark.parametrize("entry", ENTRIES)
async def test_a_command_that_is_too_large_is_a_typed_error_and_the_session_lives(
    entry: str, server: EmbeddedServer
) -> None:
    async with world(server, app(), storage=None) as served:
        session = served.sessions.session("a", fresh())
        await session.ask("hello")
        with pytest.raises(ContextTooLarge, match="PERDURE_STORAGE"):
            await ENTRIES[entry](session)
        assert (await session.ask("still there?")).output.endswith("in 3")
        assert await failed_tasks(session) == 0


async def test_a_result_from_outside_that_is_too_large_is_a_typed_error_and_the_turn_can_be_answered(
    server: EmbeddedServer,
) -> None:
    async with world(server, app(), storage=None) as served:
        session = served.sessions.session("a", fresh())
        request_id = await suspended(session)
        with pytest.raises(ContextTooLarge, match="PERDURE_STORAGE"):
            await session.respond(request_id, result={await call_id(session): HUGE})
        receipt = await session.respond(request_id, result={await call_id(session): "small"})
        assert (await session.result(receipt.turn_id, timeout=30)).output.endswith("in 3")
        assert await failed_tasks(session) == 0


async def test_an_imported_state_that_is_too_large_is_a_typed_error_and_makes_no_session(
    server: EmbeddedServer,
) -> None:
    async with world(server, app(), storage=None) as served:
        name = fresh()
        state = AgentState(session_id="", context=conversation(3_000_000))
        with pytest.raises(ContextTooLarge, match="PERDURE_STORAGE"):
            await served.sessions.create("a", name, state=state)
        assert (await served.sessions.session("a", name).ask("hello")).output.endswith("in 1")


async def test_a_signal_of_any_size_is_refused_by_the_server_or_heard_and_the_session_lives(
    server: EmbeddedServer,
) -> None:
    """The server itself bounds signals at 2 MB; what comes through just below that is a turn like any other."""
    async with world(server, app(), storage=None) as served:
        session = served.sessions.session("a", fresh())
        await session.ask("hello")
        json = {"encoding": b"json/plain"}
        with pytest.raises(RPCError):
            await send(session, "submit_turn", [Payload(metadata=json, data=f'{{"input": "{HUGE}"}}'.encode())])
        data = f'{{"input": "{JUST_BELOW_TEMPORALS_BOUND}", "turn_id": "large"}}'.encode()
        await send(session, "submit_turn", [Payload(metadata=json, data=data)])

        async def heard() -> bool:
            view = await session.view()
            return view.turns == 2 or view.rejected_count == 1

        await until(heard)
        assert (await session.ask("still there?", timeout=30)).output
        assert await failed_tasks(session) == 0


async def test_a_context_of_ten_megabytes_and_a_message_of_three_work_with_external_storage(
    server: EmbeddedServer,
) -> None:
    """B60: imported, asked on two workers, rewritten, and given from outside."""
    async with world(server, app(), workers=2, max_cached_sessions=1) as served:
        state = AgentState(session_id="", context=conversation(10_000_000))
        session = await served.sessions.create("a", fresh(), state=state)
        assert (await session.ask(HUGE, timeout=60)).output == "13000000 in 101"
        assert len((await session.state()).context) == 102
        request_id = await suspended(session)
        receipt = await session.respond(request_id, result={await call_id(session): HUGE})
        assert (await session.result(receipt.turn_id, timeout=60)).output
        await session.change_state(lambda _: [SetContext(conversation(3_000_000))], reason="a test")
        await session.inject(HUGE)
        assert (await session.ask("hello", timeout=60)).output == "6000005 in 32"
        assert await failed_tasks(session) == 0
        assert (await session.view()).history_size < 1_000_000
