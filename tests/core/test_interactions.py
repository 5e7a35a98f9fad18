"""Approvals and calls that somebody outside carries out: asked, answered, expired, and what runs then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perdure.changes import AddRule, SetPermissionMode, SetPlanMode
from perdure.commands import Decision, OnBusy
from perdure.contract import Limits
from perdure.decide import CallTool, decide, tool_invocation
from perdure.errors import InteractionNotFound, InvalidCommand, NotResumable, SessionClosed
from perdure.judging import Opinion
from perdure.messages import ResultState, flaws
from perdure.operations import Effect
from perdure.permissions import PermissionBehavior, PermissionMode, PermissionRule
from perdure.results import SessionStatus, TurnStatus
from perdure.values import freeze_object
from perdure.views import respond_receipt, session_view
from tests.support.lives import Call, Life, result_states

if TYPE_CHECKING:
    from perdure.results import InteractionCall
    from perdure.session import Session

ASK = Opinion(behavior="ask", reason="over the limit")
PAY = Call("pay", Effect.ONCE, opinion=ASK, subject="A1", arguments=freeze_object({"order_id": "A1"}))
SEND = Call("send", Effect.IDEMPOTENT, opinion=ASK, subject="A1")
LOOK = Call("look", Effect.READ)
SHIP = Call("ship", Effect.ONCE, external=True)
DENIED = Call("spy", Effect.READ, opinion=Opinion(behavior="deny", reason="not that"))


def asking(*calls: Call, limits: Limits | None = None) -> Life:
    """Return a life whose turn has asked for these calls."""
    life = Life(limits=limits or Limits())
    life.submit(turn_id="t1")
    life.answer("", *calls)
    return life


def call_ids(life: Life) -> list[str]:
    return [call.call_id for call in life.asked.calls]


def entries(life: Life, kind: str) -> list[dict[str, object]]:
    return [{**entry.data, "actor": entry.actor} for entry in life.session.transcript if entry.kind == kind]


# ---- asking -----------------------------------------------------------------------------------------------------


def test_a_step_of_which_one_call_asks_is_suspended_and_nothing_of_it_runs() -> None:
    """B44: denied calls have their results, allowed ones wait, and the request shows what would be run."""
    life = asking(PAY, LOOK, DENIED)
    assert life.wanted == []
    assert life.status("t1") is TurnStatus.SUSPENDED
    assert life.session.status is SessionStatus.NEEDS_APPROVAL
    (call,) = life.asked.calls
    assert (call.tool, call.arguments, call.subject, call.reason) == ("pay", {"order_id": "A1"}, "A1", "over the limit")
    assert [(rule.tool_name, rule.rule_content) for rule in call.suggested_rules] == [("pay", "A1")]
    (decision, denial) = entries(life, "decision")
    assert (decision["behavior"], denial["behavior"], denial["reason"]) == ("ask", "deny", "not that")
    assert [entry["request_id"] for entry in entries(life, "interaction")] == [life.asked.request_id]


def test_an_approved_call_runs_once_and_those_that_waited_with_it_too() -> None:
    """B44, B45: in a new run, with the results in the order of the calls."""
    life = asking(PAY, LOOK, DENIED)
    life.respond(approve=True, actor="bob")
    assert life.wanted == ["pay", "look"]
    assert life.status("t1") is TurnStatus.RUNNING
    assert respond_receipt(life.session, "t1").disposition == "started"
    for index in (1, 0):
        life.start(index)
        life.finish(index)
    assert result_states(life) == [ResultState.SUCCESS, ResultState.SUCCESS, ResultState.DENIED]
    record = life.session.record("t1")
    assert record is not None
    assert [run.outcome for run in record.runs] == [TurnStatus.SUSPENDED, None]
    assert life.wanted == ["model"]


def test_a_denied_call_never_runs_and_the_model_is_told_why() -> None:
    """B45: the others run."""
    life = asking(PAY, LOOK)
    life.respond(approve=False, reason="not this month", actor="bob")
    assert life.wanted == ["look"]
    life.start(1)
    life.finish(1)
    assert result_states(life) == [ResultState.DENIED, ResultState.SUCCESS]
    assert "not this month" in life.results[0].text


def test_a_step_whose_calls_are_all_denied_goes_on_with_the_model() -> None:
    """B45: nothing is left to wait for."""
    life = asking(PAY)
    life.respond(approve=False)
    assert life.wanted == ["model"]


def test_an_answer_in_part_has_the_rest_asked_again() -> None:
    """B45: under another request; nothing runs before the last answer."""
    life = asking(PAY, SEND, LOOK)
    first, (pay, send) = life.asked, call_ids(life)
    life.respond(approve={send: Decision(approve=True)}, actor="bob")
    assert life.wanted == []
    assert life.status("t1") is TurnStatus.SUSPENDED
    assert respond_receipt(life.session, "t1").disposition == "waiting"
    assert call_ids(life) == [pay]
    assert life.asked.request_id != first.request_id
    life.respond(approve={pay: Decision(approve=False)})
    assert life.wanted == ["send", "look"]


def test_edited_arguments_take_the_place_of_the_models_and_are_checked_where_the_tool_runs() -> None:
    """B45: with the deny rules of the moment, since deny wins."""
    life = asking(PAY, LOOK)
    (pay,) = call_ids(life)
    deny = PermissionRule(tool_name="pay", rule_content="B*", behavior=PermissionBehavior.DENY)
    life.update(AddRule(deny))
    life.respond(approve={pay: Decision(approve=True, arguments=freeze_object({"order_id": "B2"}))})
    payloads = [tool_invocation(life.session, wish) for wish in decide(life.session) if isinstance(wish, CallTool)]
    assert [(one.tool, one.arguments, one.edited) for one in payloads] == [
        ("pay", {"order_id": "B2"}, True),
        ("look", {}, False),
    ]
    assert [one.deny_rules for one in payloads] == [(deny,), ()]
    assert life.session.state.context[-1].calls[0].input == {"order_id": "A1"}, "what the model said stays said"


def test_the_same_arguments_are_no_edit() -> None:
    """B45."""
    life = asking(PAY)
    life.respond(approve={call_ids(life)[0]: Decision(approve=True, arguments=PAY.arguments)})
    (wish,) = decide(life.session)
    assert isinstance(wish, CallTool)
    assert not tool_invocation(life.session, wish).edited


@pytest.mark.parametrize(
    "answer",
    [
        {"approve": {"call_of_another": Decision(approve=True)}},
        {"approve": {}},
        {"approve": None},
        {"approve": True, "result": {"x": 1}},
        {"result": {"x": 1}},
        {"approve": False, "remember": True},
    ],
)
def test_an_answer_that_does_not_fit_what_is_asked_is_refused_whole(answer: dict[str, object]) -> None:
    """B45: unknown and foreign ids, none at all, another kind of answer."""
    life = asking(PAY, LOOK)
    before = life.session
    with pytest.raises(InvalidCommand):
        life.respond(**answer)  # type: ignore[arg-type]  # answers of any form
    assert life.session is before


def test_one_good_and_one_foreign_id_are_refused_together() -> None:
    """B45: all or nothing."""
    life = asking(PAY)
    good = call_ids(life)[0]
    with pytest.raises(InvalidCommand, match="1 of the ids"):
        life.respond(approve={good: Decision(approve=True), "x": Decision(approve=True)})
    assert life.status("t1") is TurnStatus.SUSPENDED


def test_the_first_answer_counts_and_the_second_is_told_what_was_decided_and_by_whom() -> None:
    """B82: also when the second agrees."""
    life = asking(PAY)
    request = life.asked.request_id
    life.respond(approve=False, actor="bob")
    for approve in (True, False):
        with pytest.raises(InteractionNotFound, match=r"answered before.*by 'bob': pay denied"):
            life.respond(approve=approve, request_id=request, actor="carol")
    with pytest.raises(InteractionNotFound, match="nothing is asked under"):
        life.respond(approve=True, request_id="never-asked")


def test_who_answered_when_and_with_what_is_in_the_transcript() -> None:
    """B48: by call."""
    life = asking(PAY)
    request, (pay,) = life.asked.request_id, call_ids(life)
    life.respond(approve={pay: Decision(approve=True, reason="a good customer")}, actor="bob", reason="as agreed")
    (answer,) = entries(life, "answer")
    assert (answer["actor"], answer["request_id"], answer["reason"]) == ("bob", request, "as agreed")
    assert answer["decisions"] == {pay: {"approve": True, "arguments": None, "reason": "a good customer"}}


def test_approve_and_remember_writes_the_rule_that_was_shown_and_the_next_such_call_does_not_ask() -> None:
    """B46: another subject asks still."""
    life = asking(PAY)
    shown = life.asked.calls[0].suggested_rules
    life.respond(approve=True, remember=True, actor="bob")
    assert life.session.state.permission_context.allow_rules == {"pay": shown}
    assert [(one["change"], one["actor"]) for one in entries(life, "change")] == [("add_rule", "bob")]
    life.start(0)
    life.finish(0)
    life.answer("", PAY, Call("pay", Effect.ONCE, opinion=ASK, subject="A2"))
    assert [call.subject for call in life.asked.calls] == ["A2"]


def test_what_a_person_has_corrected_is_not_remembered() -> None:
    """B45, B46: the rule that was shown is about the arguments that the person took away."""
    life = asking(PAY)
    (call_id,) = call_ids(life)
    edited = Decision.model_validate({"approve": True, "arguments": {"order_id": "A2"}})
    with pytest.raises(InvalidCommand, match="without remember"):
        life.respond({call_id: edited}, remember=True)
    life.respond({call_id: edited})
    assert life.session.state.permission_context.allow_rules == {}
    (wish,) = decide(life.session)
    assert isinstance(wish, CallTool)
    assert "A2" in wish.plan.summary, "operators see what runs"
    assert wish.plan.subject is None


def test_answering_in_part_does_not_prolong_what_is_to_expire() -> None:
    """B47: the rest expires when all of it would have."""
    life = asking(PAY, SEND, limits=Limits(approval_timeout_seconds=60))
    expires = life.asked.expires_at
    life.respond({call_ids(life)[0]: Decision(True)})
    assert life.asked.expires_at == expires


def test_what_no_rule_may_answer_can_not_be_remembered() -> None:
    """B41: an ask for safety."""
    life = asking(Call("pay", Effect.ONCE, opinion=Opinion(behavior="ask", safety=True)))
    assert life.asked.calls[0].suggested_rules == ()
    with pytest.raises(InvalidCommand, match="nothing to remember"):
        life.respond(approve=True, remember=True)
    life.respond(approve=True)
    assert life.wanted == ["pay"]


def test_a_deny_rule_that_comes_while_a_question_waits_holds_for_all_that_waits() -> None:
    """B41, B49: deny beats everything, an approval too."""
    life = asking(PAY, LOOK)
    for tool in ("pay", "look"):
        life.update(AddRule(PermissionRule(tool_name=tool, behavior=PermissionBehavior.DENY)))
    life.respond(approve=True)
    assert life.wanted == ["model"]
    assert result_states(life) == [ResultState.DENIED, ResultState.DENIED]


def test_a_change_of_permissions_holds_from_the_next_step_on() -> None:
    """B49: the calls of this one go on."""
    life = asking(LOOK, Call("send", Effect.IDEMPOTENT))
    life.start(1)
    life.update(SetPermissionMode(PermissionMode.EXPLORE))
    assert life.wanted == ["look", "send"]
    life.start(0)
    life.finish(0)
    life.finish(1)
    life.answer("", LOOK, Call("send", Effect.IDEMPOTENT))
    assert life.wanted == ["look"]


# ---- time ---------------------------------------------------------------------------------------------------------


def test_an_approval_that_nobody_gives_in_time_counts_as_denied() -> None:
    """B47: the turn goes on in a run of its own, and who comes late is told."""
    life = asking(PAY, LOOK, limits=Limits(approval_timeout_seconds=3600))
    request = life.asked
    assert request.expires_at is not None
    assert (request.expires_at - request.asked_at).total_seconds() == 3600
    life.ring()
    assert life.wanted == ["look"]
    life.start(1)
    life.finish(1)
    assert "nobody answered in time" in life.results[0].text
    with pytest.raises(InteractionNotFound, match="nobody answered in time"):
        life.respond(approve=True, request_id=request.request_id)


def test_a_question_is_brought_up_again_and_again_until_it_is_answered() -> None:
    """B47: on the clock of the facts; an early ring means nothing."""
    life = asking(PAY, limits=Limits(approval_reminder_seconds=60, approval_timeout_seconds=150))
    early = life.session
    life.time_out(life.asked.request_id)
    assert life.session is not early
    assert life.asked.reminders == 1
    life.ring()
    assert life.asked.reminders == 2
    assert [one["reminders"] for one in entries(life, "interaction")] == [0, 1, 2]
    life.ring()
    assert life.wanted == ["model"]


# ---- plan mode ------------------------------------------------------------------------------------------------------


def test_in_plan_mode_only_what_reads_or_plans_runs() -> None:
    """B50: the rest of the batch is denied, the allowed ones run."""
    life = Life()
    life.submit(turn_id="t1")
    life.update(SetPlanMode(active=True))
    todos = freeze_object({"todos": [{"content": "look", "status": "pending"}]})
    life.answer("", Call("send", Effect.IDEMPOTENT), LOOK, Call("todo_write", builtin=True, arguments=todos), SHIP)
    assert life.wanted == ["look"]
    assert [task.subject for task in life.session.state.tasks_context.tasks] == ["look"]
    life.start(1)
    life.finish(1)
    states = [ResultState.DENIED, ResultState.SUCCESS, ResultState.SUCCESS, ResultState.DENIED]
    assert result_states(life) == states


def test_what_enters_plan_mode_holds_for_the_calls_behind_it() -> None:
    """B50: a model that plans first does not act in the same breath."""
    life = asking(LOOK, Call("plan_enter", builtin=True), Call("send", Effect.IDEMPOTENT))
    assert life.wanted == ["look"]
    assert life.session.state.plan_mode_context.plan_active


@pytest.mark.parametrize("mode", [PermissionMode.DEFAULT, PermissionMode.ACCEPT_EDITS])
@pytest.mark.parametrize(("approve", "planning"), [(True, False), (False, True)])
def test_leaving_plan_mode_asks_a_person(approve: bool, planning: bool, mode: PermissionMode) -> None:  # noqa: FBT001
    """B50: approved ends it, denied stays in it; a mode that allows reading does not answer for a person."""
    life = Life()
    life.submit(turn_id="t1")
    life.update(SetPlanMode(active=True), SetPermissionMode(mode))
    life.answer("", Call("plan_exit", builtin=True))
    assert life.status("t1") is TurnStatus.SUSPENDED
    life.respond(approve=approve)
    assert life.session.state.plan_mode_context.plan_active is planning
    assert life.wanted == ["model"]


# ---- calls that somebody outside carries out ------------------------------------------------------------------------


def test_an_external_call_suspends_the_turn_when_the_others_are_done() -> None:
    """B39: its result, given by id, continues it in a new run."""
    life = asking(SHIP, LOOK)
    assert life.wanted == ["look"]
    life.start(1)
    life.finish(1)
    assert life.session.status is SessionStatus.NEEDS_RESULT
    (ship,) = call_ids(life)
    life.respond(result={ship: {"tracking": 5}}, actor="warehouse")
    assert life.wanted == ["model"]
    assert [result.text for result in life.results] == ['{"tracking":5}', "done"]
    assert entries(life, "answer")[0]["actor"] == "warehouse"


def test_a_call_that_failed_outside_is_an_error_result() -> None:
    """B39."""
    life = asking(SHIP)
    life.respond(errors={call_ids(life)[0]: "no stock"})
    assert [(result.state, result.text) for result in life.results] == [(ResultState.ERROR, "no stock")]


def test_two_systems_give_their_results_under_one_request_each_once() -> None:
    """B39: invented, repeated and mixed ids are refused."""
    life = asking(SHIP, SHIP)
    request, (one, two) = life.asked.request_id, call_ids(life)
    life.respond(result={one: "a"})
    assert life.asked.request_id == request
    for wrong in ({one: "again"}, {"invented": 1}, {two: "b", "invented": 1}, {two: "b", one: "again"}):
        with pytest.raises(InvalidCommand):
            life.respond(result=wrong)
    with pytest.raises(InvalidCommand, match="result and errors"):
        life.respond(approve=True)
    with pytest.raises(InvalidCommand, match="either a result or an error"):
        life.respond(result={two: "b"}, errors={two: "c"})
    life.respond(result={two: "b"})
    assert [result.text for result in life.results] == ["a", "b"]


def test_an_external_call_that_asks_is_approved_first() -> None:
    """B39, B44: its arguments can't be edited, since no worker would check them."""
    life = asking(Call("ship", Effect.ONCE, external=True, opinion=ASK))
    assert life.session.status is SessionStatus.NEEDS_APPROVAL
    with pytest.raises(InvalidCommand, match="can't be edited"):
        life.respond(approve={call_ids(life)[0]: Decision(approve=True, arguments=freeze_object({"a": 1}))})
    life.respond(approve=True)
    assert life.session.status is SessionStatus.NEEDS_RESULT
    life.respond(result={call_ids(life)[0]: "shipped"})
    assert life.wanted == ["model"]


# ---- a suspended turn and the rest of the session -------------------------------------------------------------------


def stop_by(life: Life, how: str) -> Session:
    match how:
        case "cancel":
            return life.cancel("t1")
        case "interrupt":
            return life.submit(turn_id="t2", on_busy=OnBusy.INTERRUPT)
        case _:
            return life.close()


@pytest.mark.parametrize("how", ["cancel", "interrupt", "close"])
@pytest.mark.parametrize("call", [PAY, SHIP])
def test_stopping_a_suspended_turn_closes_what_it_waits_for(how: str, call: Call) -> None:
    """B17: each call has a result, and an answer that comes late is told."""
    life = asking(call, LOOK)
    if call is SHIP:
        life.start(1)
        life.finish(1)
    request = life.asked.request_id
    stop_by(life, how)
    assert life.status("t1") in (TurnStatus.CANCELLED, TurnStatus.INTERRUPTED)
    assert result_states(life)[0] is ResultState.INTERRUPTED
    assert not list(flaws(life.session.state.context))
    with pytest.raises(SessionClosed if how == "close" else InteractionNotFound):
        life.respond(approve=True, request_id=request)


def test_a_suspended_turn_holds_the_queue_and_can_not_be_resumed() -> None:
    """B14, B30: it waits for an answer, not for a resume."""
    life = asking(PAY)
    life.submit(turn_id="t2")
    assert life.status("t2") is TurnStatus.QUEUED
    with pytest.raises(NotResumable):
        life.resume("t1")
    life.respond(approve=False)
    life.answer("done")
    assert life.status("t2") is TurnStatus.RUNNING


def test_a_suspended_session_rides_through_a_new_run() -> None:
    """B58: what is asked, and who may answer what, is as before."""
    life = asking(PAY, SHIP, LOOK, limits=Limits(approval_timeout_seconds=60))
    before = session_view(life.session)
    life.carry_over()
    assert session_view(life.session) == before
    life.respond(approve=True)
    life.carry_over()
    assert life.wanted == ["pay", "look"]


def test_steps_are_counted_for_each_run_and_the_answer_begins_a_new_one() -> None:
    """B21: a turn that waits for people again and again is not stopped for it."""
    life = asking(PAY, limits=Limits(max_steps=1))
    life.respond(approve=True)
    life.start(0)
    life.finish(0)
    assert life.wanted == ["model"]
    life.answer("done")
    assert life.status("t1") is TurnStatus.COMPLETED


def suggestions(calls: tuple[InteractionCall, ...]) -> list[str | None]:
    return [rule.rule_content for call in calls for rule in call.suggested_rules]


def test_a_call_without_a_subject_suggests_a_rule_for_the_tool_as_a_whole() -> None:
    """B46: it is shown before anybody remembers it."""
    life = asking(Call("pay", Effect.ONCE, opinion=ASK))
    assert suggestions(life.asked.calls) == [None]


def test_a_model_that_asks_again_what_nobody_answers_meets_its_limit() -> None:
    """B21, B47: an answer begins the count anew, the silence of people does not."""
    life = asking(PAY, limits=Limits(max_steps=3, approval_timeout_seconds=60))
    for _ in range(2):
        life.ring()
        life.answer("", PAY)
    life.ring()
    assert life.status("t1") is TurnStatus.FAILED
    record = life.session.record("t1")
    assert record is not None
    assert record.error is not None
    assert record.error.type == "max_steps"


def test_the_model_is_told_when_a_person_has_changed_its_arguments() -> None:
    """B45: the result is of other arguments than it gave."""
    life = asking(PAY)
    edited = freeze_object({"order_id": "B2"})
    life.respond(approve={call_ids(life)[0]: Decision(approve=True, arguments=edited)})
    life.start(0)
    life.finish(0, "paid")
    assert life.results[0].text == '(a person changed the arguments to {"order_id":"B2"})\npaid'
