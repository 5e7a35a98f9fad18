"""What became of tool calls: definite results, outcomes that nobody knows, and how those are settled."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from perdure.messages import ResultState, TextBlock, ToolResultBlock, as_json
from perdure.rules.calls import calls_of, denied, result_entry, with_calls
from perdure.rules.permitting import deny_again
from perdure.session import Session, change, with_entry, with_turn_entry
from perdure.turns import Doubt, LateResult, PlannedCall, Uncertain
from perdure.values import canonical_json

if TYPE_CHECKING:
    from datetime import datetime

    from perdure.commands import Settlement
    from perdure.contract import CallPlan
    from perdure.facts import FoundOut, OutcomesStated, ToolLost
    from perdure.values import Json

MAX_LATE = 100
"""Late results that wait for the next step. A session that nobody talks to must not collect them without end."""

MAX_RERUNS = 3
"""How often a call that did not happen is handed out again of itself. One that is lost each time needs a person."""


def finish_call(session: Session, at: datetime, operation: str, result: ToolResultBlock) -> Session:
    """Take in a definite result: of a call of the current step, or of one whose outcome was unknown until now."""
    current = session.current
    unsettled = (call for call in calls_of(session) if call.operation_id == operation and call.result is None)
    call = next(unsettled, None)
    if call is None or current is None:
        return _settle_late(session, at, operation, result)
    result = _told_of_edits(call, change(result, id=call.plan.call_id, name=call.plan.tool))
    session = with_calls(session, lambda each: change(each, result=result, lost=None) if each is call else each)
    session = _certain(session, operation)
    return result_entry(session, at, call, result)


def _told_of_edits(call: PlannedCall, result: ToolResultBlock) -> ToolResultBlock:
    """Tell the model that the result is of other arguments than it gave, if a person has changed them."""
    if not call.edited:
        return result
    note = f"(a person changed the arguments to {canonical_json(call.plan.arguments).decode()})"
    return change(result, output=(TextBlock(note), *result.output))


def _settle_late(session: Session, at: datetime, operation: str, result: ToolResultBlock) -> Session:
    """Take in the result of an operation that was uncertain. The context has moved on; the next step is told."""
    known = _uncertain(session, operation)
    if known is None:
        return session
    session = _certain(session, operation)
    if known.plan is not None:
        late = LateResult(call_id=known.plan.call_id, result=result)
        session = change(session, late=(*session.late, late)[-MAX_LATE:])
    return with_entry(
        session,
        at,
        "tool_result",
        turn_id=known.turn_id,
        operation_id=operation,
        late=True,
        result=as_json(result),
    )


def _certain(session: Session, operation: str) -> Session:
    return change(session, uncertain=tuple(one for one in session.uncertain if one.operation_id != operation))


def _uncertain(session: Session, operation: str) -> Uncertain | None:
    return next((one for one in session.uncertain if one.operation_id == operation), None)


def _with_doubt(session: Session, operation: str, **fields: object) -> Session:
    uncertain = tuple(change(one, **fields) if one.operation_id == operation else one for one in session.uncertain)
    return change(session, uncertain=uncertain)


def lose_call(session: Session, fact: ToolLost) -> Session:
    """Note that nobody can tell what became of a call. Its tool is asked, if it can be."""
    known = _uncertain(session, fact.operation_id)
    if known is not None and known.doubt is Doubt.FLYING:
        doubt = _doubt(known.plan is not None and known.plan.reconcilable)
        return _with_doubt(session, fact.operation_id, doubt=doubt, over_by=_over_by(fact, known.plan))
    call = _unsettled(session, fact.operation_id)
    if call is None:
        return session
    doubt = _doubt(call.plan.reconcilable and call.reruns < MAX_RERUNS)
    return _lost(session, fact.at, call, fact.why, doubt=doubt, over_by=_over_by(fact, call.plan))


def outlast_call(session: Session, at: datetime, operation: str) -> Session:
    """Wait no longer for a call that was asked to end. It is still under way, and settles by itself."""
    call = _unsettled(session, operation)
    if call is None:
        return session
    return _lost(session, at, call, "it had not settled when the turn was stopped", doubt=Doubt.FLYING, over_by=None)


def _doubt(can_be_asked: bool) -> Doubt:  # noqa: FBT001  # a private helper with one parameter
    return Doubt.ASKING if can_be_asked else Doubt.OPEN


def _over_by(fact: ToolLost, plan: CallPlan | None) -> datetime | None:
    """Return when the lost attempt has surely ended: a worker that is cut off goes on for as long as its tool may."""
    return None if fact.over or plan is None else fact.at + timedelta(seconds=plan.timeout_seconds)


def _unsettled(session: Session, operation: str) -> PlannedCall | None:
    return next((one for one in calls_of(session) if one.operation_id == operation and not one.settled), None)


def _lost(
    session: Session, at: datetime, call: PlannedCall, why: str, *, doubt: Doubt, over_by: datetime | None
) -> Session:
    current = session.current
    if current is None:
        return session
    lost = Uncertain(
        operation_id=call.operation_id,
        turn_id=current.turn_id,
        step=current.step,
        index=call.index,
        tool=call.plan.tool,
        arguments=call.plan.arguments,
        effect=call.plan.effect,
        started_at=call.started_at,
        doubt=doubt,
        plan=call.plan,
        run_id=current.run_id,
        attributes=current.attributes,
        over_by=over_by,
    )
    session = with_calls(session, lambda each: change(each, lost=why) if each is call else each)
    session = change(session, uncertain=(*session.uncertain, lost))
    return with_turn_entry(
        session, at, "error", type="uncertain", operation_id=call.operation_id, tool=call.plan.tool, message=why
    )


# ---- how they are settled ---------------------------------------------------------------------------------------


def found_out(session: Session, fact: FoundOut) -> Session:
    """Take in what a tool says of its own call. If it can't tell, somebody must."""
    known = _uncertain(session, fact.operation_id)
    if known is None or known.doubt is not Doubt.ASKING:
        return session
    finding = fact.finding
    if finding.outcome == "happened" and finding.result is not None:
        return finish_call(session, fact.at, fact.operation_id, finding.result)
    if finding.outcome == "did_not_happen":
        return _did_not_happen(session, fact.at, known)
    return _with_doubt(session, fact.operation_id, doubt=Doubt.OPEN)


def outcomes_stated(session: Session, fact: OutcomesStated) -> Session:
    """Take in what somebody says of the operations whose outcome was unknown."""
    stated = [one for one in session.uncertain if one.operation_id in fact.outcomes]
    if not stated:
        return session
    told = {one.operation_id: fact.outcomes[one.operation_id].outcome for one in stated}
    session = with_entry(
        session, fact.at, "command", actor=fact.actor, command="reconcile", reason=fact.reason, outcomes=told
    )
    for one in stated:
        session = _stated(session, fact.at, one, fact.outcomes[one.operation_id])
    return session


def _stated(session: Session, at: datetime, known: Uncertain, settlement: Settlement) -> Session:
    if settlement.outcome == "did_not_happen":
        return _did_not_happen(session, at, known)
    if settlement.outcome == "happened":
        state, text = ResultState.SUCCESS, as_text(settlement.result)
    else:
        state = ResultState.ERROR
        text = f"nobody could tell whether it happened{_because(settlement.reason)}; do not assume either"
    block = ToolResultBlock(id="", name=known.tool, output=(TextBlock(text),), state=state)
    return finish_call(session, at, known.operation_id, block)


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""


def as_text(value: Json) -> str:
    """Return a result from outside as the text that the model sees."""
    if value is None:
        return "done, without a result"
    return value if isinstance(value, str) else canonical_json(value).decode()


def _did_not_happen(session: Session, at: datetime, known: Uncertain) -> Session:
    """Hand a call out again, under the same id; one of a turn that has gone on is only noted."""
    operation = known.operation_id
    call = next((one for one in calls_of(session) if one.operation_id == operation and one.lost is not None), None)
    if call is None or session.current is None or session.current.stop is not None:
        block = ToolResultBlock(
            id="", name=known.tool, output=(TextBlock("it did not happen"),), state=ResultState.INTERRUPTED
        )
        return finish_call(session, at, operation, block)
    forbidden = None if call.edited else deny_again(session.state, call.plan)
    if forbidden is not None:  # a rule has come meanwhile: it holds for what has not happened yet
        return finish_call(session, at, operation, denied(call.plan, forbidden.reason))
    again = change(call, lost=None, started_at=None, reruns=call.reruns + 1)
    session = with_calls(_certain(session, operation), lambda each: again if each is call else each)
    return with_entry(
        session,
        at,
        "decision",
        turn_id=known.turn_id,
        operation_id=operation,
        tool=known.tool,
        behavior="allow",
        reason="it had not happened, and runs again under the same operation id",
    )
