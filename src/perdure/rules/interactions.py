"""What a suspended turn waits for: people who approve, somebody outside who carries a call out, people who look.

A turn is suspended when nothing of its step can be done without them, and goes on in a new run when nothing is
outstanding any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from perdure.commands import Decision
from perdure.messages import ResultState, as_json
from perdure.operations import Effect, derived_id
from perdure.permissions import with_rule
from perdure.results import Answered, InteractionKind, TurnStatus
from perdure.rules.calls import calls_of, denied, result_block, result_entry, run_if_builtin, with_calls, with_result
from perdure.rules.outcomes import as_text
from perdure.rules.permitting import deny_again
from perdure.rules.runs import begin_run, end_run
from perdure.session import Session, change, with_entry, with_state, with_turn_entry
from perdure.turns import Acting, PlannedCall, Request
from perdure.values import canonical_json

if TYPE_CHECKING:
    from datetime import datetime

    from perdure.commands import Respond
    from perdure.facts import RequestAnswered
    from perdure.turns import CurrentTurn

MAX_EDITED_SUMMARY = 200
"""Characters of edited arguments that operators are shown."""

REMEMBERED_ANSWERS = 50
"""How many answered requests a session knows, so that who is late is told what was decided, and by whom."""

TOO_LATE = "nobody answered in time"


def concerned(call: PlannedCall, kind: InteractionKind) -> bool:
    """Tell whether a request of this kind is about this call."""
    match kind:
        case "approval":
            return call.asking
        case "external":
            return call.outside
        case "reconciliation":
            return call.lost is not None and call.result is None


def outstanding(session: Session) -> tuple[InteractionKind, ...]:
    """Return what the current step needs from people. Questions come first: until then nothing of the step runs."""
    calls = calls_of(session)
    if any(call.asking for call in calls):
        return ("approval",)
    kinds: tuple[InteractionKind, ...] = ("reconciliation", "external")
    return tuple(kind for kind in kinds if any(concerned(call, kind) for call in calls))


# ---- asking -----------------------------------------------------------------------------------------------------


def suspend(session: Session, at: datetime) -> Session:
    """Hold the turn, and the queue with it, until somebody has settled what is outstanding."""
    current = session.current
    if current is None:
        return session
    for kind in outstanding(session):
        session = _ask(session, at, kind)
    session = with_calls(session, lambda call: change(call, started_at=at) if call.outside else call)
    current = session.current or current
    handed_out = any(call.outside and call.plan.effect is not Effect.READ for call in calls_of(session))
    current = change(current, suspended=True, effectful=current.effectful or handed_out)
    return end_run(change(session, current=current), at, current, TurnStatus.SUSPENDED)


def _ask(session: Session, at: datetime, kind: InteractionKind, *, expires_at: datetime | None = None) -> Session:
    """Put a request to whoever can answer it; what is left of one that was answered in part expires when that did."""
    current = session.current
    if current is None:
        return session
    limits = session.limits
    approval = kind == "approval"
    request = Request(
        request_id=derived_id(
            "interaction", session.key.workflow_id, current.turn_id, current.first_run_id, str(current.asked)
        ),
        kind=kind,
        asked_at=at,
        expires_at=expires_at or (_after(at, limits.approval_timeout_seconds) if approval else None),
        remind_at=_after(at, limits.approval_reminder_seconds) if approval else None,
    )
    current = change(current, requests=(*current.requests, request), asked=current.asked + 1)
    return _asked_entry(change(session, current=current), at, request)


def _after(at: datetime, seconds: float | None) -> datetime | None:
    return None if seconds is None else at + timedelta(seconds=seconds)


def _asked_entry(session: Session, at: datetime, request: Request) -> Session:
    current = session.current
    if current is None:
        return session
    return with_turn_entry(
        session,
        at,
        "interaction",
        request_id=request.request_id,
        request_kind=request.kind,
        reminders=request.reminders,
        calls=[call.plan.call_id for call in calls_of(session) if concerned(call, request.kind)],
    )


def request_due(session: Session, at: datetime, request_id: str) -> Session:
    """Do what time brings: bring a question up again, or count it as denied."""
    current = session.current
    request = None if current is None else find_request(current, request_id)
    if current is None or request is None:
        return session
    if request.expires_at is not None and at >= request.expires_at:
        run_id = derived_id("run", session.key.workflow_id, request_id).replace("-", "")
        session = _decide(session, at, request, {}, reason=TOO_LATE, actor=None)
        return wake(_answered(session, at, request, TOO_LATE, None), at, run_id, by_somebody=False)
    if request.remind_at is None or at < request.remind_at:
        return session
    next_time = _after(at, session.limits.approval_reminder_seconds)
    again = change(request, reminders=request.reminders + 1, remind_at=next_time)
    requests = tuple(again if one is request else one for one in current.requests)
    return _asked_entry(change(session, current=change(current, requests=requests)), at, again)


def find_request(current: CurrentTurn, request_id: str) -> Request | None:
    """Return what a suspended turn waits for by its id."""
    return next((one for one in current.requests if one.request_id == request_id), None)


# ---- answering --------------------------------------------------------------------------------------------------


def request_answered(session: Session, fact: RequestAnswered) -> Session:
    """Take in an answer, whole or in part. The turn goes on when it was the last one that was outstanding."""
    current, answer = session.current, fact.answer
    request = None if current is None else find_request(current, answer.request_id)
    if request is None:
        return session
    if request.kind == "external":
        session = _take_results(session, fact.at, request, answer)
    else:
        session = _take_decisions(session, fact.at, request, answer)
    return wake(session, fact.at, fact.run_id)


def decisions_of(answer: Respond, asked: tuple[PlannedCall, ...]) -> dict[str, Decision]:
    """Return what an answer says of each call that it speaks of."""
    if isinstance(answer.approve, Mapping):
        return dict(answer.approve)
    one = Decision(approve=bool(answer.approve), reason=answer.reason)
    return {call.plan.call_id: one for call in asked}


def _take_decisions(session: Session, at: datetime, request: Request, answer: Respond) -> Session:
    asked = tuple(call for call in calls_of(session) if call.asking)
    decisions = decisions_of(answer, asked)
    remembered = [call for call in asked if answer.remember and _approved(decisions, call)]
    session = _decide(session, at, request, decisions, reason=answer.reason, actor=answer.actor)
    for call in remembered:
        session = _remember(session, at, call, answer.actor)
    words = ", ".join(
        f"{call.plan.tool} {'approved' if _approved(decisions, call) else 'denied'}"
        for call in asked
        if call.plan.call_id in decisions
    )
    session = _answered(session, at, request, words, answer.actor)
    if any(call.asking for call in calls_of(session)):
        session = _ask(session, at, "approval", expires_at=request.expires_at)
    return session


def _approved(decisions: Mapping[str, Decision], call: PlannedCall) -> bool:
    decision = decisions.get(call.plan.call_id)
    return decision is not None and decision.approve


def _decide(
    session: Session,
    at: datetime,
    request: Request,
    decisions: Mapping[str, Decision],
    *,
    reason: str | None,
    actor: str | None,
) -> Session:
    """Carry out what was decided of each call. Without any decision all calls count as denied."""
    current = session.current
    if current is None:
        return session
    told = {call_id: as_json(decision) for call_id, decision in decisions.items()}
    session = with_turn_entry(
        session,
        at,
        "answer",
        actor=actor,
        request_id=request.request_id,
        decisions=told,
        reason=reason,
    )
    for call in calls_of(session):
        decision = decisions.get(call.plan.call_id) if decisions else Decision(approve=False, reason=reason)
        if call.asking and decision is not None:
            session = _decided(session, at, call, decision, reason)
    return session


def _decided(session: Session, at: datetime, call: PlannedCall, decision: Decision, reason: str | None) -> Session:
    current = session.current
    if current is None:
        return session
    if not decision.approve:
        result = denied(call.plan, decision.reason or reason or "a person said no")
        session = with_result(session, call.operation_id, result)
        return result_entry(session, at, call, result)
    free = change(call, ask=None)
    if decision.arguments is not None and decision.arguments != call.plan.arguments:
        words = f"edited: {canonical_json(decision.arguments).decode()}"
        plan = change(call.plan, arguments=decision.arguments, subject=None, summary=words[:MAX_EDITED_SUMMARY])
        free = change(free, plan=plan, edited=True)
    return with_calls(session, lambda each: free if each.operation_id == call.operation_id else each)


def _remember(session: Session, at: datetime, call: PlannedCall, actor: str | None) -> Session:
    """Write the rules that were suggested with a call into the session's permissions."""
    for rule in call.ask.remembered if call.ask is not None else ():
        permissions = with_rule(session.state.permission_context, rule)
        session = with_state(session, change(session.state, permission_context=permissions))
        session = with_entry(session, at, "change", actor=actor, change="add_rule", rule=as_json(rule))
    return session


def _take_results(session: Session, at: datetime, request: Request, answer: Respond) -> Session:
    """Take in what came of calls that were carried out outside."""
    current = session.current
    if current is None:
        return session
    given = {
        **{call_id: (ResultState.SUCCESS, as_text(value)) for call_id, value in (answer.result or {}).items()},
        **{call_id: (ResultState.ERROR, text) for call_id, text in (answer.errors or {}).items()},
    }
    session = with_turn_entry(
        session,
        at,
        "answer",
        actor=answer.actor,
        request_id=request.request_id,
        results=sorted(given),
        reason=answer.reason,
    )
    for call in calls_of(session):
        if call.outside and call.plan.call_id in given:
            result = result_block(call.plan, *given[call.plan.call_id])
            session = with_result(session, call.operation_id, result)
            session = result_entry(session, at, call, result)
    if any(call.outside for call in calls_of(session)):
        return session
    return _answered(session, at, request, "the results were given", answer.actor)


def _answered(session: Session, at: datetime, request: Request, words: str, actor: str | None) -> Session:
    """Close a request, and remember what was answered."""
    current = session.current
    if current is None:
        return session
    left = tuple(one for one in current.requests if one.request_id != request.request_id)
    answered = Answered(request_id=request.request_id, at=at, words=words, actor=actor)
    return change(
        session,
        current=change(current, requests=left),
        answered=(*session.answered, answered)[-REMEMBERED_ANSWERS:],
    )


def close_requests(session: Session, at: datetime, actor: str | None) -> Session:
    """Close what a turn waits for that is being stopped."""
    current = session.current
    for request in () if current is None else current.requests:
        session = _answered(session, at, request, "its turn was stopped", actor)
    return session


# ---- going on ---------------------------------------------------------------------------------------------------


def wake(session: Session, at: datetime, run_id: str, *, by_somebody: bool = True) -> Session:
    """Go on with a suspended turn, in a new run, if nothing is outstanding any more.

    Steps are counted anew when somebody has answered, and not for what goes on of itself: a model that asks again and
    again what nobody answers meets its agent's `max_steps` in the end.
    """
    current = session.current
    if current is None or not current.suspended or not isinstance(current.phase, Acting):
        return session
    calls = calls_of(session)
    left = tuple(one for one in current.requests if any(concerned(call, one.kind) for call in calls))
    if left:
        return session if left == current.requests else change(session, current=change(current, requests=left))
    current = change(
        current,
        suspended=False,
        requests=(),
        run_id=run_id,
        first_step=current.step + 1 if by_somebody else current.first_step,
        clock_from=at,
        phase=change(current.phase, since=at),
    )
    session = begin_run(change(session, current=current), at, current)
    for call in calls_of(session):
        if not call.settled and call.started_at is None:
            session = _free(session, at, call)
    return session


def wake_of_itself(session: Session, at: datetime) -> Session:
    """Go on with a suspended turn whose last uncertain call has settled without anybody's word."""
    current = session.current
    if current is None or not current.suspended:
        return session
    run_id = derived_id("run", session.key.workflow_id, current.turn_id, current.run_id).replace("-", "")
    return wake(session, at, run_id, by_somebody=False)


def _free(session: Session, at: datetime, call: PlannedCall) -> Session:
    """Let a call run that waited for an answer, unless a deny rule has come meanwhile."""
    current = session.current
    if current is None:
        return session
    forbidden = None if call.edited else deny_again(session.state, call.plan)
    if forbidden is not None:
        freed = change(call, result=denied(call.plan, forbidden.reason))
    else:
        session, freed = run_if_builtin(session, at, call)
    session = with_calls(session, lambda each: freed if each.operation_id == call.operation_id else each)
    return session if freed.result is None else result_entry(session, at, call, freed.result)
