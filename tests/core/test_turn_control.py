from __future__ import annotations

from datetime import timedelta

import pytest

from perdure.advance import advance
from perdure.commands import Partial
from perdure.contract import TURN_TIMEOUT, Limits
from perdure.decide import deadline
from perdure.errors import (
    NotResumable,
    NotSteerable,
    QueueFull,
    SessionClosed,
    StaleRun,
    TurnNotFound,
    UncertainOperations,
)
from perdure.facts import TimeExpired
from perdure.messages import INTERRUPTED_TEXT, ResultState, flaws
from perdure.operations import Effect
from perdure.results import Receipt, SessionStatus, TurnStatus
from perdure.rules.ending import MAX_STEPS
from perdure.views import (
    cancel_receipt,
    inject_receipt,
    pause_receipt,
    session_view,
    steer_receipt,
    turn_view,
)
from tests.support.lives import Call, Life, result_states
from tests.support.moments import LOOK, PAY, SEND, acting, interrupted, living, uncertain

# ---- cancel -----------------------------------------------------------------------------------------------------


def test_a_queued_turn_that_is_cancelled_never_starts() -> None:
    """B17: what it asked never reaches the context; the turns behind it go on."""
    life = living("t1", "t2", "t3")
    life.cancel("t2")
    assert cancel_receipt(life.session, "t2") == Receipt(turn_id="t2", run_id="run-of-t2", disposition="settled")
    life.answer("one")
    life.answer("three")
    assert [life.status(turn_id) for turn_id in ("t1", "t2", "t3")] == ["completed", "cancelled", "completed"]
    assert ("user", "ask t2") not in life.said
    assert life.kinds("t2") == ["input", "command", "turn"]


def test_a_running_turn_that_is_cancelled_is_interrupted_and_can_not_be_resumed() -> None:
    """B17: its half answer is kept as after an interrupt, the next turn runs."""
    life = living("t1", "t2")
    life.cancel("t1")
    assert cancel_receipt(life.session, "t1").disposition == "stopping"
    assert life.wanted == ["model?"]
    life.answer("as I was say", partial=True)
    assert [life.status("t1"), life.status("t2")] == [TurnStatus.CANCELLED, TurnStatus.RUNNING]
    assert life.said[1] == ("assistant", "as I was say")
    life.answer("two")
    with pytest.raises(NotResumable, match="it is cancelled"):
        life.resume("t1")


def test_cancelling_outweighs_an_interrupt_that_came_before_or_comes_after() -> None:
    """B17: whichever was first; and what the interrupt said is kept."""
    for cancels_first in (True, False):
        life = acting(PAY)
        if cancels_first:
            life.cancel("t1")
        life.interrupt(message="wait")
        if not cancels_first:
            life.cancel("t1")
        life.finish(0, "paid")
        assert life.status("t1") is TurnStatus.CANCELLED
        assert ("user", "wait") in life.said
        assert life.session.unfinished is None


@pytest.mark.parametrize("how", ["interrupted", "failed"])
def test_a_turn_that_could_be_resumed_can_be_cancelled_instead(how: str) -> None:
    """B17: nothing more is said, and it can't be resumed any more."""
    life = living("t1")
    if how == "failed":
        life.fail()
    else:
        life.interrupt(partial=Partial.DISCARD)
    said = life.said
    life.cancel("t1")
    assert life.status("t1") is TurnStatus.CANCELLED
    assert life.said == said
    assert session_view(life.session).unfinished is None
    with pytest.raises(NotResumable):
        life.resume("t1")


def test_cancelling_twice_is_cancelling_once_and_a_final_turn_stays_what_it_is() -> None:
    """B17: the receipt says that it was settled."""
    life = living("t1", "t2")
    life.cancel("t2")
    life.answer("one")
    before = life.session
    for turn_id, status in (("t1", TurnStatus.COMPLETED), ("t2", TurnStatus.CANCELLED)):
        assert life.cancel(turn_id) is before
        assert life.status(turn_id) is status
        assert cancel_receipt(life.session, turn_id).disposition == "settled"


def test_a_turn_with_an_uncertain_operation_can_not_be_cancelled() -> None:
    """B17, B30: suspended, still running, or interrupted; those that wait can be."""
    suspended = uncertain()
    runs = acting(PAY, SEND)
    runs.lose(0)
    stopped = acting(PAY)
    stopped.interrupt()
    stopped.expire(stopped.tool_operation(0))
    for life in (suspended, runs, stopped):
        before = life.session
        with pytest.raises(UncertainOperations, match=before.uncertain[0].operation_id):
            life.cancel("t1")
        assert life.session is before
        life.cancel("t2")


def test_a_turn_that_nobody_knows_can_be_neither_cancelled_nor_resumed() -> None:
    """B17, B30: the session says how many it remembers."""
    life = living("t1")
    for command in (life.cancel, life.resume):
        with pytest.raises(TurnNotFound, match="remembers the last 1"):
            command("t2")


# ---- steer and inject -------------------------------------------------------------------------------------------


def test_steering_is_seen_by_the_next_model_call_of_the_turn() -> None:
    """B18: while tools run, behind their results."""
    life = acting(LOOK)
    receipt = steer_receipt(life.session)
    life.steer("and this")
    assert receipt is not None
    assert (receipt.turn_id, receipt.run_id, receipt.step) == ("t1", "run-of-t1", 2)
    assert session_view(life.session).waiting_inputs == 1
    life.finish(0, "seen")
    assert life.said[-2:] == [("tool", ""), ("user", "and this")]
    assert session_view(life.session).waiting_inputs == 0


def test_steering_during_the_last_model_call_forces_one_more_step_of_the_same_run() -> None:
    """B18: as often as somebody steers; the next turn waits meanwhile."""
    life = living("t1", "t2")
    life.steer("and this")
    life.steer("and that")
    life.answer("first")
    assert life.status("t1") is TurnStatus.RUNNING
    assert life.said[-2:] == [("user", "and this"), ("user", "and that")]
    life.answer("second")
    view = turn_view(life.session, "t1")
    assert view is not None
    assert (view.status, view.steps, view.output, len(view.runs)) == (TurnStatus.COMPLETED, 2, "second", 1)
    assert life.status("t2") is TurnStatus.RUNNING


def test_steering_at_a_step_that_was_not_handed_out_yet_is_seen_by_that_very_step() -> None:
    """B18: so that nothing is said past a model call that could have heard it."""
    life = living("t1", eager=False)
    receipt = steer_receipt(life.session)
    operation = life.model_operation
    life.steer("and this")
    life.inject("by the way")
    assert receipt is not None
    assert receipt.step == 1
    assert life.model_operation == operation
    assert life.said == [("user", "ask t1"), ("user", "and this"), ("user", "by the way")]
    life.begin()
    life.answer("done")
    assert life.status("t1") is TurnStatus.COMPLETED


def test_steering_needs_a_turn_that_runs() -> None:
    """B18: not an idle session, a suspended turn, or one that is being stopped; nor a run that is not active."""
    stopping = living("t1")
    stopping.interrupt()
    for life in (Life(), uncertain(), stopping, interrupted()):
        before = life.session
        with pytest.raises(NotSteerable, match="inject it"):
            life.steer()
        assert life.session is before
    life = living("t1")
    with pytest.raises(StaleRun, match="nothing was steered"):
        life.steer(run_id="of long ago")
    life.steer(run_id="run-of-t1")


def test_injected_input_starts_nothing_and_is_seen_by_the_next_step_of_whatever_turn_comes() -> None:
    """B18: in the order in which it came, before what the turn asks."""
    life = Life()
    assert inject_receipt(life.session) == Receipt(turn_id="", disposition="queued")
    life.inject("by the way")
    life.inject("and also")
    assert life.wanted == []
    life.carry_over()
    life.submit("ask t1", turn_id="t1")
    assert life.said == [("user", "by the way"), ("user", "and also"), ("user", "ask t1")]


def test_injected_input_forces_no_further_step() -> None:
    """B18: a turn that is done ends, and the next one sees it."""
    life = living("t1", "t2")
    assert inject_receipt(life.session).turn_id == "t1"
    life.inject("by the way")
    life.answer("done")
    assert life.status("t1") is TurnStatus.COMPLETED
    assert life.said[-2:] == [("user", "by the way"), ("user", "ask t2")]


@pytest.mark.parametrize("how", ["interrupted", "cancelled", "failed", "timed out", "closed"])
def test_what_a_turn_was_steered_by_is_in_the_context_however_it_ends(how: str) -> None:
    """B18: what nobody has answered yet, the next turn sees; injected input goes on waiting for it."""
    life = living("t1", limits=Limits(turn_timeout_seconds=60))
    life.steer("and this")
    life.inject("by the way")
    match how:
        case "interrupted":
            life.interrupt()
            life.answer("as I was say", partial=True)
        case "cancelled":
            life.cancel("t1")
            life.answer("as I was say", partial=True)
        case "failed":
            life.fail()
        case "timed out":
            life.time_out()
        case _:
            life.close()
    assert life.said.count(("user", "and this")) == 1
    assert [aside.turn_id for aside in life.session.asides] == [None]
    assert not list(flaws(life.session.state.context))


def test_input_that_waits_is_bounded_like_the_queue() -> None:
    """B15, B18: steered and injected together; nothing that was accepted is dropped."""
    life = living("t1", limits=Limits(queue_limit=2))
    life.steer()
    life.inject()
    for command in (life.steer, life.inject):
        with pytest.raises(QueueFull, match="2 inputs wait"):
            command()
    life.answer("first")
    life.inject()


# ---- pause ------------------------------------------------------------------------------------------------------


def test_a_pause_lets_the_step_finish_and_then_holds() -> None:
    """B19: the model call and the tools of the step, but no further one; what is submitted waits."""
    life = living("t1")
    life.pause()
    assert pause_receipt(life.session).turn_id == "t1"
    assert life.wanted == ["model"]
    life.answer("let me see", LOOK)
    assert life.wanted == ["look"]
    life.start(0)
    life.finish(0, "seen")
    assert life.wanted == []
    life.submit("ask t2", turn_id="t2")
    life.carry_over()
    view = session_view(life.session)
    assert (view.status, view.pause_reason, view.paused) == (SessionStatus.PAUSED, "wait", True)
    assert view.active is not None
    assert (view.active.turn_id, view.active.doing) == ("t1", "held")
    life.unpause()
    life.answer("done")
    life.answer("two")
    assert [life.status("t1"), life.status("t2")] == [TurnStatus.COMPLETED, TurnStatus.COMPLETED]


def test_a_turn_that_ends_in_its_step_ends_while_the_session_is_paused() -> None:
    """B19: and the next one waits until it goes on."""
    life = living("t1", "t2")
    life.pause()
    life.answer("done")
    assert [life.status("t1"), life.status("t2")] == [TurnStatus.COMPLETED, TurnStatus.QUEUED]
    assert life.wanted == []
    life.unpause()
    assert life.status("t2") is TurnStatus.RUNNING


def test_pausing_twice_and_going_on_twice_are_once() -> None:
    """B19: the first reason stands."""
    life = Life()
    assert life.unpause() is life.session
    before = life.pause()
    assert life.pause() is before
    life.unpause()
    assert life.session.pause is None


@pytest.mark.parametrize("how", ["interrupt", "cancel", "close"])
def test_a_turn_that_a_pause_holds_can_be_stopped_at_once(how: str) -> None:
    """B19, B23: nothing of it is under way."""
    life = acting(LOOK)
    life.pause()
    life.finish(0)
    match how:
        case "interrupt":
            life.interrupt(message="wait")
        case "cancel":
            life.cancel("t1")
        case _:
            life.close()
    assert life.status("t1") is (TurnStatus.INTERRUPTED if how == "interrupt" else TurnStatus.CANCELLED)
    assert ("assistant", INTERRUPTED_TEXT) in life.said
    assert life.wanted == []


def test_a_turn_that_a_pause_holds_can_be_steered_and_sees_it_when_it_goes_on() -> None:
    """B18, B19: it runs, though no step of it does."""
    life = acting(LOOK)
    life.pause()
    life.finish(0)
    life.steer("and this")
    assert ("user", "and this") not in life.said
    life.unpause()
    assert life.said[-1] == ("user", "and this")


# ---- close ------------------------------------------------------------------------------------------------------


def test_after_closing_nothing_is_taken_but_what_means_nothing() -> None:
    """B20: each refusal says how to go on."""
    life = interrupted("t2")
    life.pause()
    life.close()
    assert life.session.closed
    assert life.status("t2") is TurnStatus.CANCELLED
    before = life.session
    for command in (life.inject, life.steer, life.pause, life.unpause):
        with pytest.raises(SessionClosed, match="open it anew"):
            command()
    with pytest.raises(SessionClosed):
        life.resume("t1")
    assert life.close() is before
    assert life.interrupt() is before


def test_closing_reports_the_turn_that_a_pause_holds_and_those_of_a_parked_queue() -> None:
    """B20: none vanishes."""
    parked = interrupted("t2", "t3", after="park")
    parked.close()
    assert parked.session.cancelled_by_close == ("t2", "t3")
    held = acting(LOOK)
    held.pause()
    held.finish(0)
    held.close()
    assert held.session.cancelled_by_close == ("t1", "t2")


# ---- steps, failures and time -----------------------------------------------------------------------------------


def test_the_bound_of_steps_counts_what_steering_asks_for() -> None:
    """B21: the input is in the context, but no model was asked; the turn can be resumed, and then answers it."""
    life = living("t1", limits=Limits(max_steps=1))
    life.steer("and this")
    life.answer("first")
    view = turn_view(life.session, "t1")
    assert view is not None
    assert view.error is not None
    assert (view.status, view.error.type) == (TurnStatus.FAILED, MAX_STEPS)
    assert life.said[-1] == ("user", "and this")
    life.resume("t1")
    life.answer("second")
    assert life.status("t1") is TurnStatus.COMPLETED


def test_the_bound_of_steps_counts_anew_in_each_run() -> None:
    """B21, B30: a turn that was resumed has as many as at first; its steps are numbered on."""
    life = living("t1", limits=Limits(max_steps=2))
    for run in (1, 2):
        for _ in range(2):
            assert life.status("t1") is TurnStatus.RUNNING
            life.answer("", LOOK)
            life.start(0)
            life.finish(0)
        view = turn_view(life.session, "t1")
        assert view is not None
        assert view.error is not None
        assert (view.status, view.error.type, view.steps) == (TurnStatus.FAILED, MAX_STEPS, 2 * run)
        life.resume("t1")
    assert not list(flaws(life.session.state.context))


def test_a_turn_that_reaches_its_bound_while_the_session_is_paused_fails_there() -> None:
    """B19, B21: no further step would have begun."""
    life = living("t1", limits=Limits(max_steps=1))
    life.pause()
    life.answer("", LOOK)
    life.start(0)
    life.finish(0)
    assert life.status("t1") is TurnStatus.FAILED


def test_a_failed_turn_can_be_resumed_and_its_error_is_forgotten_when_it_runs() -> None:
    """B22, B30: what was asked is there once, and the half answer never was."""
    life = living("t1")
    life.fail()
    life.resume("t1")
    view = turn_view(life.session, "t1")
    assert view is not None
    assert (view.status, view.error) == (TurnStatus.RUNNING, None)
    life.answer("done")
    assert life.said == [("user", "ask t1"), ("assistant", "done")]


@pytest.mark.parametrize(
    ("calls", "waits", "states"),
    [
        ((LOOK,), [], [ResultState.INTERRUPTED]),
        ((PAY,), ["pay?"], [ResultState.SUCCESS]),
        ((SEND, LOOK, PAY), ["send?", "pay?"], [ResultState.SUCCESS, ResultState.INTERRUPTED, ResultState.SUCCESS]),
    ],
)
def test_a_turn_that_takes_too_long_is_stopped_like_an_interrupted_one_and_has_failed(
    calls: tuple[Call, ...], waits: list[str], states: list[ResultState]
) -> None:
    """B22, B25: tools that only read are given up, those that may have an effect have some time to settle."""
    life = acting(*calls, limits=Limits(turn_timeout_seconds=60))
    life.time_out()
    assert life.wanted == (waits or ["model"])
    for index, call in enumerate(calls):
        if call.effect is not Effect.READ:
            life.finish(index)
    assert result_states(life) == states
    view = turn_view(life.session, "t1")
    assert view is not None
    assert view.error is not None
    assert (view.status, view.error.type) == (TurnStatus.FAILED, TURN_TIMEOUT)
    assert "60 s" in view.error.message
    assert life.status("t2") is TurnStatus.RUNNING


def test_a_tool_that_does_not_settle_after_the_turns_time_is_uncertain() -> None:
    """B25: and keeps the turn from being resumed, as after an interrupt."""
    life = acting(PAY, limits=Limits(turn_timeout_seconds=60))
    operation = life.tool_operation(0)
    life.time_out()
    life.expire(operation)
    assert life.status("t1") is TurnStatus.FAILED
    assert [one.operation_id for one in life.session.uncertain] == [operation]
    life.answer("two")
    with pytest.raises(UncertainOperations):
        life.resume("t1")
    life.finish(0, operation_id=operation)
    life.resume("t1")


def test_a_model_call_that_takes_too_long_leaves_no_half_answer() -> None:
    """B22: the turn has failed, and is not waited for."""
    life = living("t1", limits=Limits(turn_timeout_seconds=60))
    operation = life.model_operation
    life.time_out()
    assert life.status("t1") is TurnStatus.FAILED
    assert life.said == [("user", "ask t1")]
    before = life.session
    life.answer("too late", operation_id=operation)
    assert life.session is before


def test_the_time_of_another_run_or_of_one_that_is_being_stopped_stops_nothing() -> None:
    """B27: a clock that rings late is a late click."""
    life = acting(PAY, limits=Limits(turn_timeout_seconds=60))
    before = life.session
    life.time_out("run-of-t2")
    assert life.session is before
    before = life.interrupt()
    life.time_out("run-of-t1")
    assert life.session is before


def test_a_clock_that_was_set_before_a_pause_rings_too_early() -> None:
    """B19: what the pause took does not count, also when the clock and the end of the pause come at once."""
    life = living("t1", limits=Limits(turn_timeout_seconds=60))
    early = deadline(life.session)
    life.pause()
    life.answer("", LOOK)
    life.start(0)
    life.finish(0)
    life.unpause()
    assert early is not None
    assert advance(life.session, TimeExpired(early.at, early.about)) is life.session
    life.time_out()
    assert life.status("t1") is TurnStatus.FAILED


def test_an_interrupt_while_a_turn_is_stopped_for_its_time_is_heard_too() -> None:
    """B31: the turn has failed all the same, and what was said is in the context."""
    life = acting(PAY, limits=Limits(turn_timeout_seconds=60))
    life.time_out()
    life.interrupt(message="wait")
    life.finish(0, "paid")
    assert life.status("t1") is TurnStatus.FAILED
    assert ("user", "wait") in life.said


def test_a_run_has_as_much_time_as_its_agent_says_and_a_pause_does_not_count() -> None:
    """B19: nor does the time between two runs; nothing rings while it is held."""
    life = living("t1", limits=Limits(turn_timeout_seconds=60))
    began = life.at
    due = deadline(life.session)
    assert due is not None
    assert (due.about, due.at) == ("run-of-t1", began + timedelta(seconds=60))
    life.answer("", LOOK)
    life.start(0)
    life.pause()
    life.finish(0)
    held = life.at
    assert deadline(life.session) is None
    life.at += timedelta(hours=5)
    life.unpause()
    due = deadline(life.session)
    assert due is not None
    assert due.at == began + timedelta(seconds=60) + (life.at - held)
    life.interrupt(partial=Partial.DISCARD)
    assert deadline(life.session) is None
    life.resume("t1", run_id="r2")
    due = deadline(life.session)
    assert due is not None
    assert (due.about, due.at) == ("r2", life.at + timedelta(seconds=60))


def test_without_a_bound_or_without_a_run_nothing_rings() -> None:
    """B22: also while the turn is suspended, for as long as that takes."""
    assert deadline(living("t1").session) is None
    assert deadline(Life().session) is None
    assert deadline(uncertain().session) is None


# ---- interrupts -------------------------------------------------------------------------------------------------


def test_an_interrupt_before_any_worker_took_the_model_call_closes_the_turn_at_once() -> None:
    """B29: there is nobody to wait for."""
    life = living("t1", "t2", eager=False)
    life.interrupt(message="wait")
    assert [life.status("t1"), life.status("t2")] == [TurnStatus.INTERRUPTED, TurnStatus.RUNNING]
    assert life.said == [
        ("user", "ask t1"),
        ("assistant", INTERRUPTED_TEXT),
        ("user", "wait"),
        ("user", "ask t2"),
    ]


def test_an_interrupt_before_any_worker_took_the_tool_calls_closes_the_turn_at_once() -> None:
    """B24, B29: whatever their effect: they did not happen."""
    life = living("t1")
    life.answer("", PAY, SEND)
    life.interrupt()
    assert life.status("t1") is TurnStatus.INTERRUPTED
    assert all("did not happen" in result.text for result in life.results)


@pytest.mark.parametrize("effect", Effect)
def test_an_interrupt_waits_only_for_a_tool_that_may_have_an_effect(effect: Effect) -> None:
    """B25: and as long as it may take, unless its time runs out."""
    life = acting(Call("work", effect))
    life.interrupt()
    if effect is Effect.READ:
        assert life.status("t1") is TurnStatus.INTERRUPTED
        return
    assert life.status("t1") is TurnStatus.RUNNING
    life.expire(life.tool_operation(0))
    assert life.status("t1") is TurnStatus.INTERRUPTED
    assert [one.tool for one in life.session.uncertain] == ["work"]


def test_an_interrupt_of_a_session_that_is_only_held_interrupts_nothing() -> None:
    """B26: idle, paused with a queue, or parked: nothing runs."""
    paused = Life()
    paused.pause()
    paused.submit(turn_id="t1")
    for life in (Life(), paused, interrupted("t2", after="park"), uncertain()):
        before = life.session
        assert life.interrupt(message="stop") is before


def test_an_interrupt_of_an_earlier_run_of_the_same_turn_is_refused() -> None:
    """B27: the run counts, not the turn."""
    life = interrupted()
    life.resume("t1", run_id="r2")
    with pytest.raises(StaleRun, match="'r2'"):
        life.interrupt(run_id="run-of-t1")
    life.interrupt(run_id="r2", partial=Partial.DISCARD)
    assert life.status("t1") is TurnStatus.INTERRUPTED


def test_what_two_interrupts_of_one_run_say_is_both_in_the_context_as_the_users() -> None:
    """B31: in the order in which they came."""
    life = acting(PAY)
    life.interrupt(message="wait a moment")
    life.interrupt()
    life.interrupt(message="I mean it")
    life.finish(0)
    assert life.said[-2] == ("user", "wait a moment\nI mean it")
    assert life.session.state.context[-2].name == "alice"
