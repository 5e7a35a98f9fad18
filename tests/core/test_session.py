from __future__ import annotations

import pytest

from perdure.admission import admit
from perdure.commands import OnBusy, Partial, SubmitTurn, WaitTurn
from perdure.contract import Limits, PageRequest
from perdure.decide import CallModel, CallTool, decide, model_call, tool_invocation
from perdure.errors import QueueFull, RunConflict, SessionBusy, SessionClosed, StaleRun, TurnConflict, TurnNotFound
from perdure.facts import ModelAnswered, TurnSubmitted
from perdure.messages import (
    INTERRUPTED_TEXT,
    Message,
    ResultState,
    Role,
    TextBlock,
    Usage,
    as_blocks,
    chain_all,
    context_origin,
    flaws,
)
from perdure.operations import Effect, operation_id
from perdure.results import Receipt, SessionStatus, TurnStatus
from perdure.rules.ending import MAX_STEPS
from perdure.session import REMEMBERED_REJECTIONS, Session, change
from perdure.state import AgentState
from perdure.turns import REMEMBERED_TURNS, TurnRecord, remember
from perdure.values import FrozenMap, freeze_object
from perdure.views import context_page, interrupt_receipt, session_view, submit_receipt, transcript_page, turn_view
from tests.support.lives import KEY, Call, Life, result_states
from tests.support.strategies import EPOCH

PAY = Call("pay", Effect.ONCE)
SEND = Call("send", Effect.IDEMPOTENT)
LOOK = Call("look", Effect.READ)


def living(*turns: str) -> Life:
    """Return a session with these turns submitted."""
    life = Life()
    for turn_id in turns:
        life.submit(f"ask {turn_id}", turn_id=turn_id)
    return life


def acting(*calls: Call, started: bool = True) -> Life:
    """Return a session whose first turn has these tool calls under way."""
    life = living("t1")
    life.answer("let me see", *calls)
    for index, call in enumerate(calls):
        if started and call.refusal is None and call.planned:
            life.start(index)
    return life


# ---- turns and their queue --------------------------------------------------------------------------------------


def test_turns_run_one_after_the_other_and_their_messages_do_not_mix() -> None:
    """B11: the second starts when the first has settled, and not before."""
    life = living("t1", "t2")
    assert life.wanted == ["model"]
    assert [life.status("t1"), life.status("t2")] == [TurnStatus.RUNNING, TurnStatus.QUEUED]
    assert life.said == [("user", "ask t1")]
    life.answer("one")
    assert [life.status("t1"), life.status("t2")] == [TurnStatus.COMPLETED, TurnStatus.RUNNING]
    life.answer("two")
    assert life.said == [("user", "ask t1"), ("assistant", "one"), ("user", "ask t2"), ("assistant", "two")]
    assert life.wanted == []


def test_a_turn_takes_as_many_steps_as_its_model_asks_for_tools() -> None:
    """B30: steps count from 1, and each model call is another operation."""
    life = living("t1")
    first = life.model_operation
    life.answer("", LOOK)
    life.start(0)
    life.finish(0, "it is there")
    assert life.wanted == ["model"]
    assert life.model_operation != first
    life.answer("found it")
    view = turn_view(life.session, "t1")
    assert view is not None
    assert (view.status, view.steps, view.output) == (TurnStatus.COMPLETED, 2, "found it")
    assert view.usage == Usage(20, 10) == life.session.usage
    assert life.said == [("user", "ask t1"), ("assistant", ""), ("tool", ""), ("assistant", "found it")]
    assert not list(flaws(life.session.state.context))
    assert life.kinds("t1") == ["input", "run", "assistant", "tool_call", "tool_result", "assistant", "turn"]


def test_the_same_submit_again_is_the_same_turn_and_another_input_is_a_conflict() -> None:
    """B13: while it waits, while it runs, when it has settled, and after the session was carried over."""
    life = living("t1", "t2")
    for _ in range(2):
        before = life.session
        life.submit("ask t1", turn_id="t1")
        life.submit("ask t2", turn_id="t2", run_id="another", on_busy=OnBusy.REJECT)
        assert life.session is before
        for turn_id in ("t1", "t2"):
            with pytest.raises(TurnConflict, match=turn_id):
                life.submit("something else", turn_id=turn_id)
        life.answer("done")
        life.carry_over()
    assert life.status("t1") is TurnStatus.COMPLETED


def test_a_repeated_submit_gets_the_receipt_of_the_turn_as_it_stands() -> None:
    """B13: queued with its place, then running, then settled."""
    life = living("t1", "t2")
    queued = Receipt(turn_id="t2", run_id="run-of-t2", disposition="queued", position=1)
    assert submit_receipt(life.session, "t2") == queued
    assert submit_receipt(life.session, "t2", repeated=True) == change(queued, disposition="duplicate")
    life.answer("one")
    life.answer("two")
    settled = change(queued, disposition="settled", position=None)
    assert submit_receipt(life.session, "t2", repeated=True) == settled
    assert submit_receipt(life.session, "t3") is None


def test_the_submit_above_the_bound_of_the_queue_is_refused_and_nothing_accepted_is_dropped() -> None:
    """B15: the running turn does not count; what was full has room again when a turn has run."""
    life = Life(limits=Limits(queue_limit=2))
    life.submit(turn_id="t0")
    life.answer("now the limits are known")
    for number in (1, 2, 3):
        life.submit(turn_id=f"t{number}")
    before = life.session
    with pytest.raises(QueueFull, match="allows 2"):
        life.submit(turn_id="t4")
    assert life.session is before
    life.submit(turn_id="t3")
    life.answer("one")
    life.submit(turn_id="t4")
    assert [turn.turn_id for turn in life.session.queue] == ["t3", "t4"]


def test_a_submit_that_would_rather_be_refused_than_wait_is_refused_while_the_session_is_busy() -> None:
    """B14: `reject`."""
    life = Life()
    life.submit(turn_id="t1", on_busy=OnBusy.REJECT)
    with pytest.raises(SessionBusy):
        life.submit(turn_id="t2", on_busy=OnBusy.REJECT)
    life.answer("done")
    life.submit(turn_id="t2", on_busy=OnBusy.REJECT)
    assert life.status("t2") is TurnStatus.RUNNING


def test_a_run_id_can_be_used_once_in_a_session() -> None:
    """B32: whether its turn waits, runs or has settled; a repeated submit is no second use."""
    life = Life()
    life.submit(turn_id="t1", run_id="r1")
    life.submit(turn_id="t2", run_id="r2")
    for taken in ("r1", "r2"):
        with pytest.raises(RunConflict, match=taken):
            life.submit(turn_id="t3", run_id=taken)
    life.answer("done")
    life.carry_over()
    with pytest.raises(RunConflict):
        life.submit(turn_id="t3", run_id="r1")
    life.submit(turn_id="t1", run_id="r1")


def test_waiting_for_a_turn_that_the_session_does_not_know_is_refused() -> None:
    """B16: with the number of turns that it remembers."""
    life = living("t1")
    admit(life.session, WaitTurn(turn_id="t1"))
    with pytest.raises(TurnNotFound, match="remembers the last 1"):
        admit(life.session, WaitTurn(turn_id="t2"))


def test_the_oldest_settled_turns_are_forgotten_and_none_that_something_depends_on() -> None:
    """B13: bounded memory; a turn that waits, runs or is suspended is never forgotten."""

    def record(number: int, status: TurnStatus) -> TurnRecord:
        return TurnRecord(turn_id=f"t{number}", run_id=f"r{number}", input_digest="", status=status, submitted_at=EPOCH)

    first = (record(0, TurnStatus.SUSPENDED), record(1, TurnStatus.QUEUED), record(2, TurnStatus.RUNNING))
    records: tuple[TurnRecord, ...] = first
    for number in range(3, REMEMBERED_TURNS + 10):
        records = remember(records, record(number, TurnStatus.COMPLETED))
    assert len(records) == REMEMBERED_TURNS
    assert records[:3] == first
    assert [records[3].turn_id, records[-1].turn_id] == ["t13", f"t{REMEMBERED_TURNS + 9}"]


# ---- tool calls ---------------------------------------------------------------------------------------------------


def test_calls_of_one_step_run_side_by_side_and_their_results_stand_in_the_order_of_the_calls() -> None:
    """B36: whatever the order in which they end."""
    life = acting(LOOK, PAY, SEND)
    assert life.wanted == ["look", "pay", "send"]
    life.finish(2, "sent")
    life.finish(0, "seen")
    assert life.wanted == ["pay"]
    life.finish(1, "paid")
    assert [result.text for result in life.results] == ["seen", "paid", "sent"]
    calls = [call.id for message in life.session.state.context for call in message.calls]
    assert [result.id for result in life.results] == calls
    assert [result.name for result in life.results] == ["look", "pay", "send"]


def test_two_equal_calls_of_one_step_are_two_operations_that_no_other_step_repeats() -> None:
    """B35: the same tool with the same arguments, in one step and in the next."""
    life = acting(PAY, PAY)
    first = [life.tool_operation(0), life.tool_operation(1)]
    assert first == [operation_id(KEY.workflow_id, "t1", 1, index, first_run_id="run-of-t1") for index in (0, 1)]
    life.finish(0)
    life.carry_over()
    assert life.tool_operation(1) == first[1]
    life.finish(1)
    life.answer("", PAY)
    assert life.tool_operation(0) not in first


def test_a_refused_call_has_its_result_at_once_and_the_others_run() -> None:
    """B37: the model sees an error result where the call stood; nothing was wanted for it."""
    life = acting(Call("nonsense", refusal="there is no tool 'nonsense'"), LOOK)
    assert life.wanted == ["look"]
    life.finish(1, "seen")
    assert result_states(life) == [ResultState.ERROR, ResultState.SUCCESS]
    assert life.results[0].text == "there is no tool 'nonsense'"
    assert life.wanted == ["model"]


def test_when_every_call_is_refused_the_model_is_asked_again() -> None:
    """B37: the turn goes on, and every call has its result."""
    life = acting(Call(refusal="no"), Call(refusal="no"))
    assert life.wanted == ["model"]
    assert result_states(life) == [ResultState.ERROR, ResultState.ERROR]
    assert not list(flaws(life.session.state.context))


def test_a_call_without_a_plan_gets_an_error_result_and_never_runs() -> None:
    """B37: a worker of another version can't make a session run what it knows nothing of."""
    life = acting(Call(planned=False), LOOK)
    assert life.wanted == ["look"]
    life.finish(1)
    assert "no plan" in life.results[0].text
    life.answer("", Call(planned=False))
    assert life.wanted == ["model"]
    assert not list(flaws(life.session.state.context))


def test_a_turn_that_needs_more_steps_than_its_agent_allows_has_failed_and_its_context_is_valid() -> None:
    """B21: error type `max_steps`; the results of the last step are there, and the next turn runs."""
    life = Life(limits=Limits(max_steps=2))
    life.submit(turn_id="t1")
    life.submit(turn_id="t2")
    for _ in range(2):
        life.answer("", LOOK)
        life.start(0)
        life.finish(0)
    view = turn_view(life.session, "t1")
    assert view is not None
    assert view.error is not None
    assert (view.status, view.error.type, view.steps) == (TurnStatus.FAILED, MAX_STEPS, 2)
    assert life.status("t2") is TurnStatus.RUNNING
    assert not list(flaws(life.session.state.context))


def test_a_turn_that_ends_at_its_last_step_has_completed() -> None:
    """B21: the bound counts model calls, and the last one may answer."""
    life = Life(limits=Limits(max_steps=1))
    life.submit(turn_id="t1")
    life.answer("done")
    assert life.status("t1") is TurnStatus.COMPLETED


def test_a_failed_turn_keeps_what_was_asked_and_why_it_failed_and_the_next_one_runs() -> None:
    """B22: no half answer in the context."""
    life = living("t1", "t2")
    life.fail()
    view = turn_view(life.session, "t1")
    assert view is not None
    assert view.error is not None
    assert (view.status, view.error.type, view.error.message) == (TurnStatus.FAILED, "ModelError", "no such model")
    assert life.said == [("user", "ask t1"), ("user", "ask t2")]
    life.answer("two")
    assert life.status("t2") is TurnStatus.COMPLETED


def test_half_an_answer_that_nobody_asked_for_fails_the_turn() -> None:
    """B76: a model call that was cancelled from outside gives no answer, and none of its calls runs."""
    life = living("t1")
    life.answer("hal", PAY, partial=True)
    assert life.status("t1") is TurnStatus.FAILED
    assert life.wanted == []
    assert life.said == [("user", "ask t1")]


def test_a_late_or_repeated_answer_changes_nothing() -> None:
    """B23: answers are matched by operation, so that none is taken for another's."""
    life = living("t1")
    first = life.model_operation
    life.answer("", LOOK)
    before = life.session
    life.answer("again", operation_id=first)
    life.fail(operation_id=first)
    life.answer("of nobody", operation_id="nobody's")
    life.finish(0, operation_id="nobody's")
    life.lose(0, operation_id="nobody's")
    life.expire("nobody's")
    assert life.session is before
    tool = life.tool_operation(0)
    life.finish(0, "seen")
    before = life.session
    life.finish(0, "seen twice", operation_id=tool)
    life.lose(0, operation_id=tool)
    assert life.session is before


def test_a_lost_call_suspends_the_turn_when_the_others_have_settled_and_holds_the_queue() -> None:
    """B34: nothing is run again by itself; the session shows what is outstanding."""
    life = acting(PAY, LOOK)
    life.submit(turn_id="t2")
    operation = life.tool_operation(0)
    life.lose(0)
    assert life.status("t1") is TurnStatus.RUNNING
    life.finish(1, "seen")
    assert life.status("t1") is TurnStatus.SUSPENDED
    assert life.wanted == []
    assert life.status("t2") is TurnStatus.QUEUED
    view = session_view(life.session)
    assert view.status is SessionStatus.NEEDS_RECONCILIATION
    assert view.active is None
    assert [one.operation_id for one in view.uncertain] == [operation]
    (interaction,) = view.interactions
    assert [call.operation_id for call in interaction.calls] == [operation]
    assert view.unfinished == "t1"
    with pytest.raises(SessionBusy):
        life.submit(turn_id="t3", on_busy=OnBusy.REJECT)


def test_an_interrupt_does_not_touch_a_suspended_turn() -> None:
    """B26: nothing runs, so that nothing is interrupted; the receipt says so."""
    life = acting(PAY)
    life.lose(0)
    before = life.session
    assert not interrupt_receipt(before).interrupted
    assert life.interrupt() is before


# ---- interrupts -----------------------------------------------------------------------------------------------------


def test_an_interrupt_of_an_idle_session_changes_nothing() -> None:
    """B26: and the next turn is not affected."""
    life = Life()
    before = life.session
    assert not interrupt_receipt(before).interrupted
    assert life.interrupt(message="stop") is before
    life.submit(turn_id="t1")
    life.answer("done")
    assert life.status("t1") is TurnStatus.COMPLETED


def test_an_interrupt_that_names_another_run_is_refused_and_the_running_one_goes_on() -> None:
    """B27: a late click stops nothing that came after it."""
    life = living("t1", "t2")
    life.answer("one")
    for stale in ("run-of-t1", "nobody's"):
        with pytest.raises(StaleRun, match="run-of-t2"):
            life.interrupt(run_id=stale)
    assert life.wanted == ["model"]
    assert interrupt_receipt(life.session).run_id == "run-of-t2"
    life.interrupt(run_id="run-of-t2", partial=Partial.DISCARD)
    assert life.status("t2") is TurnStatus.INTERRUPTED
    with pytest.raises(StaleRun, match="nothing runs"):
        life.interrupt(run_id="run-of-t2")


def test_an_interrupted_model_call_may_hand_back_what_it_said_so_far() -> None:
    """B23: `keep` waits for it; it stands in the context marked interrupted."""
    life = living("t1", "t2")
    life.interrupt()
    assert life.wanted == ["model?"]
    assert life.status("t1") is TurnStatus.RUNNING
    life.answer("as I was say", partial=True)
    assert life.status("t1") is TurnStatus.INTERRUPTED
    assert life.said[:2] == [("user", "ask t1"), ("assistant", "as I was say")]
    assert life.session.state.context[1].interrupted
    assert life.status("t2") is TurnStatus.RUNNING


@pytest.mark.parametrize("how", ["nothing said", "failed", "too late", "blank"])
def test_an_interrupted_model_call_that_hands_nothing_back_is_closed_all_the_same(how: str) -> None:
    """B23: by an empty answer, by its failure, or when its time has run out."""
    life = living("t1")
    operation = life.model_operation
    life.interrupt()
    match how:
        case "nothing said":
            life.answer("", PAY)
        case "failed":
            life.fail()
        case "too late":
            life.expire(operation)
        case _:
            life.answer("", partial=True)
    assert life.status("t1") is TurnStatus.INTERRUPTED
    assert life.said == [("user", "ask t1"), ("assistant", INTERRUPTED_TEXT)]
    assert life.session.state.context[-1].interrupted
    assert life.wanted == []


def test_discarding_does_not_wait_and_no_answer_appears_later() -> None:
    """B23: also when the answer was on its way."""
    life = living("t1")
    operation = life.model_operation
    life.interrupt(partial=Partial.DISCARD)
    assert life.status("t1") is TurnStatus.INTERRUPTED
    before = life.session
    life.answer("too late", operation_id=operation)
    assert life.session is before
    assert life.said == [("user", "ask t1"), ("assistant", INTERRUPTED_TEXT)]


def test_a_second_interrupt_that_discards_ends_the_waiting_of_the_first() -> None:
    """B23: whoever is in a hurry may say so."""
    life = living("t1")
    life.interrupt()
    life.interrupt(partial=Partial.DISCARD)
    assert life.status("t1") is TurnStatus.INTERRUPTED


def test_calls_of_an_answer_that_came_after_the_interrupt_never_run() -> None:
    """B24: its text is kept, its calls are not, so that no call is without a result."""
    life = living("t1")
    life.interrupt()
    life.answer("I shall pay now", PAY)
    assert life.wanted == []
    assert life.said[-1] == ("assistant", "I shall pay now")
    assert not list(flaws(life.session.state.context))
    assert not [call for message in life.session.state.context for call in message.calls]


def test_an_interrupt_between_the_calls_and_their_execution_gives_every_call_a_result() -> None:
    """B24: they did not happen, and the model is told so."""
    life = acting(LOOK, PAY, started=False)
    life.interrupt()
    assert life.status("t1") is TurnStatus.INTERRUPTED
    assert result_states(life) == [ResultState.INTERRUPTED] * 2
    assert all("did not happen" in result.text for result in life.results)
    assert not list(flaws(life.session.state.context))


def test_an_interrupt_cancels_what_only_reads_and_waits_for_what_may_have_an_effect() -> None:
    """B25: the real result of a tool that settles in time is kept."""
    life = acting(LOOK, PAY, SEND)
    life.interrupt(message="wait a moment")
    assert life.wanted == ["pay?", "send?"]
    life.finish(2, "sent")
    life.finish(1, "paid")
    assert life.status("t1") is TurnStatus.INTERRUPTED
    assert result_states(life) == [ResultState.INTERRUPTED, ResultState.SUCCESS, ResultState.SUCCESS]
    assert life.said[-2:] == [("assistant", INTERRUPTED_TEXT), ("user", "wait a moment")]
    assert life.session.uncertain == ()


def test_what_does_not_settle_in_time_is_uncertain_until_it_settles_by_itself() -> None:
    """B25: the turn is interrupted, the context says that nobody knows, and a late result makes it certain."""
    life = acting(PAY)
    operation = life.tool_operation(0)
    life.interrupt()
    life.expire(operation)
    assert life.status("t1") is TurnStatus.INTERRUPTED
    assert [one.operation_id for one in life.session.uncertain] == [operation]
    assert "unknown" in life.results[0].text
    context = life.session.state.context
    life.carry_over()
    life.finish(0, "paid", operation_id=operation)
    assert life.session.uncertain == ()
    assert life.session.state.context == context
    assert life.session.transcript[-1].data["late"] is True
    before = life.session
    life.finish(0, "paid", operation_id=operation)
    assert life.session is before


def test_a_result_that_comes_while_others_still_have_time_is_the_calls_result() -> None:
    """B25: its own time had run out, but the turn was not closed yet."""
    life = acting(PAY, SEND)
    pay = life.tool_operation(0)
    life.interrupt()
    life.expire(pay)
    assert [one.operation_id for one in life.session.uncertain] == [pay]
    life.finish(0, "paid", operation_id=pay)
    assert life.session.uncertain == ()
    assert life.status("t1") is TurnStatus.RUNNING
    life.finish(1, "sent")
    assert [result.text for result in life.results] == ["paid", "sent"]


def test_time_that_runs_out_for_a_turn_that_was_not_stopped_changes_nothing() -> None:
    """B25: only what was stopped has a bounded time."""
    life = acting(PAY)
    before = life.session
    life.expire(life.tool_operation(0))
    assert life.session is before


# ---- closing ------------------------------------------------------------------------------------------------------


def test_closing_an_idle_session_closes_it() -> None:
    """B20: with its reason, and for good: what comes later is refused."""
    life = living("t1")
    life.answer("done")
    life.close("over")
    assert life.session.closed
    assert life.session.close_reason == "over"
    assert life.session.cancelled_by_close == ()
    assert life.status("t1") is TurnStatus.COMPLETED
    with pytest.raises(SessionClosed):
        life.submit(turn_id="t2")
    life.submit("ask t1", turn_id="t1")
    before = life.session
    assert life.close("again") is before


def test_closing_cancels_what_runs_and_what_waits_and_says_which() -> None:
    """B20: none vanishes."""
    life = living("t1", "t2", "t3")
    operation = life.model_operation
    life.close()
    assert life.session.closed
    assert life.session.cancelled_by_close == ("t1", "t2", "t3")
    assert {life.status(turn_id) for turn_id in ("t1", "t2", "t3")} == {TurnStatus.CANCELLED}
    assert life.session.queue == ()
    assert not list(flaws(life.session.state.context))
    before = life.session
    life.answer("too late", operation_id=operation)
    assert life.session is before


def test_closing_waits_for_tools_that_may_have_an_effect() -> None:
    """B20, B25: the session is closing, and closed when they have settled."""
    life = acting(PAY, LOOK)
    life.close()
    assert not life.session.closed
    assert life.session.status is SessionStatus.CLOSED
    assert life.wanted == ["pay?"]
    life.finish(0, "paid")
    assert life.session.closed
    assert life.status("t1") is TurnStatus.CANCELLED
    assert result_states(life) == [ResultState.SUCCESS, ResultState.INTERRUPTED]


def test_closing_a_session_whose_turn_is_suspended_cancels_it_and_keeps_the_uncertain_operation() -> None:
    """B20: closing makes nothing certain."""
    life = acting(PAY)
    life.lose(0)
    life.close()
    assert life.session.closed
    assert life.status("t1") is TurnStatus.CANCELLED
    assert len(life.session.uncertain) == 1
    assert not list(flaws(life.session.state.context))


def test_an_interrupt_after_closing_leaves_the_turn_cancelled() -> None:
    """B20: what was closed is not merely interrupted."""
    life = acting(PAY)
    life.close()
    life.interrupt(message="stop", partial=Partial.DISCARD)
    life.expire(life.tool_operation(0))
    assert life.status("t1") is TurnStatus.CANCELLED


def test_closing_after_an_interrupt_makes_the_turn_cancelled() -> None:
    """B20: and does not wait for half an answer any more."""
    life = living("t1")
    life.interrupt()
    life.close()
    assert life.status("t1") is TurnStatus.CANCELLED
    assert life.session.closed


# ---- what is recorded and what can be seen --------------------------------------------------------------------------


def test_refused_signals_are_counted_and_the_last_ones_are_shown() -> None:
    """B16: they change nothing else."""
    life = living("t1")
    state = life.session.state
    for number in range(REMEMBERED_REJECTIONS + 5):
        life.reject(f"Error{number}")
    view = session_view(life.session)
    assert view.rejected_count == REMEMBERED_REJECTIONS + 5
    assert [each.error for each in view.rejections] == [f"Error{number}" for number in range(5, 25)]
    assert life.session.state is state


def test_a_new_session_takes_the_contents_of_its_seed_and_its_own_identity() -> None:
    """B4, B9: whoever's snapshot it was, the state belongs to the session's key."""
    said = Message(id="1", role=Role.USER, content=as_blocks("hello"))
    seed = AgentState(session_id="other", user_id="bob", agent_id="x", summary="so far", context=(said,), revision=7)
    session = Session.new(KEY, seed)
    assert session.key == KEY
    assert (session.state.summary, session.state.context, session.state.revision) == ("so far", (said,), 7)
    assert session.head == chain_all(context_origin("so far"), [said])
    assert session.known == session.mark


def test_a_model_call_carries_where_the_context_ends_and_what_is_new_in_it() -> None:
    """B57: not the conversation, nor the answer that the worker gave itself."""
    life = acting(LOOK)
    life.finish(0, "seen")
    (wish,) = decide(life.session)
    assert isinstance(wish, CallModel)
    call = model_call(life.session, wish)
    assert call.head == life.session.mark
    assert call.base.position == 2
    assert call.delta == life.session.state.context[2:]
    assert (call.turn_id, call.run_id, call.step) == ("t1", "run-of-t1", 2)


def test_what_is_new_does_not_travel_when_it_is_too_large() -> None:
    """B60: the worker reads it from the session instead."""
    life = Life()
    life.submit("x" * 300_000, turn_id="t1")
    (wish,) = decide(life.session)
    assert isinstance(wish, CallModel)
    assert model_call(life.session, wish).delta is None


def test_a_tool_call_carries_its_operation_its_arguments_and_whose_session_it_is() -> None:
    """B66: all that a tool's context says comes from here."""
    life = acting(PAY, LOOK)
    wish = decide(life.session)[1]
    assert isinstance(wish, CallTool)
    invocation = tool_invocation(life.session, wish)
    assert (invocation.agent_id, invocation.user_id, invocation.session_id) == ("support", "alice", "order-A1042")
    assert (invocation.turn_id, invocation.run_id, invocation.step, invocation.index) == ("t1", "run-of-t1", 1, 1)
    assert invocation.operation_id == wish.operation_id
    assert wish.activity_id == "t1/1/look/1"


def test_attributes_of_a_turn_reach_its_calls_and_not_the_state() -> None:
    """B67: nor a prompt."""
    life = Life()
    command = SubmitTurn(input=(TextBlock("hi"),), turn_id="t1", attributes=FrozenMap({"tenant": "acme"}))
    admit(life.session, command)
    life.take(TurnSubmitted(life.now(), "t1", "r1", command.input, command.on_busy, command.attributes))
    life.answer("", PAY)
    wish = decide(life.session)[0]
    assert isinstance(wish, CallTool)
    assert tool_invocation(life.session, wish).attributes == {"tenant": "acme"}
    assert "acme" not in life.session.state.to_json()


def test_pages_of_the_context_begin_where_the_reader_stands_if_the_reader_stands_right() -> None:
    """B5: a reader whose digest is not the session's begins again, with the summary."""
    life = living("t1")
    life.answer("one")
    life.submit(turn_id="t2")
    context = life.session.state.context
    first = chain_all(context_origin(""), context[:1])
    page = context_page(life.session, PageRequest(after=1, digest=first))
    assert (page.start, page.messages, page.head) == (1, context[1:], life.session.mark)
    assert context_page(life.session, PageRequest(after=1, digest="wrong")).start == 0
    assert context_page(life.session, PageRequest(after=99, digest="wrong")).start == 0
    assert context_page(life.session, PageRequest(after=0, limit=1)).messages == context[:1]


def test_pages_are_split_by_size_and_hold_at_least_one_entry() -> None:
    """B10: under 1 MB, unless one entry alone is larger."""
    life = Life()
    for number, size in enumerate((1_200_000, 700_000, 700_000)):
        life.submit("x" * size, turn_id=f"t{number}")
        life.answer("y")
    after = 0
    pages = 0
    while (page := context_page(life.session, PageRequest(after=after))).messages:
        after += len(page.messages)
        pages += 1
    assert (after, pages) == (6, 3)
    seen: list[int] = []
    while entries := transcript_page(life.session, PageRequest(after=len(seen))).entries:
        seen += [entry.seq for entry in entries]
    assert seen == list(range(1, life.session.last_seq + 1))


def test_a_queued_turn_is_shown_shortened() -> None:
    """B14: whoever looks at the queue sees what waits and for whom."""
    life = living("t1")
    life.submit("x" * 500, turn_id="t2")
    (entry,) = session_view(life.session).queue
    assert (entry.turn_id, len(entry.text), entry.text[-1]) == ("t2", 80, "…")


def test_arguments_as_deep_as_they_may_be_go_through_a_whole_session_and_its_carrying_over() -> None:
    """B58, B77: nothing that was accepted makes a later fact fail or a session unreadable."""
    deep: object = "x"
    for _ in range(63):
        deep = [deep]
    life = living("t1")
    operation = life.model_operation
    answer = life.model_answer(operation, "", [PAY], partial=False)
    arguments = freeze_object({"deep": deep})
    (block,) = answer.message.calls
    message = answer.message.model_copy(update={"content": (block.model_copy(update={"input": arguments}),)})
    plan = answer.plans[0].model_copy(update={"arguments": arguments})
    answer = answer.model_copy(update={"message": message, "plans": (plan,)})
    life.take(ModelAnswered(life.now(), operation, answer))
    before = life.session
    life.carry_over()
    assert life.session == before
    life.start(0)
    life.lose(0)
    assert life.status("t1") is TurnStatus.SUSPENDED
    before = life.session
    life.carry_over()
    assert life.session == before
