"""Operations whose outcome is unknown: asked of their tool, stated by somebody, or settled by themselves."""

from __future__ import annotations

import pytest

from perdure.admission import admit
from perdure.changes import AddRule
from perdure.commands import Reconcile, Settlement
from perdure.decide import AskTool, CallModel, decide, inquiry, model_call
from perdure.errors import InvalidCommand, UncertainOperations
from perdure.facts import ToolLost
from perdure.messages import ResultState, flaws
from perdure.operations import Effect
from perdure.permissions import PermissionBehavior, PermissionRule
from perdure.results import SessionStatus, TurnStatus
from perdure.rules.outcomes import MAX_RERUNS
from perdure.turns import Doubt
from perdure.values import FrozenMap
from perdure.views import reconcile_receipt
from tests.support.invariants import digests_say_what_the_context_is
from tests.support.lives import Call, Life, result_states

PAY = Call("pay", Effect.ONCE)
CHECKED = Call("pay", Effect.ONCE, reconcilable=True)
SEND = Call("send", Effect.ONCE)
LOOK = Call("look", Effect.READ)


def acting(*calls: Call) -> Life:
    life = Life()
    life.submit(turn_id="t1")
    life.answer("", *calls)
    for index in range(len(calls)):
        life.start(index)
    return life


def lost(*calls: Call) -> Life:
    """Return a life in which nobody knows what became of these calls."""
    life = acting(*calls)
    for index in range(len(calls)):
        life.lose(index)
    return life


def interrupted_while_paying(call: Call) -> tuple[Life, str]:
    """Return a life whose turn was stopped while its call was under way, which it still is, and that operation's id."""
    life = acting(call)
    operation = life.tool_operation(0)
    life.interrupt()
    life.expire(operation)
    return life, operation


# ---- asking the tool ------------------------------------------------------------------------------------------------


def test_a_tool_that_can_tell_is_asked_before_anybody_else_is() -> None:
    """B34: with the operation's own id."""
    life = lost(CHECKED)
    assert life.wanted == ["what became of pay"]
    assert life.status("t1") is TurnStatus.RUNNING
    assert life.session.status is SessionStatus.ACTIVE
    (wish,) = decide(life.session)
    assert isinstance(wish, AskTool)
    asked = inquiry(life.session, wish)
    assert asked is not None
    assert asked.invocation.operation_id == wish.about == life.session.uncertain[0].operation_id
    assert wish.operation_id != wish.about


def test_what_has_happened_is_the_calls_result() -> None:
    """B34: the turn goes on in the same run."""
    life = lost(CHECKED)
    life.find_out("happened", "paid, number 7")
    assert life.session.uncertain == ()
    assert [result.text for result in life.results] == ["paid, number 7"]
    assert life.wanted == ["model"]


def test_what_did_not_happen_is_run_under_the_same_id() -> None:
    """B34, B35."""
    life = acting(CHECKED)
    operation = life.tool_operation(0)
    life.lose(0)
    life.find_out("did_not_happen")
    assert life.tool_operation(0) == operation
    life.start(0)
    life.finish(0, "paid")
    assert [result.text for result in life.results] == ["paid"]


def test_a_call_that_is_lost_each_time_is_not_run_for_ever() -> None:
    """B34: after a few times somebody has to look."""
    life = acting(CHECKED)
    for _ in range(MAX_RERUNS):
        life.lose(0)
        life.find_out("did_not_happen")
        life.start(0)
    life.lose(0)
    assert life.wanted == []
    assert life.session.status is SessionStatus.NEEDS_RECONCILIATION


def test_a_tool_that_can_not_tell_leaves_it_to_people() -> None:
    """B34: the turn is suspended then, and not before."""
    life = lost(CHECKED)
    life.find_out("unknown")
    assert life.status("t1") is TurnStatus.SUSPENDED
    assert life.asked.kind == "reconciliation"
    assert life.asked.calls[0].operation_id == life.session.uncertain[0].operation_id


def test_other_calls_of_the_step_go_on_while_a_tool_is_asked() -> None:
    """B36."""
    life = acting(CHECKED, LOOK)
    life.lose(0)
    assert life.wanted == ["look", "what became of pay"]
    life.find_out("unknown")
    assert life.status("t1") is TurnStatus.RUNNING
    life.finish(1)
    assert life.status("t1") is TurnStatus.SUSPENDED


def test_a_worker_that_was_cut_off_may_be_at_it_for_as_long_as_its_tool_may_take() -> None:
    """B34: what has not happened until then is not believed before."""
    life = acting(CHECKED)
    life.take(ToolLost(life.now(), life.tool_operation(0), "the worker was lost", over=False))
    (wish,) = decide(life.session)
    assert isinstance(wish, AskTool)
    asked = inquiry(life.session, wish)
    assert asked is not None
    assert asked.over_by is not None
    assert (asked.over_by - life.at).total_seconds() == 60


def test_input_for_whichever_turn_comes_is_no_talk_of_others() -> None:
    """B30: a model is reminded only where another turn was answered in between."""
    life = Life()
    life.submit("refund A1", turn_id="t1")
    life.answer("", LOOK)
    life.interrupt()
    life.inject("by the way")
    life.resume("t1")
    (wish,) = decide(life.session)
    assert isinstance(wish, CallModel)
    assert model_call(life.session, wish).projections == ()


def test_an_interrupt_ends_the_turn_while_its_tool_is_being_asked() -> None:
    """B23, B34: the answer settles the operation, and changes nothing of the context."""
    life = lost(CHECKED)
    life.interrupt()
    assert life.status("t1") is TurnStatus.INTERRUPTED
    assert life.wanted == ["what became of pay"]
    said = life.session.state.context
    with pytest.raises(UncertainOperations):
        life.resume("t1")
    life.find_out("happened")
    assert life.session.state.context == said
    life.resume("t1")


def test_what_is_still_under_way_when_its_turn_ends_is_asked_about_only_when_it_is_lost() -> None:
    """B25, B34: before that, what has not happened may still happen."""
    life, operation = interrupted_while_paying(CHECKED)
    assert [one.doubt for one in life.session.uncertain] == [Doubt.FLYING]
    assert life.wanted == []
    assert life.session.status is SessionStatus.ACTIVE
    life.lose(0, operation_id=operation)
    assert life.wanted == ["what became of pay"]
    life.find_out("did_not_happen")
    assert life.session.uncertain == ()
    assert life.wanted == [], "its turn has ended: nothing runs"


# ---- people who say -------------------------------------------------------------------------------------------------


def test_a_suspended_turn_goes_on_in_a_new_run_when_somebody_says_what_happened() -> None:
    """B34."""
    life = lost(PAY)
    life.reconcile(every="happened")
    assert [(result.state, result.text) for result in life.results] == [(ResultState.SUCCESS, "as the ledger says")]
    assert life.wanted == ["model"]
    assert reconcile_receipt(life.session, "t1").disposition == "started"
    record = life.session.record("t1")
    assert record is not None
    assert [run.outcome for run in record.runs] == [TurnStatus.SUSPENDED, None]
    entry = next(entry for entry in life.session.transcript if entry.data.get("command") == "reconcile")
    assert (entry.actor, entry.data["reason"]) == ("bob", "looked it up")


def test_a_deny_rule_that_came_meanwhile_holds_for_what_did_not_happen() -> None:
    """B41: deny beats everything, also what is handed out again."""
    life = Life()
    life.submit(turn_id="t1")
    life.answer("", Call("pay", Effect.ONCE, reconcilable=True))
    life.start(0)
    life.lose(0)
    life.update(AddRule(PermissionRule(tool_name="pay", behavior=PermissionBehavior.DENY)))
    life.find_out("did_not_happen")
    assert life.wanted == ["model"]
    assert life.results[-1].state is ResultState.DENIED


def test_what_may_still_be_under_way_is_not_said_to_have_not_happened() -> None:
    """B34: neither by its tool nor by a person; a moment later it may have."""
    life = Life()
    life.submit(turn_id="t1")
    life.answer("", PAY)
    life.take(ToolLost(life.now(), life.tool_operation(0), "its time was over", over=False))
    (lost,) = life.session.uncertain
    assert lost.over_by is not None
    stated = Settlement.model_validate({"outcome": "did_not_happen"})
    command = Reconcile(outcomes=FrozenMap({lost.operation_id: stated}), reason="looked it up")
    with pytest.raises(UncertainOperations, match="under way until"):
        admit(life.session, command, life.at)
    admit(life.session, command, lost.over_by)
    happened = Reconcile(
        outcomes=FrozenMap({lost.operation_id: Settlement.model_validate({"outcome": "happened"})}), reason="seen"
    )
    admit(life.session, happened, life.at)


def test_what_somebody_says_did_not_happen_is_run_under_the_same_id() -> None:
    """B34."""
    life = acting(PAY)
    operation = life.tool_operation(0)
    life.lose(0)
    life.reconcile(every="did_not_happen")
    assert life.tool_operation(0) == operation


def test_what_nobody_can_tell_is_closed_as_unknown_and_the_model_is_told() -> None:
    """B34."""
    life = lost(PAY)
    life.reconcile(every="unresolved")
    assert result_states(life) == [ResultState.ERROR]
    assert "nobody could tell" in life.results[0].text


def test_just_the_outstanding_operations_are_settled_all_at_once() -> None:
    """B34: a part of them, others, or none are refused, and nothing changes."""
    life = lost(PAY, SEND)
    before = life.session
    for wrong in ({"pay": "happened"}, {}):
        with pytest.raises(InvalidCommand, match="just these operations"):
            life.reconcile(**wrong)
    assert life.session is before
    life.reconcile(pay="happened", send="did_not_happen")
    assert life.wanted == ["send"]
    with pytest.raises(InvalidCommand, match="nothing to reconcile"):
        life.reconcile(every="happened")


def test_what_is_still_under_way_can_not_be_stated() -> None:
    """B34: it settles by itself."""
    life, operation = interrupted_while_paying(PAY)
    with pytest.raises(InvalidCommand, match="still under way"):
        life.reconcile(every="did_not_happen")
    life.finish(0, operation_id=operation)
    assert life.session.uncertain == ()


def test_an_interrupted_turn_can_be_resumed_when_its_operation_is_settled() -> None:
    """B34: settling it does not resume it."""
    life, operation = interrupted_while_paying(PAY)
    life.lose(0, operation_id=operation)
    assert life.session.status is SessionStatus.NEEDS_RECONCILIATION
    life.reconcile(every="happened")
    assert life.session.status is SessionStatus.ACTIVE
    assert reconcile_receipt(life.session, "t1").disposition == "settled"
    life.resume("t1")
    assert life.wanted == ["model"]


def test_a_suspended_turn_whose_call_settles_by_itself_goes_on_by_itself() -> None:
    """B34: in a run of its own."""
    life = lost(PAY)
    life.finish(0, "paid", operation_id=life.session.uncertain[0].operation_id)
    assert life.wanted == ["model"]
    assert life.status("t1") is TurnStatus.RUNNING


def test_both_a_lost_call_and_one_outside_are_waited_for_side_by_side() -> None:
    """B34, B39: the turn goes on when the last is settled, in whichever order."""
    for first in ("reconcile", "respond"):
        life = Life()
        life.submit(turn_id="t1")
        life.answer("", PAY, Call("ship", Effect.ONCE, external=True))
        life.start(0)
        life.lose(0)
        requests = {request.kind: request for request in life.session.current.requests}  # type: ignore[union-attr]
        assert set(requests) == {"reconciliation", "external"}
        ship = life.session.state.context[-1].calls[1].id
        steps = {
            "reconcile": lambda: life.reconcile(every="happened"),  # noqa: B023  # called in the same turn of the loop
            "respond": lambda: life.respond(request_id=requests["external"].request_id, result={ship: "x"}),  # noqa: B023
        }
        steps.pop(first)()
        assert life.status("t1") is TurnStatus.SUSPENDED
        next(iter(steps.values()))()
        assert life.wanted == ["model"]


# ---- what comes late ------------------------------------------------------------------------------------------------


def test_a_result_that_comes_after_its_turn_was_stopped_takes_its_place_before_the_next_model_call() -> None:
    """B25, B30: a model that was told that the outcome is unknown is told what it was when the turn goes on."""
    life, operation = interrupted_while_paying(PAY)
    assert "unknown" in life.results[0].text
    known = life.session.known
    life.finish(0, "paid after all", operation_id=operation)
    assert "unknown" in life.results[0].text, "nothing changes under the feet of a call that may be under way"
    life.resume("t1")
    assert [(result.state, result.text) for result in life.results] == [(ResultState.SUCCESS, "paid after all")]
    assert life.session.known.position <= known.position
    digests_say_what_the_context_is(life.session)
    assert not list(flaws(life.session.state.context))


def test_what_somebody_says_of_a_turn_that_is_over_is_told_to_the_next_one() -> None:
    """B34: whichever it is."""
    life, operation = interrupted_while_paying(PAY)
    life.lose(0, operation_id=operation)
    life.reconcile(every="happened")
    life.submit("what now?", turn_id="t2")
    assert [result.text for result in life.results] == ["as the ledger says"]
    digests_say_what_the_context_is(life.session)


def test_a_turn_that_is_resumed_after_others_have_talked_is_reminded_of_what_it_is_about() -> None:
    """B30: its input is not said again; the model is told beside the context, and once."""
    life = Life()
    life.submit("refund A1", turn_id="t1")
    life.answer("", LOOK)
    life.interrupt()
    life.submit("how is the weather?", turn_id="t2")
    life.answer("fine")
    life.resume("t1")
    said = life.said
    (wish,) = decide(life.session)
    assert isinstance(wish, CallModel)
    (reminder,) = model_call(life.session, wish).projections
    assert reminder.endswith("refund A1")
    assert life.said == said
    life.answer("", LOOK)
    life.start(0)
    life.finish(0)
    (wish,) = decide(life.session)
    assert isinstance(wish, CallModel)
    assert model_call(life.session, wish).projections == ()
