"""The tool calls of the current step: which there are, how far each is, and the message that their results make."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.contract import CallPlan
from perdure.messages import Message, ResultState, Role, TextBlock, ToolResultBlock, as_json
from perdure.operations import Effect, derived_id, operation_id
from perdure.results import Operation
from perdure.session import Session, change, with_entry
from perdure.turns import Acting, CurrentTurn, PlannedCall
from perdure.values import json_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from perdure.contract import ModelAnswer


def calls_of(session: Session) -> tuple[PlannedCall, ...]:
    """Return the tool calls of the current step."""
    current = session.current
    return current.phase.calls if current is not None and isinstance(current.phase, Acting) else ()


def with_calls(session: Session, update: Callable[[PlannedCall], PlannedCall]) -> Session:
    """Change the tool calls of the current step, one by one."""
    current = session.current
    if current is None or not isinstance(current.phase, Acting):
        return session
    calls = tuple(update(call) for call in current.phase.calls)
    return change(session, current=change(current, phase=change(current.phase, calls=calls)))


def plan_calls(session: Session, at: datetime, answer: ModelAnswer, current: CurrentTurn) -> Session:
    """Turn the calls of an answer into calls that are wanted; refused ones have their result at once."""
    plans = {plan.call_id: plan for plan in answer.plans}
    calls: list[PlannedCall] = []
    for index, block in enumerate(answer.message.calls):
        plan = plans.get(block.id) or CallPlan(
            call_id=block.id, tool=block.name, arguments=block.input, refusal="the worker sent no plan for this call"
        )
        wanted = operation_id(
            session.key.workflow_id, current.turn_id, current.step, index, first_run_id=current.first_run_id
        )
        refused = None if plan.refusal is None else _result(plan, ResultState.ERROR, plan.refusal)
        calls.append(PlannedCall(index=index, operation_id=wanted, plan=plan, result=refused))
        session = with_entry(
            session,
            at,
            "tool_call",
            turn_id=current.turn_id,
            run_id=current.run_id,
            step=current.step,
            index=index,
            operation_id=wanted,
            call_id=plan.call_id,
            tool=plan.tool,
            arguments=plan.arguments,
            effect=plan.effect.value,
        )
    session = change(session, current=change(current, phase=Acting(calls=tuple(calls), since=at)))
    for call in calls:
        if call.result is not None:
            session = _entry(session, at, current, call, call.result)
    return session


def start_call(session: Session, at: datetime, operation: str) -> Session:
    """Note that a call was handed out."""
    mine = [call for call in calls_of(session) if call.operation_id == operation and call.started_at is None]
    current = session.current
    if not mine or current is None:
        return session
    if mine[0].plan.effect is not Effect.READ:
        session = change(session, current=change(current, effectful=True))
    return with_calls(session, lambda each: change(each, started_at=at) if each is mine[0] else each)


def finish_call(session: Session, at: datetime, operation: str, result: ToolResultBlock) -> Session:
    """Take in a definite result: of a call of the current step, or of one whose outcome was unknown until now."""
    current = session.running
    unsettled = (call for call in calls_of(session) if call.operation_id == operation and call.result is None)
    call = next(unsettled, None)
    if call is None or current is None:
        return _settle_late(session, at, operation, result)
    result = change(result, id=call.plan.call_id, name=call.plan.tool)
    session = with_calls(session, lambda each: change(each, result=result, lost=None) if each is call else each)
    session = _certain(session, operation)
    return _entry(session, at, current, call, result)


def _certain(session: Session, operation: str) -> Session:
    return change(session, uncertain=tuple(one for one in session.uncertain if one.operation_id != operation))


def _settle_late(session: Session, at: datetime, operation: str, result: ToolResultBlock) -> Session:
    """Take in the result of an operation that was uncertain: it is certain now. The context has moved on."""
    known = next((one for one in session.uncertain if one.operation_id == operation), None)
    if known is None or any(call.lost and call.operation_id == operation for call in calls_of(session)):
        return session
    session = _certain(session, operation)
    return with_entry(
        session,
        at,
        "tool_result",
        turn_id=known.turn_id,
        operation_id=operation,
        late=True,
        result=as_json(result),
    )


def lose_call(session: Session, at: datetime, operation: str, why: str) -> Session:
    """Note that nobody can tell what became of a call."""
    call = next((one for one in calls_of(session) if one.operation_id == operation and not one.settled), None)
    current = session.current
    if call is None or current is None:
        return session
    lost = Operation(
        operation_id=operation,
        turn_id=current.turn_id,
        step=current.step,
        index=call.index,
        tool=call.plan.tool,
        arguments=call.plan.arguments,
        effect=call.plan.effect,
        started_at=call.started_at,
    )
    session = with_calls(session, lambda each: change(each, lost=why) if each is call else each)
    session = change(session, uncertain=(*session.uncertain, lost))
    return with_entry(
        session,
        at,
        "error",
        turn_id=current.turn_id,
        run_id=current.run_id,
        type="uncertain",
        operation_id=operation,
        tool=call.plan.tool,
        message=why,
    )


def give_up_harmless(session: Session, at: datetime) -> Session:
    """Give up what can be given up without a trace: calls that only read, or that were never handed out."""

    def harmless(call: PlannedCall) -> bool:
        return not call.settled and (call.started_at is None or call.plan.effect is Effect.READ)

    return _interrupted(session, at, harmless)


def interrupt_rest(session: Session, at: datetime) -> Session:
    """Give a result that says so to each call that has none."""
    return _interrupted(session, at, lambda call: call.result is None)


def _interrupted(session: Session, at: datetime, which: Callable[[PlannedCall], bool]) -> Session:
    current = session.current
    for call in calls_of(session):
        if current is not None and which(call):
            result = _interrupted_result(call)
            session = _with_result(session, call.operation_id, result)
            session = _entry(session, at, current, call, result)
    return session


def _with_result(session: Session, operation: str, result: ToolResultBlock) -> Session:
    return with_calls(session, lambda each: change(each, result=result) if each.operation_id == operation else each)


def _interrupted_result(call: PlannedCall) -> ToolResultBlock:
    if call.lost is not None:
        text = (
            f"interrupted, and the outcome is unknown: {call.lost}. Do not assume that it happened or that it did not."
        )
    elif call.started_at is None:
        text = "interrupted before it started: it did not happen"
    else:
        text = "interrupted"
    return _result(call.plan, ResultState.INTERRUPTED, text)


def results_message(session: Session, at: datetime, current: CurrentTurn) -> Message:
    """Return the message with the results of the step, in the order of its calls. Each call must have one."""
    results = _carried(session, tuple(call.result for call in calls_of(session) if call.result is not None))
    return Message(
        id=derived_id(
            "message", session.key.workflow_id, current.turn_id, current.first_run_id, str(current.step), "results"
        ),
        role=Role.TOOL,
        content=results,
        timestamp=at.isoformat(),
    )


def _carried(session: Session, results: tuple[ToolResultBlock, ...]) -> tuple[ToolResultBlock, ...]:
    """Return results that fit one message where nothing is stored outside: what is too much says so instead."""
    room = session.limits.carry_bytes
    if room is None:
        return results
    fitting: list[ToolResultBlock] = []
    for result in results:
        room -= json_bytes(result)
        note = (TextBlock("the result was too large to be kept beside the others of this step"),)
        fitting.append(result if room >= 0 else change(result, output=note))
    return tuple(fitting)


def _result(plan: CallPlan, state: ResultState, text: str) -> ToolResultBlock:
    return ToolResultBlock(id=plan.call_id, name=plan.tool, output=(TextBlock(text),), state=state)


def _entry(session: Session, at: datetime, current: CurrentTurn, call: PlannedCall, result: ToolResultBlock) -> Session:
    return with_entry(
        session,
        at,
        "tool_result",
        turn_id=current.turn_id,
        run_id=current.run_id,
        operation_id=call.operation_id,
        result=as_json(result),
    )
