"""Tools and operations on a real server, with workers that are really killed."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from perdure import (
    Agent,
    App,
    Effect,
    ModelRequest,
    ResultState,
    Role,
    SessionStatus,
    TextBlock,
    ToolCall,
    ToolContext,
    ToolError,
    ToolOutput,
    ToolResultBlock,
    TurnStatus,
    tool,
)
from perdure.messages import flaws
from perdure.testing import ReplyLike, ScriptedModel, Served
from tests.apps.effectful import app
from tests.support.processes import worker_process
from tests.support.world import failed_tasks, fresh, until, world

if TYPE_CHECKING:
    from tests.support.effects import Effects
    from worker.embedded import EmbeddedServer

EFFECTFUL = "tests.apps.effectful:app"


def calling(*calls: ToolCall) -> ScriptedModel:
    """Return a model that makes these calls in its first step, and then repeats the results."""

    def answer(request: ModelRequest) -> ReplyLike:
        last = request.messages[-1]
        if last.role is Role.TOOL:
            return " | ".join(result.text for result in last.results)
        return list(calls)

    return ScriptedModel(answer)


async def results(served: Served, session_id: str) -> tuple[ToolResultBlock, ...]:
    state = await served.sessions.session("a", session_id).state()
    return tuple(result for message in state.context for result in message.results)


async def test_a_killed_workers_idempotent_tool_is_called_again_with_the_same_key(
    server: EmbeddedServer, service: Effects
) -> None:
    """B33: idempotent. Also B5: the session goes on, whole, in a process that never saw it."""
    async with world(server, app, workers=0) as served:
        env = {**served.env, "EFFECTS_URL": service.url}
        session = served.sessions.session("a", fresh(), "alice")
        async with worker_process(EFFECTFUL, env) as first:
            await session.ask("good morning")
            receipt = await session.submit("idempotent")
            await until(lambda: service.called("idempotent"))
            await first.kill()
        service.answers.set()
        async with worker_process(EFFECTFUL, env):
            result = await session.result(receipt.turn_id, timeout=60)
            state = await session.state()
        assert result.status is TurnStatus.COMPLETED
        assert service.calls["idempotent"] == 2
        assert len(set(service.keys["idempotent"])) == 1
        assert [message.text for message in state.context][:2] == ["good morning", "heard good morning"]


async def test_a_killed_workers_once_tool_is_not_called_again_and_its_operation_is_uncertain(
    server: EmbeddedServer, service: Effects
) -> None:
    """B33: once."""
    async with world(server, app, workers=0) as served:
        env = {**served.env, "EFFECTS_URL": service.url}
        session = served.sessions.session("a", fresh(), "alice")
        async with worker_process(EFFECTFUL, env) as first:
            receipt = await session.submit("once")
            await until(lambda: service.called("once"))
            await first.kill()
        service.answers.set()
        async with worker_process(EFFECTFUL, env):
            result = await session.result(receipt.turn_id, timeout=60)
            view = await session.view()
        assert result.status is TurnStatus.SUSPENDED
        assert service.calls["once"] == 1
        assert [(operation.tool, operation.operation_id) for operation in view.uncertain] == [
            ("once", service.keys["once"][0])
        ]
        assert view.status is SessionStatus.NEEDS_RECONCILIATION
        assert view.interactions[0].kind == "reconciliation"


async def test_a_killed_workers_read_tool_is_called_again(server: EmbeddedServer, service: Effects) -> None:
    """B33: read."""
    async with world(server, app, workers=0) as served:
        env = {**served.env, "EFFECTS_URL": service.url}
        session = served.sessions.session("a", fresh(), "alice")
        async with worker_process(EFFECTFUL, env) as first:
            receipt = await session.submit("read")
            await until(lambda: service.called("read"))
            await first.kill()
        service.answers.set()
        async with worker_process(EFFECTFUL, env):
            result = await session.result(receipt.turn_id, timeout=60)
        assert (result.status, service.calls["read"]) == (TurnStatus.COMPLETED, 2)


async def test_equal_calls_of_one_step_have_different_ids_and_attempts_of_one_call_the_same(
    server: EmbeddedServer,
) -> None:
    """B35."""
    seen: list[tuple[str, int]] = []

    @tool(effect=Effect.IDEMPOTENT)
    async def flaky(ctx: ToolContext) -> str:
        """Fail once."""
        seen.append((ctx.operation_id, ctx.attempt))
        if ctx.attempt == 1:
            msg = "not yet"
            raise ToolError(msg, retryable=True)
        return "done"

    model = calling(ToolCall("flaky"), ToolCall("flaky"))
    async with world(server, App([Agent("a", model, tools=[flaky])])) as served:
        session = served.sessions.session("a", fresh())
        assert (await session.ask("go")).output == "done | done"
        assert sorted(attempt for _, attempt in seen) == [1, 1, 2, 2]
        assert len({operation for operation, _ in seen}) == 2


async def test_calls_of_one_step_run_side_by_side_and_results_stand_in_the_order_of_the_calls(
    server: EmbeddedServer,
) -> None:
    """B36."""
    meeting = asyncio.Barrier(3)

    @tool(effect=Effect.READ)
    async def meet(name: str) -> str:
        """Answer only when all are there."""
        await meeting.wait()
        return name

    model = calling(*(ToolCall("meet", {"name": name}) for name in ("one", "two", "three")))
    async with world(server, App([Agent("a", model, tools=[meet])])) as served:
        assert (await served.sessions.session("a", fresh()).ask("go", timeout=30)).output == "one | two | three"


async def test_a_call_that_cannot_be_made_is_an_error_result_and_the_turn_goes_on(server: EmbeddedServer) -> None:
    """B37."""

    @tool(effect=Effect.READ)
    def add(left: int, right: int) -> int:
        """Add."""
        return left + right

    calls = (
        ToolCall("add", {"left": 1, "right": 2}),
        ToolCall("add", {"left": "many"}),
        ToolCall("subtract", {}),
        ToolCall("add", {"left": float("nan"), "right": 1}),
    )
    async with world(server, App([Agent("a", calling(*calls), tools=[add])])) as served:
        session_id = fresh()
        turn = await served.sessions.session("a", session_id).ask("go")
        assert turn.status is TurnStatus.COMPLETED
        good, misfit, unknown, not_json = await results(served, session_id)
        assert (good.state, good.text) == (ResultState.SUCCESS, "3")
        assert misfit.state is ResultState.ERROR
        assert "right: Field required" in misfit.text
        assert "there is no tool 'subtract'; there are: add" in unknown.text
        assert "nan is not a JSON number" in not_json.text


async def test_a_tool_that_raises_is_an_error_result(server: EmbeddedServer) -> None:
    """B38: raises."""

    @tool
    async def broken() -> None:
        """Break."""
        msg = "no such table"
        raise LookupError(msg)

    async with world(server, App([Agent("a", calling(ToolCall("broken")), tools=[broken])])) as served:
        session_id = fresh()
        assert (await served.sessions.session("a", session_id).ask("go")).status is TurnStatus.COMPLETED
        (result,) = await results(served, session_id)
        assert (result.state, result.text) == (ResultState.ERROR, "broken failed: LookupError: no such table")


async def test_a_once_tool_that_hangs_is_uncertain_and_a_read_tool_that_hangs_is_an_error(
    server: EmbeddedServer,
) -> None:
    """B38: hangs."""

    @tool(effect=Effect.READ, timeout=timedelta(milliseconds=300), attempts=2)
    async def slow_read() -> None:
        """Never answer."""
        await asyncio.Event().wait()

    @tool(timeout=timedelta(milliseconds=300))
    async def slow_once() -> None:
        """Never answer."""
        await asyncio.Event().wait()

    agents = [
        Agent("a", calling(ToolCall("slow_read")), tools=[slow_read]),
        Agent("b", calling(ToolCall("slow_once")), tools=[slow_once]),
    ]
    async with world(server, App(agents)) as served:
        session_id = fresh()
        assert (await served.sessions.session("a", session_id).ask("go", timeout=30)).status is TurnStatus.COMPLETED
        (result,) = await results(served, session_id)
        assert result.text == "slow_read did not answer within 0.3 s (after 2 attempts)"
        lost = served.sessions.session("b", session_id)
        assert (await lost.ask("go", timeout=30)).status is TurnStatus.SUSPENDED
        (operation,) = (await lost.view()).uncertain
        assert operation.tool == "slow_once"


async def test_a_connection_that_breaks_after_the_request_leaves_a_once_tool_uncertain(server: EmbeddedServer) -> None:
    """B33, by the network: the service may have taken the effect."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    listener = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]

    @tool
    async def pay(ctx: ToolContext) -> None:
        """Pay."""
        await ctx.http.post(f"http://127.0.0.1:{port}/pay")

    @tool
    async def pay_nobody(ctx: ToolContext) -> None:
        """Pay where nobody listens."""
        await ctx.http.post("http://127.0.0.1:1/pay")

    agents = [
        Agent("a", calling(ToolCall("pay")), tools=[pay]),
        Agent("b", calling(ToolCall("pay_nobody")), tools=[pay_nobody]),
    ]
    async with listener, world(server, App(agents)) as served:
        name = fresh()
        assert (await served.sessions.session("a", name).ask("go", timeout=30)).status is TurnStatus.SUSPENDED
        definite = await served.sessions.session("b", name).ask("go", timeout=30)
        assert definite.status is TurnStatus.COMPLETED
        assert "ConnectError" in definite.output


async def test_a_result_of_five_megabytes_is_shortened_in_the_conversation_and_kept_outside(
    server: EmbeddedServer,
) -> None:
    """B38: returns 5 MB; B77: megabytes in one line."""
    big = "x" * 5_000_000

    @tool(effect=Effect.READ)
    def export() -> str:
        """Return much."""
        return big

    async with world(server, App([Agent("a", calling(ToolCall("export")), tools=[export])])) as served:
        session_id = fresh()
        session = served.sessions.session("a", session_id)
        assert (await session.ask("go", timeout=30)).status is TurnStatus.COMPLETED
        (result,) = await results(served, session_id)
        assert "4981568 of 5000000 characters left out here" in result.text
        assert len(result.text) < 20_000
        stored = dict(result.metadata)["offloaded"]
        assert isinstance(stored, dict)
        assert isinstance(served.settings.storage, Path)
        kept = served.settings.storage / "results" / str(stored["stored"])
        assert kept.read_text() == big
        assert await failed_tasks(session) == 0


async def test_a_long_tool_that_never_beats_is_not_killed_before_its_own_time_out(server: EmbeddedServer) -> None:
    """B81: sleeping and busy, in plain functions, for several heartbeats' time."""

    @tool(effect=Effect.ONCE)
    def sleepy() -> str:
        """Sleep."""
        threading.Event().wait(3)
        return "slept"

    @tool(effect=Effect.ONCE)
    def busy() -> str:
        """Compute."""
        end = time.monotonic() + 3
        while time.monotonic() < end:
            sum(range(1000))
        return "computed"

    app = App([Agent("a", calling(ToolCall("sleepy"), ToolCall("busy")), tools=[sleepy, busy])])
    async with world(server, app, heartbeat_timeout=1.5) as served:
        assert (await served.sessions.session("a", fresh()).ask("go", timeout=60)).output == "slept | computed"


async def test_results_of_every_kind_reach_the_model(server: EmbeddedServer) -> None:
    """B77: whatever tools return can be kept and sent on."""

    @tool(effect=Effect.READ)
    def odd(kind: str) -> object:
        """Return something odd."""
        return {
            "surrogate": "a\ud800b",
            "nul": "a\0b",
            "nothing": None,
            "nested": {"deep": ["\udfff", 1.5, None]},
            "blocks": ToolOutput([TextBlock("one"), TextBlock("two")]),
            "set": object(),
        }[kind]

    kinds = ("surrogate", "nul", "nothing", "nested", "blocks", "set")
    model = calling(*(ToolCall("odd", {"kind": kind}) for kind in kinds))
    async with world(server, App([Agent("a", model, tools=[odd])])) as served:
        session_id = fresh()
        session = served.sessions.session("a", session_id)
        assert (await session.ask("go \ud800 \0")).status is TurnStatus.COMPLETED
        texts = [result.text for result in await results(served, session_id)]
        assert texts[:2] == ["a\ufffdb", "a\ufffdb"]
        assert texts[2] == "null"
        assert json.loads(texts[3]) == {"deep": ["\ufffd", 1.5, None]}
        assert texts[4] == "one\ntwo"
        assert "odd ran, but its result can't be shown" in texts[5]
        assert (await session.ask("and now?")).status is TurnStatus.COMPLETED
        assert list(flaws((await session.state()).context)) == []


async def test_the_context_tells_a_tool_who_and_where_it_is(server: EmbeddedServer, service: Effects) -> None:
    """B66 and B67: run, user and attributes reach the tool; attributes are in no prompt and not in the state."""
    seen: list[ToolContext] = []
    service.answers.set()

    @tool(effect=Effect.READ)
    async def who(ctx: ToolContext) -> str:
        """Say who asks."""
        seen.append(ctx)
        await ctx.http.post(f"{service.url}/who")
        state = await ctx.state()
        return f"{ctx.user_id} of {state.session_id}"

    model = calling(ToolCall("who"))
    async with world(server, App([Agent("a", model, tools=[who])])) as served:
        session_id = fresh()
        session = served.sessions.session("a", session_id, "alice")
        result = await session.ask("go", run_id="run-7", attributes={"tenant": "secret-tenant"})
        assert result.output == f"alice of {session_id}"
        (ctx,) = seen
        assert (ctx.run_id, ctx.turn_id, ctx.attributes["tenant"]) == ("run-7", result.turn_id, "secret-tenant")
        assert service.keys["who"] == [ctx.operation_id]
        assert "secret-tenant" not in (await session.state()).to_json()
        for request in model.requests:
            assert "secret-tenant" not in request.instructions + repr(request.messages)
            assert request.attributes["tenant"] == "secret-tenant"
        entries = [entry async for entry in session.transcript()]
        assert {entry.run_id for entry in entries if entry.kind != "input"} == {"run-7"}


async def test_a_worker_writes_the_run_on_each_line_of_its_log(server: EmbeddedServer, service: Effects) -> None:
    """B66: log lines of a run, those of the tool's own logger included."""
    service.answers.set()
    async with world(server, app, workers=0) as served:
        session = served.sessions.session("a", fresh(), "alice")
        env = {**served.env, "EFFECTS_URL": service.url, "PERDURE_LOG_LEVEL": "info"}
        async with worker_process(EFFECTFUL, env) as worker:
            await session.ask("log", run_id="run-log")
            assert await worker.stop() == 0
        lines = [json.loads(line) for line in worker.lines if b"heard by the tool" in line]
        assert [line["run_id"] for line in lines] == ["run-log"]
        assert lines[0]["session_id"] == session.key.session_id


async def test_an_http_error_status_is_the_tools_to_judge(server: EmbeddedServer) -> None:
    """A tool that raises for a status has a definite error: the service answered."""

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        request = httpx.Request("GET", "http://localhost/")
        httpx.Response(403, request=request).raise_for_status()
        return "unreachable"

    async with world(server, App([Agent("a", calling(ToolCall("ask")), tools=[ask])])) as served:
        result = await served.sessions.session("a", fresh()).ask("go")
        assert "403 Forbidden" in result.output


class Unprintable(Exception):
    """An error that can't say what it is."""

    def __str__(self) -> str:
        """Fail."""
        raise AttributeError


ODD_ERRORS = {
    "SystemExit": SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "GeneratorExit": GeneratorExit(),
    "CancelledError": asyncio.CancelledError(),
    "BaseExceptionGroup": BaseExceptionGroup("several", [KeyboardInterrupt()]),
    "Unprintable": Unprintable(),
}


@pytest.mark.parametrize("name", sorted(ODD_ERRORS))
async def test_whatever_a_tool_raises_is_an_error_result_and_the_worker_lives(
    server: EmbeddedServer, name: str
) -> None:
    """B38: raises, of the odd kind; in a coroutine and in a thread."""

    @tool(effect=Effect.IDEMPOTENT, attempts=2)
    async def odd() -> None:
        """Raise."""
        raise ODD_ERRORS[name]

    @tool
    def odd_thread() -> None:
        """Raise."""
        raise ODD_ERRORS[name]

    model = calling(ToolCall("odd"), ToolCall("odd_thread"))
    async with world(server, App([Agent("a", model, tools=[odd, odd_thread])])) as served:
        session_id = fresh()
        session = served.sessions.session("a", session_id)
        assert (await session.ask("go", timeout=30)).status is TurnStatus.COMPLETED
        for result in await results(served, session_id):
            assert (result.state, name in result.text) == (ResultState.ERROR, True)


async def test_a_result_that_cannot_be_shown_does_not_run_the_tool_again(server: EmbeddedServer) -> None:
    """B38: the effect has happened, whatever is wrong with what the tool returned."""
    runs: list[str] = []

    @tool(effect=Effect.IDEMPOTENT)
    async def odd(kind: str) -> object:
        """Return what has no form."""
        runs.append(kind)
        return {"none": ToolOutput(None), "wrong": ToolOutput(["text"]), "keys": {(1, 2): "x", object(): 1}}[kind]  # type: ignore[arg-type]  # on purpose

    kinds = ("none", "wrong", "keys")
    model = calling(*(ToolCall("odd", {"kind": kind}) for kind in kinds))
    async with world(server, App([Agent("a", model, tools=[odd])])) as served:
        session_id = fresh()
        assert (await served.sessions.session("a", session_id).ask("go", timeout=30)).status is TurnStatus.COMPLETED
        assert sorted(runs) == sorted(kinds)
        assert all("odd ran, but" in result.text for result in await results(served, session_id))


async def test_a_step_of_a_thousand_calls_fails_the_turn_and_not_the_session(server: EmbeddedServer) -> None:
    """B75, in number: what a model asks for is not trusted."""

    @tool(effect=Effect.READ)
    def look() -> str:
        """Look."""
        return "seen"

    replies = iter([[ToolCall("look")] * 1200, "fine"])
    model = ScriptedModel(lambda _: next(replies))
    async with world(server, App([Agent("a", model, tools=[look], model_attempts=1)])) as served:
        session = served.sessions.session("a", fresh())
        failed = await session.ask("go", timeout=30)
        assert failed.error is not None
        assert "1200 tool calls" in failed.error.message
        assert (await session.ask("and now?")).output == "fine"
