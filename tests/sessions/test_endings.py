"""How turns and sessions end before their time: interrupts, closing, cancelling, fresh runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from temporalio.client import WorkflowExecutionStatus

from perdure import (
    Agent,
    App,
    Delta,
    Effect,
    ModelRequest,
    ModelResponse,
    SessionHandle,
    SessionStatus,
    ToolCall,
    ToolContext,
    TurnStatus,
    tool,
)
from perdure.errors import SessionClosed, SessionNotFound, StaleRun, TurnConflict
from perdure.messages import flaws
from perdure.testing import ReplyLike, ScriptedModel, serve
from tests.support.stage import Prop, Stage
from tests.support.world import AT_ONCE, asked, events, fresh, until, world

if TYPE_CHECKING:
    from worker.embedded import EmbeddedServer


class Streams:
    """A model that streams `half`, and never ends."""

    def __init__(self) -> None:
        """Begin with nothing said."""
        self.said = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def complete(self, request: ModelRequest, emit: object) -> object:
        """Say half of an answer, or a whole one to what begins with `quick`."""
        if request.messages[-1].text.startswith("quick"):
            return ModelResponse("quick answer")
        await emit(Delta("half"))  # type: ignore[operator]
        self.said.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        raise AssertionError


async def test_an_interrupted_model_call_is_cancelled_and_what_it_said_is_kept_and_marked(
    server: EmbeddedServer,
) -> None:
    """B23, B31."""
    model = Streams()
    async with world(server, App([Agent("a", model)])) as served:  # type: ignore[arg-type]
        session = served.sessions.session("a", fresh())
        receipt = await session.submit("tell me a long story")
        await asyncio.wait_for(model.said.wait(), 30)
        interrupted = await session.interrupt(run_id=receipt.run_id, message="stop", actor="alice")
        assert (interrupted.interrupted, interrupted.turn_id) == (True, receipt.turn_id)
        result = await session.result(receipt.turn_id, timeout=30)
        assert (result.status, result.output) == (TurnStatus.INTERRUPTED, "half")
        await asyncio.wait_for(model.cancelled.wait(), 30)
        context = (await session.state()).context
        assert [(message.role, message.text) for message in context] == [
            ("user", "tell me a long story"),
            ("assistant", "half"),
            ("user", "stop"),
        ]
        assert context[1].interrupted
        assert (await session.ask("quick: what now?")).output == "quick answer"


async def test_an_interrupt_that_keeps_nothing_takes_effect_at_once(server: EmbeddedServer) -> None:
    """B23 with `discard`."""
    model = Streams()
    async with world(server, App([Agent("a", model)])) as served:  # type: ignore[arg-type]
        session = served.sessions.session("a", fresh())
        receipt = await session.submit("tell me a long story")
        await asyncio.wait_for(model.said.wait(), 30)
        await session.interrupt(partial="discard")
        result = await session.result(receipt.turn_id, timeout=30)
        assert (result.status, result.output) == (TurnStatus.INTERRUPTED, "(interrupted)")
        await asyncio.wait_for(model.cancelled.wait(), 30)


async def test_an_interrupt_of_an_idle_session_changes_nothing(server: EmbeddedServer) -> None:
    """B26, B27."""
    async with world(server, App([Agent("a", ScriptedModel(lambda _: "yes"))])) as served:
        session = served.sessions.session("a", fresh())
        await session.ask("hello")
        before = await session.state()
        assert (await session.interrupt()).interrupted is False
        with pytest.raises(StaleRun, match="nothing runs"):
            await session.interrupt(run_id="an-old-run")
        assert await session.state() == before
        assert (await session.ask("next")).status is TurnStatus.COMPLETED


async def test_an_interrupted_read_tool_is_cancelled_and_its_call_has_a_result(server: EmbeddedServer) -> None:
    """B25: read."""
    started, cancelled = asyncio.Event(), asyncio.Event()

    @tool(effect=Effect.READ)
    async def search() -> str:
        """Search for ever."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "never"

    async with world(server, App([Agent("a", ScriptedModel([ToolCall("search")]), tools=[search])])) as served:
        session = served.sessions.session("a", fresh())
        receipt = await session.submit("search")
        await asyncio.wait_for(started.wait(), 30)
        await session.interrupt()
        assert (await session.result(receipt.turn_id, timeout=30)).status is TurnStatus.INTERRUPTED
        await asyncio.wait_for(cancelled.wait(), 30)
        context = (await session.state()).context
        assert list(flaws(context)) == []
        assert context[2].results[0].state == "interrupted"


async def test_an_interrupted_tool_with_an_effect_keeps_its_real_result_or_is_uncertain_until_it_has_one(
    server: EmbeddedServer,
) -> None:
    """B25: once."""
    started, finish = asyncio.Event(), asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay slowly."""
        started.set()
        await finish.wait()
        return "paid"

    async with world(server, App([Agent("a", ScriptedModel([ToolCall("pay")]), tools=[pay])])) as served:
        session = served.sessions.session("a", fresh())
        receipt = await session.submit("pay")
        await asyncio.wait_for(started.wait(), 30)
        await session.interrupt()
        assert (await session.result(receipt.turn_id, timeout=30)).status is TurnStatus.INTERRUPTED
        (operation,) = (await session.view()).uncertain
        assert operation.tool == "pay"
        finish.set()

        async def settled() -> bool:
            return not (await session.view()).uncertain

        await until(settled)
        late = [entry async for entry in session.transcript() if entry.data.get("late")]
        assert [entry.data["operation_id"] for entry in late] == [operation.operation_id]
        assert list(flaws((await session.state()).context)) == []


async def test_closing_cancels_what_runs_and_waits_and_results_stay_readable(server: EmbeddedServer) -> None:
    """B20, but for the archive."""
    model = Streams()
    async with world(server, App([Agent("a", model)])) as served:  # type: ignore[arg-type]
        session = served.sessions.session("a", fresh())
        assert (await session.ask("quick", turn_id="done")).output == "quick answer"
        await session.submit("long", turn_id="running")
        await session.submit("later", turn_id="waiting")
        await asyncio.wait_for(model.said.wait(), 30)
        receipt = await session.close("enough")
        assert receipt.cancelled == ("running", "waiting")
        for turn_id, status in (("done", "completed"), ("running", "cancelled"), ("waiting", "cancelled")):
            assert (await session.result(turn_id)).status == status
        assert (await session.view()).status is SessionStatus.CLOSED
        assert list(flaws((await session.state()).context)) == []
        assert (await session.ask("quick: open again")).output == "quick answer"


@pytest.mark.parametrize("how", ["close", "cancel"])
async def test_a_closed_session_ends_when_its_last_effect_has_settled(server: EmbeddedServer, how: str) -> None:
    """B20, B25: the receipt does not wait for it, the tool is not stopped, its result is not lost; then it can open."""
    pay = Prop(Effect.ONCE, "pay")
    model = ScriptedModel([ToolCall("pay"), "hello"])
    async with world(server, App([Agent("a", model, tools=[pay.tool()])])) as served:
        session = served.sessions.session("a", fresh())
        await session.submit("pay", turn_id="t-1")
        await asyncio.wait_for(pay.begun.wait(), 30)
        workflow = served.client.get_workflow_handle(session.workflow_id)
        if how == "close":
            assert (await session.close()).cancelled == ("t-1",)
        else:
            await workflow.cancel()
            assert (await session.result("t-1", timeout=30)).status is TurnStatus.CANCELLED
        view = await session.view()
        assert (view.status, [each.tool for each in view.uncertain]) == (SessionStatus.CLOSED, ["pay"])
        run_id = (await workflow.describe()).run_id
        opening = asyncio.create_task(session.ask("hello"))
        pay.finish.set()
        assert (await asyncio.wait_for(opening, 60)).output == "hello"
        assert not pay.cancelled.is_set()
        assert (await session.view()).uncertain == ()
        if how == "cancel":  # one that was only closed opens again where it is
            ended = served.client.get_workflow_handle(session.workflow_id, run_id=run_id)
            assert (await ended.describe()).status is WorkflowExecutionStatus.CANCELED
            assert (await ended.query("session_view"))["uncertain"] == []


async def test_cancelling_the_workflow_in_temporal_settles_everything_and_ends_as_cancelled(
    server: EmbeddedServer,
) -> None:
    """An operator's button is never swallowed."""
    model = Streams()
    async with world(server, App([Agent("a", model)])) as served:  # type: ignore[arg-type]
        session = served.sessions.session("a", fresh())
        await session.submit("long", turn_id="running")
        await asyncio.wait_for(model.said.wait(), 30)
        workflow = served.client.get_workflow_handle(session.workflow_id)
        await workflow.cancel()

        async def ended() -> bool:
            return (await workflow.describe()).status is WorkflowExecutionStatus.CANCELED

        await until(ended)
        assert (await session.turn("running")).status is TurnStatus.CANCELLED


async def test_a_turn_goes_on_after_a_new_run_between_two_of_its_steps() -> None:
    """B58, as far as a running turn is concerned; B61 in small: the transcript is whole."""

    @tool(effect=Effect.READ)
    def look(number: int) -> str:
        """Look."""
        return f"seen {number}"

    def answer(request: ModelRequest) -> ReplyLike:
        return ToolCall("look", {"number": request.step}) if request.step < 12 else "done"

    app = App([Agent("a", ScriptedModel(answer), tools=[look])])
    async with serve(app, dynamic_config=AT_ONCE | {"limit.historyCount.suggestContinueAsNew": 20}) as served:
        session = served.sessions.session("a", fresh())
        result = await session.ask("look twelve times", timeout=60)
        assert (result.status, result.output, result.steps) == (TurnStatus.COMPLETED, "done", 12)
        runs = [run async for run in served.client.list_workflows(f"WorkflowId = '{session.workflow_id}'")]
        assert len(runs) > 3
        entries = [entry async for entry in session.transcript()]
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        assert sum(entry.kind == "tool_result" for entry in entries) == 11
        assert list(flaws((await session.state()).context)) == []
        assert await events(session)


async def test_the_late_result_of_an_uncertain_operation_is_not_lost_to_a_new_run() -> None:
    """B25 and B58: a new run waits for what can still make an operation certain."""
    started, finish = asyncio.Event(), asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay slowly."""
        started.set()
        await finish.wait()
        return "paid"

    def answer(request: ModelRequest) -> ReplyLike:
        return ToolCall("pay") if request.messages[-1].text == "pay" else "fine"

    app = App([Agent("a", ScriptedModel(answer), tools=[pay])])
    async with serve(app, dynamic_config=AT_ONCE | {"limit.historyCount.suggestContinueAsNew": 30}) as served:
        session = served.sessions.session("a", fresh())
        await session.submit("pay", turn_id="t")
        await asyncio.wait_for(started.wait(), 30)
        await session.interrupt()
        await session.result("t", timeout=30)
        for number in range(8):
            await session.ask(f"meanwhile {number}")
        assert (await session.view()).uncertain
        finish.set()

        async def settled() -> bool:
            return not (await session.view()).uncertain

        await until(settled)
        await session.ask("after it")
        runs = [run async for run in served.client.list_workflows(f"WorkflowId = '{session.workflow_id}'")]
        assert len(runs) > 1


async def test_a_late_retry_does_not_open_a_closed_session_to_do_it_all_again(server: EmbeddedServer) -> None:
    """B13, after the session was closed; and a new input under an old id is still a conflict."""
    paid: list[str] = []

    @tool
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        paid.append(ctx.operation_id)
        return "paid"

    def answer(request: ModelRequest) -> ReplyLike:
        return "done" if request.messages[-1].results else ToolCall("pay")

    async with world(server, App([Agent("a", ScriptedModel(answer), tools=[pay])])) as served:
        session = served.sessions.session("a", fresh())
        first = await session.ask("pay", turn_id="m-1")
        await session.close()
        assert await session.ask("pay", turn_id="m-1") == first
        again = await session.submit("pay", turn_id="m-1")
        assert (again.run_id, again.disposition) == (first.run_id, "settled")
        with pytest.raises(TurnConflict):
            await session.submit("pay more", turn_id="m-1")
        await session.ask("pay", turn_id="m-2")
        assert len(paid) == len(set(paid)) == 2


async def test_two_interrupts_of_one_run_are_both_heard(server: EmbeddedServer) -> None:
    """B31: nobody's words are lost."""
    started, finish = asyncio.Event(), asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay slowly."""
        started.set()
        await finish.wait()
        return "paid"

    async with world(server, App([Agent("a", ScriptedModel([ToolCall("pay")]), tools=[pay])])) as served:
        session = served.sessions.session("a", fresh())
        receipt = await session.submit("pay")
        await asyncio.wait_for(started.wait(), 30)
        first = asyncio.create_task(session.interrupt(message="stop"))
        await until(lambda: asked(session, 1))
        second = asyncio.create_task(session.interrupt(message="I said stop"))
        await until(lambda: asked(session, 2))
        finish.set()
        assert (await first).interrupted
        assert (await second).interrupted
        await session.result(receipt.turn_id, timeout=30)
        assert (await session.state()).context[-1].text == "stop\nI said stop"


async def test_a_session_that_is_too_large_to_carry_goes_on_in_its_run() -> None:
    """B60 in small: bytes are counted and not characters, and nothing is ended by the server."""
    app = App([Agent("a", ScriptedModel(lambda request: f"{len(request.messages)}"))])
    config = AT_ONCE | {"limit.historyCount.suggestContinueAsNew": 20}
    async with serve(app, dynamic_config=config, storage=None, archive_url=None) as served:
        session = served.sessions.session("a", fresh())
        for number in range(8):
            assert (await session.ask("字" * 100_000, timeout=30)).output == f"{2 * number + 1}"
        assert (await session.view()).turns == 8
        workflow = served.client.get_workflow_handle(session.workflow_id)
        assert (await workflow.describe()).status is WorkflowExecutionStatus.RUNNING


async def test_who_waits_for_a_turn_of_a_terminated_session_is_told(server: EmbeddedServer) -> None:
    """B73: nobody will ever settle it; also for who asks later."""
    stage = Stage()
    async with world(server, App([Agent("a", stage)])) as served:
        session = served.sessions.session("a", fresh())
        await session.submit("go", turn_id="t-1")
        await stage.call(1)
        waiting = asyncio.create_task(session.result("t-1", timeout=60))
        await until(lambda: _waits(session))
        await served.client.get_workflow_handle(session.workflow_id).terminate("an operator")
        with pytest.raises(SessionClosed, match="was ended"):
            await waiting
        with pytest.raises(SessionClosed, match="was ended before turn"):
            await session.result("t-1", timeout=30)


async def _waits(session: SessionHandle) -> bool:
    workflow = session.client.get_workflow_handle(session.workflow_id)
    found = [event async for event in workflow.fetch_history_events()]
    return sum(event.HasField("workflow_execution_update_accepted_event_attributes") for event in found) >= 2


async def test_a_session_that_was_ended_before_any_worker_saw_it_begins_anew(server: EmbeddedServer) -> None:
    """B73: it was none; what is submitted then runs."""
    async with world(server, App([Agent("a", ScriptedModel(["hi"]))]), workers=0) as served:
        session = served.sessions.session("a", fresh())
        handle = await served.client.start_workflow(
            "AgentSession", {}, id=session.workflow_id, task_queue=served.settings.task_queue
        )
        await handle.terminate("an operator")
        await served.start_worker()
        with pytest.raises(SessionNotFound):
            await session.view()
        assert (await session.ask("hello", turn_id="t-1", timeout=30)).output == "hi"
