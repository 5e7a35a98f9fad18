"""Taking hold of turns on the real server: resume, cancel, steer, inject, pause, and what a submit does when busy."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from perdure import Agent, App, Effect, SessionHandle, SessionStatus, ToolCall, TurnStatus
from perdure.errors import (
    NotResumable,
    NotSteerable,
    RollbackRefused,
    RunConflict,
    SessionBusy,
    StaleRun,
    TurnNotFound,
)
from perdure.messages import flaws
from tests.support.stage import Prop, Stage
from tests.support.world import fresh, until, update, world

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from perdure import Tool
    from worker.embedded import EmbeddedServer


@asynccontextmanager
async def staged(
    server: EmbeddedServer, *tools: Tool, **options: object
) -> AsyncGenerator[tuple[SessionHandle, Stage]]:
    """Serve an agent whose model the test speaks for, and give a session with it."""
    stage = Stage()
    agent = Agent("a", stage, tools=tools, **options)  # type: ignore[arg-type]
    async with world(server, App([agent])) as served:
        yield served.sessions.session("a", fresh(), "alice"), stage


async def statuses(session: SessionHandle, *turn_ids: str) -> list[str]:
    """Return where turns are."""
    return [(await session.turn(turn_id)).status.value for turn_id in turn_ids]


async def said(session: SessionHandle) -> list[str]:
    """Return the texts of the context, which must be valid input for a model."""
    context = (await session.state()).context
    assert not list(flaws(context))
    return [message.text for message in context]


# ---- resume and cancel ------------------------------------------------------------------------------------------


async def test_a_resumed_turn_keeps_its_id_has_a_new_run_and_does_not_say_its_input_again(
    server: EmbeddedServer,
) -> None:
    """B30: and it sees what was done, and what the interrupt said (B31)."""
    async with staged(server) as (session, stage):
        first = await session.submit("do it", turn_id="t-1", run_id="r-1")
        await (await stage.call(1)).say("half")
        await session.interrupt(message="wait")
        view = await session.view()
        assert (view.unfinished, view.stopped and view.stopped.message) == ("t-1", "wait")
        with pytest.raises(RunConflict):
            await session.resume("t-1", run_id="r-1")
        receipt = await session.resume("t-1", run_id="r-2")
        assert (first.run_id, receipt.run_id, receipt.turn_id, receipt.disposition) == ("r-1", "r-2", "t-1", "started")
        call = await stage.call(2)
        assert call.heard == ["do it", "half", "wait"]
        assert (call.request.run_id, call.request.turn_id, call.request.step) == ("r-2", "t-1", 2)
        call.answer("done")
        result = await session.result("t-1", timeout=30)
        assert (result.status, result.run_id, result.output) == (TurnStatus.COMPLETED, "r-2", "done")
        assert [run.outcome for run in (await session.turn("t-1")).runs] == ["interrupted", "completed"]
        assert (await session.view()).unfinished is None


async def test_only_the_latest_unfinished_turn_can_be_resumed_and_only_when_nothing_runs(
    server: EmbeddedServer,
) -> None:
    """B30: each refusal says why."""
    async with staged(server) as (session, stage):
        for number in (1, 2):
            await session.submit("go", turn_id=f"t-{number}")
            await stage.call(number)
            if number == 2:
                with pytest.raises(NotResumable, match="'t-2' runs"):
                    await session.resume("t-1")
            await session.interrupt(partial="discard")
        with pytest.raises(NotResumable, match="that is 't-2'"):
            await session.resume("t-1")
        with pytest.raises(TurnNotFound):
            await session.resume("t-3")
        await session.resume("t-2")
        (await stage.call(3)).answer("done")
        await session.result("t-2", timeout=30)
        with pytest.raises(NotResumable, match="completed"):
            await session.resume("t-2")


async def test_a_failed_turn_can_be_resumed_and_its_error_is_gone_when_it_completes(server: EmbeddedServer) -> None:
    """B30, and B22: the user's message is there once, the half answer is not."""
    async with staged(server) as (session, stage):
        await session.submit("do it", turn_id="t-1")
        call = await stage.call(1)
        await call.say("half")
        call.fail(ValueError("out of tokens"))
        failed = await session.result("t-1", timeout=30)
        assert failed.error is not None
        assert (failed.status, failed.error.type) == (TurnStatus.FAILED, "ValueError")
        await session.resume("t-1")
        call = await stage.call(2)
        assert call.heard == ["do it"]
        call.answer("done")
        result = await session.result("t-1", timeout=30)
        assert (result.status, result.error) == (TurnStatus.COMPLETED, None)


async def test_cancelling_ends_a_turn_wherever_it_is(server: EmbeddedServer) -> None:
    """B17: queued, running, interrupted, final; twice is the same as once."""
    async with staged(server) as (session, stage):
        for turn_id in ("t-1", "t-2", "t-3"):
            await session.submit("go", turn_id=turn_id)
        await stage.call(1)
        for _ in range(2):
            assert (await session.cancel("t-2")).disposition == "settled"
        assert await statuses(session, "t-1", "t-2", "t-3") == ["running", "cancelled", "queued"]
        assert (await session.cancel("t-1")).disposition == "settled"
        assert (await stage.call(2)).request.turn_id == "t-3"
        with pytest.raises(NotResumable):
            await session.resume("t-1")
        await session.interrupt(partial="discard")
        assert (await session.view()).unfinished == "t-3"
        assert (await session.cancel("t-3")).disposition == "settled"
        assert (await session.view()).unfinished is None
        assert await statuses(session, "t-1", "t-2", "t-3") == ["cancelled"] * 3
        with pytest.raises(TurnNotFound):
            await session.cancel("t-4")
        assert len(stage.calls) == 2


# ---- steer and inject -------------------------------------------------------------------------------------------


async def test_steering_is_seen_by_the_next_model_call_and_forces_one_after_the_last(server: EmbeddedServer) -> None:
    """B18: the receipt says the step; the turn stays the same run."""
    look = Prop(Effect.READ, "look")
    async with staged(server, look.tool()) as (session, stage):
        receipt = await session.submit("go", turn_id="t-1")
        (await stage.call(1)).answer("let me look", ToolCall("look"))
        await look.begun.wait()
        steered = await session.steer("in blue", run_id=receipt.run_id)
        assert (steered.turn_id, steered.run_id, steered.step) == ("t-1", receipt.run_id, 2)
        look.finish.set()
        second = await stage.call(2)
        assert second.heard == ["go", "let me look", "", "in blue"]
        assert (await session.steer("and large")).step == 3
        second.answer("it is blue")
        third = await stage.call(3)
        assert third.heard[-2:] == ["it is blue", "and large"]
        assert third.request.run_id == receipt.run_id
        third.answer("it is blue and large")
        result = await session.result("t-1", timeout=30)
        assert (result.output, result.steps, result.run_id) == ("it is blue and large", 3, receipt.run_id)
        with pytest.raises(NotSteerable):
            await session.steer("too late")


async def test_steering_of_a_run_that_is_not_active_is_refused(server: EmbeddedServer) -> None:
    """B18, B27: a late click must not reach a later run."""
    async with staged(server) as (session, stage):
        await session.submit("go")
        await stage.call(1)
        with pytest.raises(StaleRun):
            await session.steer("now", run_id="another")
        assert (await session.view()).waiting_inputs == 0


async def test_injected_input_waits_for_the_next_step_of_whatever_turn_comes(server: EmbeddedServer) -> None:
    """B18: it starts nothing, and is seen once."""
    async with staged(server) as (session, stage):
        await session.submit("hello", turn_id="t-1")
        first = await stage.call(1)
        receipt = await session.inject("the shop closes at six")
        assert (receipt.disposition, receipt.turn_id) == ("steered", "t-1")
        first.answer("hello to you")
        assert (await session.result("t-1", timeout=30)).steps == 1
        assert (await session.inject("and it rains")).disposition == "queued"
        assert (await session.view()).waiting_inputs == 2
        await session.submit("what now?", turn_id="t-2")
        second = await stage.call(2)
        assert second.heard == ["hello", "hello to you", "the shop closes at six", "and it rains", "what now?"]
        second.answer("home")
        await session.result("t-2", timeout=30)
        assert (await session.view()).waiting_inputs == 0


async def test_what_a_turn_was_steered_by_is_not_lost_when_it_is_interrupted(server: EmbeddedServer) -> None:
    """B18 and B30: whoever goes on sees it."""
    async with staged(server) as (session, stage):
        await session.submit("go", turn_id="t-1")
        await stage.call(1)
        await session.steer("in blue")
        await session.interrupt(message="wait", partial="discard")
        assert await said(session) == ["go", "(interrupted)", "in blue", "wait"]
        await session.resume("t-1")
        assert (await stage.call(2)).heard[-2:] == ["in blue", "wait"]


# ---- pause ------------------------------------------------------------------------------------------------------


async def test_a_pause_lets_the_step_finish_and_holds_what_follows_until_it_is_over(server: EmbeddedServer) -> None:
    """B19: turns are accepted meanwhile, and go on in order."""
    look = Prop(Effect.READ, "look")
    async with staged(server, look.tool()) as (session, stage):
        await session.submit("go", turn_id="t-1")
        first = await stage.call(1)
        receipt = await session.pause("lunch", actor="bob")
        assert (receipt.paused, receipt.turn_id) == (True, "t-1")
        first.answer("let me look", ToolCall("look"))
        await look.begun.wait()
        look.finish.set()

        async def held() -> bool:
            active = (await session.view()).active
            return active is not None and active.doing == "held"

        await until(held)
        view = await session.view()
        assert (view.status, view.paused, view.pause_reason, view.paused_by) == (
            SessionStatus.PAUSED,
            True,
            "lunch",
            "bob",
        )
        assert (await session.submit("next", turn_id="t-2")).disposition == "queued"
        with pytest.raises(SessionBusy):
            await session.submit("now", on_busy="reject")
        assert len(stage.calls) == 1
        for _ in range(2):
            assert not (await session.unpause()).paused
        (await stage.call(2)).answer("seen")
        (await stage.call(3)).answer("done")
        assert (await session.result("t-2", timeout=30)).output == "done"
        assert [call.request.turn_id for call in stage.calls] == ["t-1", "t-1", "t-2"]


async def test_a_turn_that_a_pause_holds_can_be_interrupted(server: EmbeddedServer) -> None:
    """B19, B24: nothing is in flight, and it ends at once."""
    async with staged(server) as (session, stage):
        await session.submit("go", turn_id="t-1")
        first = await stage.call(1)
        await session.steer("more")
        await session.pause()
        first.answer("half way")

        async def held() -> bool:
            active = (await session.view()).active
            return active is not None and active.doing == "held"

        await until(held)
        assert (await session.interrupt()).interrupted
        assert await statuses(session, "t-1") == ["interrupted"]
        assert await said(session) == ["go", "half way", "(interrupted)", "more"]


# ---- what a submit does when the session is busy ----------------------------------------------------------------


async def busy(session: SessionHandle, stage: Stage) -> None:
    """Have a turn run, and two wait."""
    for turn_id in ("t-1", "t-2", "t-3"):
        await session.submit(f"say {turn_id}", turn_id=turn_id)
    await stage.call(1)


async def finish(session: SessionHandle, stage: Stage, *order: str) -> None:
    """Have the turns' calls answered, each the last one that was made; so they come one by one, and in this order."""
    for turn_id in order:
        call = await stage.call_of(turn_id)
        assert call is stage.calls[-1]
        call.answer(f"this is {turn_id}")
        await session.result(turn_id, timeout=30)


async def test_enqueue_waits_behind_the_others(server: EmbeddedServer) -> None:
    """B14: enqueue, which is the default."""
    async with staged(server) as (session, stage):
        await busy(session, stage)
        receipt = await session.submit("me too", turn_id="t-4", on_busy="enqueue")
        assert (receipt.disposition, receipt.position) == ("queued", 3)
        await finish(session, stage, "t-1", "t-2", "t-3", "t-4")


async def test_reject_is_refused_and_leaves_no_turn(server: EmbeddedServer) -> None:
    """B14: reject."""
    async with staged(server) as (session, stage):
        await busy(session, stage)
        with pytest.raises(SessionBusy, match="'t-1' runs"):
            await session.submit("me too", turn_id="t-4", on_busy="reject")
        with pytest.raises(TurnNotFound):
            await session.turn("t-4")
        await finish(session, stage, "t-1", "t-2", "t-3")
        assert (await session.submit("now?", turn_id="t-4", on_busy="reject")).disposition == "started"


async def test_interrupt_stops_the_running_turn_and_runs_next(server: EmbeddedServer) -> None:
    """B14: interrupt."""
    async with staged(server) as (session, stage):
        await busy(session, stage)
        await stage.calls[0].say("half")
        receipt = await session.submit("stop, this first", turn_id="t-4", on_busy="interrupt")
        assert (receipt.disposition, receipt.position) == ("queued", 1)
        await finish(session, stage, "t-4", "t-2", "t-3")
        assert await statuses(session, "t-1") == ["interrupted"]
        assert (await said(session))[:4] == ["say t-1", "half", "stop, this first", "this is t-4"]


async def test_steer_joins_the_running_turn_whose_result_answers_it(server: EmbeddedServer) -> None:
    """B14: steer; the submit's own id means the turn that it joined, also when it is repeated (B13)."""
    async with staged(server) as (session, stage):
        await busy(session, stage)
        receipt = await session.submit("in blue", turn_id="t-4", on_busy="steer")
        assert (receipt.disposition, receipt.turn_id) == ("steered", "t-1")
        again = await session.submit("in blue", turn_id="t-4", on_busy="steer")
        assert (again.disposition, again.turn_id) == ("duplicate", "t-1")
        stage.calls[0].answer("it is red")
        call = await stage.call(2)
        assert call.heard == ["say t-1", "it is red", "in blue"]
        call.answer("it is blue")
        assert (await session.result("t-4", timeout=30)).output == "it is blue"
        settled = await session.submit("in blue", turn_id="t-4", on_busy="steer")
        assert (settled.disposition, settled.turn_id) == ("settled", "t-1")
        await finish(session, stage, "t-2", "t-3")


async def test_steer_without_a_running_turn_is_a_turn_of_its_own(server: EmbeddedServer) -> None:
    """B14: started when the session is idle, queued while it is paused; the receipt says which."""
    async with staged(server) as (session, stage):
        assert (await session.submit("hello", turn_id="t-1", on_busy="steer")).disposition == "started"
        await finish(session, stage, "t-1")
        await session.pause()
        assert (await session.submit("and you?", turn_id="t-2", on_busy="steer")).disposition == "queued"
        await session.unpause()
        await finish(session, stage, "t-2")


async def test_latest_cancels_what_waits_and_keeps_what_runs(server: EmbeddedServer) -> None:
    """B14: latest."""
    async with staged(server) as (session, stage):
        await busy(session, stage)
        receipt = await session.submit("only this", turn_id="t-4", on_busy="latest")
        assert (receipt.disposition, receipt.position) == ("queued", 1)
        assert await statuses(session, "t-1", "t-2", "t-3") == ["running", "cancelled", "cancelled"]
        await finish(session, stage, "t-1", "t-4")


async def test_rollback_takes_the_running_turn_out_of_the_context(server: EmbeddedServer) -> None:
    """B14: rollback; what others had said stays, and the next model call knows nothing of the turn."""
    look = Prop(Effect.READ, "look")
    async with staged(server, look.tool()) as (session, stage):
        await session.submit("hello", turn_id="t-0")
        await finish(session, stage, "t-0")
        for turn_id in ("t-1", "t-2"):
            await session.submit(f"say {turn_id}", turn_id=turn_id)
        (await stage.call(2)).answer("let me look", ToolCall("look"))
        await look.begun.wait()
        await session.steer("in blue")
        await session.submit("forget that", turn_id="t-4", on_busy="rollback")
        call = await stage.call(3)
        assert call.heard == ["hello", "this is t-0", "forget that"]
        call.answer("forgotten")
        await session.result("t-4", timeout=30)
        assert await statuses(session, "t-1") == ["cancelled"]
        assert await said(session) == ["hello", "this is t-0", "forget that", "forgotten", "say t-2"]
        with pytest.raises(NotResumable):
            await session.resume("t-1")


async def test_rollback_of_a_turn_that_has_touched_something_is_refused(server: EmbeddedServer) -> None:
    """B14: what has an effect can't be taken back, also when it has happened in an earlier step."""
    pay = Prop(Effect.ONCE, "pay")
    pay.finish.set()
    async with staged(server, pay.tool()) as (session, stage):
        await session.submit("pay", turn_id="t-1")
        (await stage.call(1)).answer("", ToolCall("pay"))
        await stage.call(2)
        with pytest.raises(RollbackRefused, match="on_busy=interrupt"):
            await session.submit("forget that", turn_id="t-2", on_busy="rollback")
        assert await statuses(session, "t-1") == ["running"]
        assert len(pay.operations) == 1


# ---- whether the queue goes on ----------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["agent", "submit"])
@pytest.mark.parametrize("how", ["resume", "cancel"])
async def test_a_parked_queue_waits_until_the_stopped_turn_is_resumed_or_cancelled(
    server: EmbeddedServer, by: str, how: str
) -> None:
    """Design 4.2: after an interrupted turn, by the agent's rule or by the submit's own."""
    async with staged(server, after_interrupt="park" if by == "agent" else "continue") as (session, stage):
        rule = "park" if by == "submit" else None
        await session.submit("one", turn_id="t-1", after_interrupt=rule)
        await session.submit("two", turn_id="t-2")
        await stage.call(1)
        await session.interrupt()
        view = await session.view()
        assert (view.parked, view.active, [entry.turn_id for entry in view.queue]) == ("t-1", None, ["t-2"])
        assert (await session.submit("three", turn_id="t-3")).position == 2
        if how == "resume":
            await session.resume("t-1")
            await finish(session, stage, "t-1", "t-2", "t-3")
        else:
            await session.cancel("t-1")
            await finish(session, stage, "t-2", "t-3")


async def test_a_failed_turn_parks_the_queue_if_the_agent_says_so(server: EmbeddedServer) -> None:
    """Design 4.2: also when it is the first model call of the session that fails."""
    async with staged(server, after_failure="park") as (session, stage):
        await session.submit("one", turn_id="t-1")
        await session.submit("two", turn_id="t-2")
        (await stage.call(1)).fail(ValueError("no"))
        await session.result("t-1", timeout=30)
        assert (await session.view()).parked == "t-1"
        await session.submit("at once", turn_id="t-3", on_busy="interrupt")
        await finish(session, stage, "t-3")
        assert await statuses(session, "t-2") == ["queued"]
        await session.resume("t-1")
        await finish(session, stage, "t-1", "t-2")


# ---- without any of our code ------------------------------------------------------------------------------------


async def test_every_command_is_a_signal_too_and_what_is_refused_is_recorded(server: EmbeddedServer) -> None:
    """Design 4.1: any SDK and the Temporal UI can do what our client can."""
    async with staged(server) as (session, stage):
        await session.submit("go", turn_id="t-1")
        await stage.call(1)
        workflow = session.client.get_workflow_handle(session.workflow_id)
        for name, payload in (
            ("steer", {"input": "in blue", "actor": "ops"}),
            ("inject", {"input": "by the way"}),
            ("pause", {"reason": "wait"}),
            ("interrupt", {"message": "stop", "partial": "discard", "actor": "ops"}),
            ("submit_turn", {"input": "two", "turn_id": "t-2", "on_busy": "latest"}),
            ("resume_turn", {"turn_id": "t-1", "run_id": "r-9", "actor": "ops"}),
            ("resume_turn", {"turn_id": "t-1"}),
            ("steer", {"input": "x", "run_id": "nobody's"}),
            ("unpause", {}),
        ):
            await workflow.signal(name, payload)
        call = await stage.call(2)
        assert (call.request.turn_id, call.request.run_id) == ("t-1", "r-9")
        assert call.heard == ["go", "(interrupted)", "in blue", "stop", "by the way"]
        call.answer("done")
        await session.result("t-1", timeout=30)
        await workflow.signal("cancel_turn", {"turn_id": "t-2"})

        async def cancelled() -> bool:
            return await statuses(session, "t-2") == ["cancelled"]

        await until(cancelled)
        view = await session.view()
        assert [rejection.error for rejection in view.rejections] == ["NotResumable", "StaleRun"]
        commands = [entry async for entry in session.transcript() if entry.kind == "command"]
        assert [(entry.data["command"], entry.actor) for entry in commands] == [
            ("pause", None),
            ("interrupt", "ops"),
            ("resume_turn", "ops"),
            ("unpause", None),
            ("cancel_turn", None),
        ]


async def test_every_command_is_an_update_too(server: EmbeddedServer) -> None:
    """Design 4.1: raw, as the temporal program sends them."""
    async with staged(server) as (session, stage):
        await session.submit("go", turn_id="t-1", run_id="r-1")
        await stage.call(1)
        assert await update(session, "steer", {"input": "more"}) == {"turn_id": "t-1", "run_id": "r-1", "step": 2}
        assert await update(session, "pause", {}) == {"paused": True, "turn_id": "t-1"}
        stopped = {"interrupted": True, "turn_id": "t-1", "run_id": "r-1", "stopped": True}
        assert await update(session, "interrupt", {}) == stopped
        resumed = {"turn_id": "t-1", "run_id": "r-2", "disposition": "started", "position": None}
        assert await update(session, "resume_turn", {"turn_id": "t-1", "run_id": "r-2"}) == resumed
        cancelled = {"turn_id": "t-1", "run_id": "r-2", "disposition": "settled", "position": None}
        assert await update(session, "cancel_turn", {"turn_id": "t-1"}) == cancelled
        assert await update(session, "unpause") == {"paused": False, "turn_id": None}
