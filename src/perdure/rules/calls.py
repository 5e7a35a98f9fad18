"""The tool calls of the current step: which there are, how far each is, and the message that their results make."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.builtins import run_builtin
from perdure.contract import CallPlan
from perdure.messages import Message, ResultState, Role, TextBlock, ToolResultBlock, as_json
from perdure.operations import Effect, derived_id, operation_id
from perdure.rules.permitting import judge_call
from perdure.session import Session, change, with_state, with_turn_entry
from perdure.turns import Acting, Ask, CurrentTurn, PlannedCall
from perdure.values import json_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from perdure.contract import ModelAnswer


def calls_of(session: Session) -> tuple[PlannedCall, ...]:
    """Return the tool calls of the current step."""
    return () if session.current is None else session.current.calls


def with_calls(session: Session, update: Callable[[PlannedCall], PlannedCall]) -> Session:
    """Change the tool calls of the current step, one by one."""
    current = session.current
    if current is None or not isinstance(current.phase, Acting):
        return session
    calls = tuple(update(call) for call in current.phase.calls)
    return change(session, current=change(current, phase=change(current.phase, calls=calls)))


def plan_calls(session: Session, at: datetime, answer: ModelAnswer, current: CurrentTurn) -> Session:
    """Turn the calls of an answer into calls that are wanted, denied, asked for, or done at once.

    Permissions are those of the moment; what one call changes in the state holds for those behind it.
    """
    plans = {plan.call_id: plan for plan in answer.plans}
    calls: list[PlannedCall] = []
    for index, block in enumerate(answer.message.calls):
        plan = plans.get(block.id) or CallPlan(
            call_id=block.id, tool=block.name, arguments=block.input, refusal="the worker sent no plan for this call"
        )
        wanted = operation_id(
            session.key.workflow_id, current.turn_id, current.step, index, first_run_id=current.first_run_id
        )
        call = PlannedCall(index=index, operation_id=wanted, plan=plan)
        session = _call_entry(session, at, current, call)
        session, call = _judged(session, at, call)
        calls.append(call)
    session = change(session, current=change(current, phase=Acting(calls=tuple(calls), since=at)))
    for call in calls:
        if call.result is not None:
            session = result_entry(session, at, call, call.result)
    return session


def _call_entry(session: Session, at: datetime, current: CurrentTurn, call: PlannedCall) -> Session:
    plan = call.plan
    return with_turn_entry(
        session,
        at,
        "tool_call",
        step=current.step,
        index=call.index,
        operation_id=call.operation_id,
        call_id=plan.call_id,
        tool=plan.tool,
        arguments=plan.arguments,
        effect=plan.effect.value,
    )


def _judged(session: Session, at: datetime, call: PlannedCall) -> tuple[Session, PlannedCall]:
    """Return a call with what was decided of it: a result at once, a question, or nothing in its way."""
    plan = call.plan
    if plan.refusal is not None:
        return session, change(call, result=result_block(plan, ResultState.ERROR, plan.refusal))
    judgement = judge_call(session.state, plan)
    if judgement.behavior == "allow":
        return run_if_builtin(session, at, call)
    session = with_turn_entry(
        session,
        at,
        "decision",
        call_id=plan.call_id,
        tool=plan.tool,
        behavior=judgement.behavior,
        reason=judgement.reason,
    )
    if judgement.behavior == "deny":
        return session, change(call, result=denied(plan, judgement.reason))
    asked = Ask(reason=judgement.reason, safety=judgement.safety, remembered=judgement.suggested)
    return session, change(call, ask=asked)


def run_if_builtin(session: Session, at: datetime, call: PlannedCall) -> tuple[Session, PlannedCall]:
    """Carry out a call that the session itself can carry out; any other is returned as it is."""
    plan = call.plan
    if not plan.builtin:
        return session, call
    ran = run_builtin(
        session.state, plan.tool, plan.arguments, at=at, seed=call.operation_id, meta_groups=plan.meta_groups
    )
    if ran.state != session.state:
        session = with_state(session, ran.state)
    state = ResultState.SUCCESS if ran.ok else ResultState.ERROR
    return session, change(call, result=result_block(plan, state, ran.text))


def start_call(session: Session, at: datetime, operation: str) -> Session:
    """Note that a call was handed out."""
    mine = [call for call in calls_of(session) if call.operation_id == operation and call.started_at is None]
    current = session.current
    if not mine or current is None:
        return session
    if mine[0].plan.effect is not Effect.READ:
        session = change(session, current=change(current, effectful=True))
    return with_calls(session, lambda each: change(each, started_at=at) if each is mine[0] else each)


def give_up_harmless(session: Session, at: datetime) -> Session:
    """Give up what nothing is lost by: calls that only read, that were never handed out, or that others carry out."""

    def harmless(call: PlannedCall) -> bool:
        return not call.settled and (call.started_at is None or call.plan.effect is Effect.READ or call.plan.external)

    return _interrupted(session, at, harmless)


def interrupt_rest(session: Session, at: datetime) -> Session:
    """Give a result that says so to each call that has none."""
    return _interrupted(session, at, lambda call: call.result is None)


def _interrupted(session: Session, at: datetime, which: Callable[[PlannedCall], bool]) -> Session:
    current = session.current
    for call in calls_of(session):
        if current is not None and which(call):
            result = _interrupted_result(call)
            session = with_result(session, call.operation_id, result)
            session = result_entry(session, at, call, result)
    return session


def with_result(session: Session, operation: str, result: ToolResultBlock) -> Session:
    """Give a call of the current step its result."""
    return with_calls(session, lambda each: change(each, result=result) if each.operation_id == operation else each)


def _interrupted_result(call: PlannedCall) -> ToolResultBlock:
    if call.lost is not None:
        text = (
            f"interrupted, and the outcome is unknown: {call.lost}. Do not assume that it happened or that it did not."
        )
    elif call.started_at is None:
        text = "interrupted before it started: it did not happen"
    elif call.plan.external:
        text = "interrupted while somebody outside was to carry it out: whether that was done is not known"
    else:
        text = "interrupted"
    return result_block(call.plan, ResultState.INTERRUPTED, text)


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


def denied(plan: CallPlan, why: str) -> ToolResultBlock:
    """Return the result of a call that must not run."""
    return result_block(plan, ResultState.DENIED, f"denied: {why}" if why else "denied")


def result_block(plan: CallPlan, state: ResultState, text: str) -> ToolResultBlock:
    """Return a result that is text."""
    return ToolResultBlock(id=plan.call_id, name=plan.tool, output=(TextBlock(text),), state=state)


def result_entry(session: Session, at: datetime, call: PlannedCall, result: ToolResultBlock) -> Session:
    """Write a call's result into the transcript."""
    return with_turn_entry(
        session,
        at,
        "tool_result",
        operation_id=call.operation_id,
        result=as_json(result),
    )
