"""Interrupts at each place where the loop of steps waits, on the real server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from temporalio.api.enums.v1 import EventType

from perdure import (
    Agent,
    App,
    Delta,
    Effect,
    ModelError,
    ModelRequest,
    ModelResponse,
    OpenAIChatModel,
    ResultState,
    SessionHandle,
    ToolCall,
    ToolContext,
    ToolError,
    TurnStatus,
    tool,
)
from perdure.errors import StaleRun, UncertainOperations
from perdure.messages import flaws
from perdure.testing import ReplyLike, ScriptedModel
from tests.apps.effectful import app as effectful
from tests.providers.dialects import chunk, events as events_of
from tests.providers.raw_server import Reply, chunked, head, serving
from tests.support.processes import worker_process
from tests.support.stage import Prop, Stage
from tests.support.world import events, failed_tasks, fresh, nothing_pending, until, world

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from perdure import Tool
    from perdure.models import Emit
    from tests.support.effects import Effects
    from worker.embedded import EmbeddedServer

EFFECTFUL = "tests.apps.effectful:app"
SCHEDULED = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED


@asynccontextmanager
async def staged(
    server: EmbeddedServer, *tools: Tool, deaf: bool = False
) -> AsyncGenerator[tuple[SessionHandle, Stage]]:
    """Serve an agent whose model the test speaks for, and give a session with it. No workflow task may have failed."""
    stage = Stage(deaf=deaf)
    async with world(server, App([Agent("a", stage, tools=tools)])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        yield session, stage
        assert await failed_tasks(session) == 0


async def check_goes_on(session: SessionHandle, stage: Stage) -> None:
    """Check that an interrupted turn left a valid context, and that the next turn runs with it."""
    context = (await session.state()).context
    assert not list(flaws(context))
    assert any(message.interrupted for message in context)
    receipt = await session.submit("go on")
    call = await stage.call_of(receipt.turn_id)
    assert not list(flaws(call.request.messages))
    call.answer("yes")
    assert (await session.result(receipt.turn_id, timeout=30)).output == "yes"


async def interrupted_results(session: SessionHandle) -> list[tuple[str, ResultState]]:
    """Return the tool results of the context, by tool."""
    context = (await session.state()).context
    return [(result.name, result.state) for message in context for result in message.results]


async def scheduled(session: SessionHandle) -> list[str]:
    """Return the activities that the session has handed out in this run."""
    found = [event for event in await events(session) if event.event_type == SCHEDULED]
    return [event.activity_task_scheduled_event_attributes.activity_type.name for event in found]


# ---- the model call ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partial", ["keep", "discard"])
async def test_before_a_model_has_said_anything(server: EmbeddedServer, partial: str) -> None:
    """B23: the call is cancelled, and there is nothing to keep."""
    async with staged(server) as (session, stage):
        await session.submit("go", turn_id="t-1")
        call = await stage.call(1)
        receipt = await session.interrupt(partial=partial)
        assert (receipt.interrupted, receipt.turn_id) == (True, "t-1")
        assert (await session.turn("t-1")).status is TurnStatus.INTERRUPTED
        await asyncio.wait_for(call.cancelled.wait(), 30)
        assert [message.text for message in (await session.state()).context] == ["go", "(interrupted)"]
        await check_goes_on(session, stage)


async def test_while_a_model_speaks(server: EmbeddedServer) -> None:
    """B23, B31: when the receipt comes, what was said is in the context, marked, and so is the user's word."""
    async with staged(server) as (session, stage):
        await session.submit("go", turn_id="t-1")
        call = await stage.call(1)
        await call.say("one, ")
        await call.say("two")
        await session.interrupt(message="enough")
        context = (await session.state()).context
        assert [message.text for message in context] == ["go", "one, two", "enough"]
        assert [message.interrupted for message in context] == [False, True, False]
        await asyncio.wait_for(call.cancelled.wait(), 30)
        await check_goes_on(session, stage)


async def test_while_a_model_speaks_that_does_not_listen(server: EmbeddedServer) -> None:
    """B23: a provider that ignores the disconnect can't add anything later; the bound holds all the same."""
    async with staged(server, deaf=True) as (session, stage):
        await session.submit("go", turn_id="t-1")
        call = await stage.call(1)
        await call.say("half")
        await session.interrupt()
        assert (await session.turn("t-1")).status is TurnStatus.INTERRUPTED
        before = await session.state()
        await asyncio.wait_for(call.cancelled.wait(), 30)
        await call.say(" of it")
        call.answer("half of it, and the rest")
        await session.submit("go on", turn_id="t-2")
        second = await stage.call(2)
        assert second.heard == [*(message.text for message in before.context), "go on"]
        second.answer("yes")
        await session.result("t-2", timeout=30)
        assert "the rest" not in (await session.state()).to_json()
        assert not [entry async for entry in session.transcript() if "the rest" in str(entry.data)]


async def test_while_a_model_speaks_that_ends_in_its_own_time(server: EmbeddedServer) -> None:
    """B23: what is said after the interrupt has reached the call is not kept, even if it comes within the bound."""
    async with staged(server, deaf=True) as (session, stage):
        await session.submit("go", turn_id="t-1")
        call = await stage.call(1)
        await call.say("half")
        interrupting = asyncio.create_task(session.interrupt())
        await asyncio.wait_for(call.cancelled.wait(), 30)
        await call.say(" of it")
        call.answer("half of it, and the rest")
        await interrupting
        assert [message.text for message in (await session.state()).context] == ["go", "half"]


async def test_while_a_model_call_waits_for_its_next_attempt(server: EmbeddedServer) -> None:
    """B23: no other attempt is made."""
    failed = asyncio.Event()

    def answer(request: ModelRequest) -> ReplyLike:
        if request.messages[-1].text == "go":
            failed.set()
            return ModelError("busy", retryable=True, retry_after=timedelta(minutes=5))
        return "yes"

    model = ScriptedModel(answer)
    async with world(server, App([Agent("a", model)])) as served:
        session = served.sessions.session("a", fresh())
        await session.submit("go", turn_id="t-1")
        await asyncio.wait_for(failed.wait(), 30)
        await session.interrupt()
        assert (await session.turn("t-1")).status is TurnStatus.INTERRUPTED
        assert (await session.ask("go on")).output == "yes"
        assert len(model.requests) == 2


# ---- tools ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", [Effect.READ, Effect.ONCE])
async def test_between_a_call_and_its_execution(server: EmbeddedServer, effect: Effect) -> None:
    """B24: the calls were handed out, and no worker has begun one. Every call has a result, and none runs later.

    One with an effect is uncertain until a worker comes across it and says that it was not begun.
    """
    prop = Prop(effect, "act")
    async with staged(server, prop.tool(task_queue="nobody-serves-this")) as (session, stage):
        await session.submit("go", turn_id="t-1")
        (await stage.call(1)).answer("", ToolCall("act"), ToolCall("act"), ToolCall("nonsense"))

        async def handed_out() -> bool:
            return (await scheduled(session)).count("act") == 2

        await until(handed_out)
        await session.interrupt()
        assert (await session.turn("t-1")).status is TurnStatus.INTERRUPTED
        assert await interrupted_results(session) == [
            ("act", ResultState.INTERRUPTED),
            ("act", ResultState.INTERRUPTED),
            ("nonsense", ResultState.ERROR),
        ]
        assert len((await session.view()).uncertain) == (0 if effect is Effect.READ else 2)
        await check_goes_on(session, stage)
        assert prop.operations == []


async def test_a_call_that_is_taken_up_after_its_turn_was_interrupted_is_not_begun(server: EmbeddedServer) -> None:
    """B25, B29: its operation is certain then: it did not happen."""
    pay = Prop(Effect.ONCE, "pay")
    queue = fresh("slow")
    stage = Stage()
    app = App([Agent("a", stage, tools=[pay.tool(task_queue=queue)])])
    async with world(server, app) as served:
        session = served.sessions.session("a", fresh())
        await session.submit("go", turn_id="t-1")
        (await stage.call(1)).answer("", ToolCall("pay"))

        async def handed_out() -> bool:
            return "pay" in await scheduled(session)

        await until(handed_out)
        await session.interrupt()
        (uncertain,) = (await session.view()).uncertain
        with pytest.raises(UncertainOperations, match=uncertain.operation_id):
            await session.resume("t-1")
        with pytest.raises(UncertainOperations):
            await session.cancel("t-1")
        async with world(server, app, task_queue=queue):

            async def certain() -> bool:
                return not (await session.view()).uncertain

            await until(certain)
        assert pay.operations == []
        await session.resume("t-1")
        (await stage.call(2)).answer("not paid")
        assert (await session.result("t-1", timeout=30)).output == "not paid"


async def test_while_a_read_tool_runs(server: EmbeddedServer) -> None:
    """B25: it is cancelled at once."""
    look = Prop(Effect.READ, "look")
    async with staged(server, look.tool()) as (session, stage):
        await session.submit("go", turn_id="t-1")
        (await stage.call(1)).answer("", ToolCall("look"))
        await look.begun.wait()
        await session.interrupt()
        assert await interrupted_results(session) == [("look", ResultState.INTERRUPTED)]
        await asyncio.wait_for(look.cancelled.wait(), 30)
        assert (await session.view()).uncertain == ()
        await check_goes_on(session, stage)


@pytest.mark.parametrize("effect", [Effect.IDEMPOTENT, Effect.ONCE])
async def test_while_a_tool_with_an_effect_runs_that_ends_in_time(server: EmbeddedServer, effect: Effect) -> None:
    """B25: its real result is kept."""
    pay = Prop(effect, "pay")
    async with staged(server, pay.tool()) as (session, stage):
        await session.submit("go", turn_id="t-1")
        (await stage.call(1)).answer("", ToolCall("pay"))
        await pay.begun.wait()
        interrupting = asyncio.create_task(session.interrupt())

        async def stopping() -> bool:
            active = (await session.view()).active
            return active is not None and active.doing == "stopping"

        await until(stopping)
        pay.finish.set()
        assert (await interrupting).interrupted
        assert await interrupted_results(session) == [("pay", ResultState.SUCCESS)]
        assert (await session.view()).uncertain == ()
        assert not pay.cancelled.is_set()
        await check_goes_on(session, stage)


@pytest.mark.parametrize("effect", [Effect.IDEMPOTENT, Effect.ONCE])
async def test_while_a_tool_with_an_effect_runs_that_does_not_end_in_time(
    server: EmbeddedServer, effect: Effect
) -> None:
    """B25: its operation is uncertain until it settles by itself; then the turn can be resumed."""
    pay = Prop(effect, "pay")
    async with staged(server, pay.tool()) as (session, stage):
        await session.submit("go", turn_id="t-1")
        (await stage.call(1)).answer("", ToolCall("pay"))
        await pay.begun.wait()
        await session.interrupt()
        assert (await session.turn("t-1")).status is TurnStatus.INTERRUPTED
        assert [each.operation_id for each in (await session.view()).uncertain] == pay.operations
        with pytest.raises(UncertainOperations):
            await session.resume("t-1")
        pay.finish.set()

        async def certain() -> bool:
            return not (await session.view()).uncertain

        await until(certain)
        assert len(pay.operations) == 1
        assert not pay.cancelled.is_set()
        await check_goes_on(session, stage)


async def test_while_an_idempotent_tool_waits_for_its_next_attempt(server: EmbeddedServer) -> None:
    """B25: no other attempt is begun; what the first has done is unknown, and is said to be."""
    attempts: list[int] = []

    @tool(effect=Effect.IDEMPOTENT, attempts=9)
    async def send(ctx: ToolContext) -> str:
        """Fail, each time."""
        attempts.append(ctx.attempt)
        message = "try again"
        raise ToolError(message, retryable=True)

    async with staged(server, send) as (session, stage):
        await session.submit("go", turn_id="t-1")
        (await stage.call(1)).answer("", ToolCall("send"))

        async def some() -> bool:
            return len(attempts) >= 3

        await until(some)
        await session.interrupt()
        made = len(attempts)
        assert (await session.turn("t-1")).status is TurnStatus.INTERRUPTED
        assert [each.tool for each in (await session.view()).uncertain] == ["send"]
        await check_goes_on(session, stage)
        await until(lambda: nothing_pending(session))
        assert len(attempts) - made <= 1


async def test_while_tools_of_each_effect_run_side_by_side(server: EmbeddedServer) -> None:
    """B25: each by its own effect, and the results stand in the order of the calls."""
    props = [Prop(effect, effect.value) for effect in Effect]
    async with staged(server, *(prop.tool() for prop in props)) as (session, stage):
        await session.submit("go", turn_id="t-1")
        (await stage.call(1)).answer("", *(ToolCall(prop.name) for prop in props))
        for prop in props:
            await prop.begun.wait()
        interrupting = asyncio.create_task(session.interrupt())
        await asyncio.wait_for(props[0].cancelled.wait(), 30)
        props[1].finish.set()
        await interrupting
        assert await interrupted_results(session) == [
            ("read", ResultState.INTERRUPTED),
            ("idempotent", ResultState.SUCCESS),
            ("once", ResultState.INTERRUPTED),
        ]
        assert [each.tool for each in (await session.view()).uncertain] == ["once"]
        await check_goes_on(session, stage)
        props[2].finish.set()


# ---- other places -----------------------------------------------------------------------------------------------


async def test_of_one_session_leaves_another_running_and_a_late_one_hits_no_later_run(server: EmbeddedServer) -> None:
    """B27, B28."""
    stage = Stage()
    async with world(server, App([Agent("a", stage)])) as served:
        name = fresh()
        alice, bob = (served.sessions.session("a", name, user) for user in ("alice", "bob"))
        first = await alice.submit("hello")
        await stage.call(1)
        await bob.submit("hello", turn_id="b-1")
        await stage.call(2)
        await alice.interrupt(run_id=first.run_id)
        second = await alice.submit("again")
        await stage.call(3)
        with pytest.raises(StaleRun):
            await alice.interrupt(run_id=first.run_id)
        for turn, session in ((second.turn_id, alice), ("b-1", bob)):
            assert (await session.turn(turn)).status is TurnStatus.RUNNING
        for call in stage.calls[1:]:
            call.answer("hello")
        assert (await bob.result("b-1", timeout=30)).output == "hello"
        assert (await alice.result(second.turn_id, timeout=30)).output == "hello"


async def test_while_no_worker_runs_of_a_turn_that_none_has_seen(server: EmbeddedServer) -> None:
    """B29: when one comes, no model call is made."""
    model = ScriptedModel(["hello"])
    async with world(server, App([Agent("a", model)]), workers=0) as served:
        session = served.sessions.session("a", fresh())
        workflow = await served.client.start_workflow(
            "AgentSession", {}, id=session.workflow_id, task_queue=served.settings.task_queue
        )
        await workflow.signal("submit_turn", {"input": "go", "turn_id": "t-1"})
        await workflow.signal("interrupt", {"message": "never mind"})
        await served.start_worker()
        result = await session.result("t-1", timeout=30)
        assert (result.status, model.requests) == (TurnStatus.INTERRUPTED, [])
        assert [message.text for message in (await session.state()).context] == ["go", "(interrupted)", "never mind"]
        assert (await session.ask("hello")).output == "hello"


async def test_while_no_worker_runs_of_a_model_call_that_waits_for_one(server: EmbeddedServer) -> None:
    """B29: the call was handed out and not begun; the worker that comes does not begin it."""
    stage = Stage()
    one_at_a_time = {"max_concurrent_models": 1, "max_concurrent_tools": 1}
    async with world(server, App([Agent("a", stage)]), graceful_shutdown=0.2, **one_at_a_time) as served:
        others = [served.sessions.session("a", fresh()) for _ in range(2)]
        for number, other in enumerate(others, 1):
            await other.submit("hold the place")
            await stage.call(number)
        session = served.sessions.session("a", fresh())
        await session.submit("go", turn_id="t-1")

        async def handed_out() -> bool:
            return bool(await scheduled(session))

        await until(handed_out)
        await served.stop_worker()
        await served.client.get_workflow_handle(session.workflow_id).signal("interrupt", {})
        for other in others:
            await served.client.get_workflow_handle(other.workflow_id).terminate()
        await served.start_worker()
        assert (await session.result("t-1", timeout=30)).status is TurnStatus.INTERRUPTED
        await session.submit("hello", turn_id="t-2")
        call = await stage.call_of("t-2")
        call.answer("hello")
        await session.result("t-2", timeout=30)
        assert [call.request.turn_id for call in stage.calls].count("t-1") == 0


async def test_while_no_worker_runs_of_a_model_call_whose_worker_has_died(
    server: EmbeddedServer, service: Effects
) -> None:
    """B29: the turn ends when a worker comes, and the model is not called again."""
    async with world(server, effectful, workers=0) as served:
        env = {**served.env, "EFFECTS_URL": service.url}
        session = served.sessions.session("a", fresh(), "alice")
        async with worker_process(EFFECTFUL, env) as first:
            await session.submit("think", turn_id="t-1")
            await until(lambda: service.called("model"))
            await first.kill()
        await served.client.get_workflow_handle(session.workflow_id).signal("interrupt", {"message": "stop"})
        service.answers.set()
        async with worker_process(EFFECTFUL, env):
            assert (await session.result("t-1", timeout=60)).status is TurnStatus.INTERRUPTED
            assert (await session.ask("hello", timeout=60)).output == "heard hello"
        assert service.calls["model"] == 1


@dataclass
class Heard:
    """A model of a real provider, with an event for the first piece of its answer."""

    model: OpenAIChatModel
    first: asyncio.Event = field(default_factory=asyncio.Event)

    async def complete(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Listen to what the model says."""

        async def listen(delta: Delta) -> None:
            await emit(delta)
            self.first.set()

        return await self.model.complete(request, listen)


async def test_an_interrupt_closes_the_connection_to_the_provider(server: EmbeddedServer) -> None:
    """B23, over HTTP: the provider sees that nobody listens any more; what it had said is kept."""
    half = head(transfer_encoding="chunked") + chunked([events_of([chunk({"content": "half"})], done=False)])
    async with serving(Reply(half, "silence")) as provider:
        heard = Heard(OpenAIChatModel("m", base_url=provider.url, api_key="k"))
        async with world(server, App([Agent("a", heard)])) as served:
            session = served.sessions.session("a", fresh())
            await session.submit("go")
            await asyncio.wait_for(heard.first.wait(), 30)
            await session.interrupt()
            assert [message.text for message in (await session.state()).context] == ["go", "half"]
            await asyncio.wait_for(provider.left.wait(), 30)
            await heard.model.aclose()
