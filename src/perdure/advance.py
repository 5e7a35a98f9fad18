"""`advance(session, fact)`: the one place where a session changes.

Total: any fact is taken in any state and never raises. A fact that no longer matters (a late answer, a repeated
submit) changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from perdure.commands import Partial
from perdure.contract import CallPlan
from perdure.facts import (
    CloseRequested,
    CommandRejected,
    Fact,
    GraceExpired,
    InterruptRequested,
    ModelAnswered,
    ModelFailed,
    ToolFinished,
    ToolLost,
    ToolStarted,
    TurnSubmitted,
)
from perdure.messages import (
    INTERRUPTED_MARK,
    Message,
    ResultState,
    Role,
    TextBlock,
    ToolResultBlock,
    as_blocks,
    as_json,
)
from perdure.operations import Effect, derived_id, operation_id
from perdure.results import Operation, Rejection, RunView, TurnError, TurnStatus
from perdure.session import REMEMBERED_REJECTIONS, Session, change, with_entry, with_message, with_record
from perdure.turns import (
    Acting,
    CurrentTurn,
    PlannedCall,
    QueuedTurn,
    Stop,
    StopReason,
    Thinking,
    TurnRecord,
    input_digest,
    remember,
)
from perdure.values import EMPTY, FrozenDict, FrozenMap, json_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

INTERRUPTED_TEXT = "(interrupted)"
"""What closes an interrupted turn when nothing of the answer was kept: models refuse an empty message."""

MAX_STEPS = "max_steps"
"""Error type of a turn that needed more model calls than its agent allows."""


def advance(session: Session, fact: Fact) -> Session:  # noqa: C901  # a table: one case a fact
    """Return the session after a fact."""
    match fact:
        case TurnSubmitted():
            return _submitted(session, fact)
        case InterruptRequested():
            return _interrupt_requested(session, fact)
        case CloseRequested():
            return _close_requested(session, fact)
        case CommandRejected():
            return _command_rejected(session, fact)
        case ModelAnswered():
            return _model_answered(session, fact)
        case ModelFailed():
            return _model_failed(session, fact)
        case ToolStarted():
            return _tool_started(session, fact)
        case ToolFinished():
            return _tool_finished(session, fact)
        case ToolLost():
            return _tool_lost(session, fact.at, fact.operation_id, fact.why)
        case GraceExpired():
            return _grace_expired(session, fact)
        case _:  # pragma: no cover
            assert_never(fact)


# ---- commands ---------------------------------------------------------------------------------------------------


def _submitted(session: Session, fact: TurnSubmitted) -> Session:
    if session.closing or session.record(fact.turn_id) is not None:
        return session
    record = TurnRecord(
        turn_id=fact.turn_id,
        run_id=fact.run_id,
        input_digest=input_digest(fact.input),
        submitted_at=fact.at,
        actor=fact.actor,
    )
    turn = QueuedTurn(turn_id=fact.turn_id, run_id=fact.run_id, input=fact.input, attributes=fact.attributes)
    session = change(
        session,
        turns=remember(session.turns, record),
        turn_count=session.turn_count + 1,
        queue=(*session.queue, turn),
    )
    content = [as_json(block) for block in fact.input]
    session = with_entry(session, fact.at, "input", turn_id=fact.turn_id, actor=fact.actor, content=content)
    return _start_next(session, fact.at)


def _interrupt_requested(session: Session, fact: InterruptRequested) -> Session:
    running = session.running
    if running is None or (fact.run_id is not None and fact.run_id != running.run_id):
        return session
    stop = Stop(reason=StopReason.INTERRUPT, message=fact.message, partial=fact.partial)
    session = with_entry(
        session,
        fact.at,
        "command",
        turn_id=running.turn_id,
        run_id=running.run_id,
        actor=fact.actor,
        command="interrupt",
        message=fact.message,
        partial=fact.partial.value,
    )
    if running.stop is not None:
        stop = change(running.stop, message=_both(running.stop.message, fact.message))
    return _stop(session, fact.at, stop, at_once=fact.partial is Partial.DISCARD)


def _both(first: str | None, second: str | None) -> str | None:
    """Return what two interrupts of one run have said; neither is lost."""
    said = [text for text in (first, second) if text]
    return "\n".join(said) if said else None


def _close_requested(session: Session, fact: CloseRequested) -> Session:
    if session.closing:
        return session
    waiting = tuple(turn.turn_id for turn in session.queue)
    current = session.current
    cancelled = waiting if current is None else (current.turn_id, *waiting)
    session = with_entry(session, fact.at, "command", actor=fact.actor, command="close", reason=fact.reason)
    session = change(session, closing=True, close_reason=fact.reason, queue=(), cancelled_by_close=cancelled)
    for turn_id in waiting:
        session = with_record(session, turn_id, status=TurnStatus.CANCELLED)
        session = with_entry(session, fact.at, "turn", turn_id=turn_id, status=TurnStatus.CANCELLED.value)
    if current is None:
        return session
    said = None if current.stop is None else current.stop.message
    stop = Stop(reason=StopReason.CLOSE, message=said, partial=Partial.DISCARD)
    return _stop(session, fact.at, stop, at_once=True)


def _command_rejected(session: Session, fact: CommandRejected) -> Session:
    rejection = Rejection(at=fact.at, command=fact.command, error=fact.error, message=fact.message)
    return change(
        session,
        rejections=(*session.rejections, rejection)[-REMEMBERED_REJECTIONS:],
        rejected_count=session.rejected_count + 1,
    )


# ---- a turn's way through its steps -----------------------------------------------------------------------------


def _start_next(session: Session, at: datetime) -> Session:
    """Start the turn at the head of the queue, if nothing holds it."""
    if session.closing or session.current is not None or not session.queue:
        return session
    turn, *rest = session.queue
    message = Message(
        id=derived_id("message", session.key.workflow_id, turn.turn_id, turn.run_id, "input"),
        name=session.state.user_id,
        role=Role.USER,
        content=turn.input,
        timestamp=at.isoformat(),
    )
    session = change(session, queue=tuple(rest))
    run = RunView(run_id=turn.run_id, started_at=at)
    session = with_record(session, turn.turn_id, status=TurnStatus.RUNNING, runs=(run,))
    session = with_entry(session, at, "run", turn_id=turn.turn_id, run_id=turn.run_id)
    session = with_message(session, message)
    return _think(session, at, turn.turn_id, turn.run_id, turn.attributes, step=1)


def _think(session: Session, at: datetime, turn_id: str, run_id: str, attributes: object, *, step: int) -> Session:
    """Begin a step: its model call is wanted."""
    record = session.record(turn_id)
    first_run_id = run_id if record is None else record.run_id
    wanted = operation_id(session.key.workflow_id, turn_id, step, None, first_run_id=first_run_id)
    current = CurrentTurn(
        turn_id=turn_id,
        run_id=run_id,
        first_run_id=first_run_id,
        attributes=attributes,  # type: ignore[arg-type]  # validated by the model
        step=step,
        phase=Thinking(operation_id=wanted, since=at),
    )
    state = change(session.state, reply_id=run_id, cur_iter=step, revision=session.state.revision + 1)
    session = with_record(session, turn_id, steps=step)
    return change(session, current=current, state=state)


def _thinking(session: Session, operation: str) -> CurrentTurn | None:
    """Return the current turn if it waits for just this model call."""
    current = session.running
    if current is None or not isinstance(current.phase, Thinking) or current.phase.operation_id != operation:
        return None
    return current


def _model_answered(session: Session, fact: ModelAnswered) -> Session:
    current = _thinking(session, fact.operation_id)
    if current is None:
        return session
    answer = fact.answer
    session = _with_usage(session, current.turn_id, fact)
    if current.stop is not None:
        keep = current.stop.partial is Partial.KEEP and answer.message.text
        return _close_stopped(session, fact.at, kept=answer.message if keep else None)
    if answer.partial:
        error = TurnError(type="ModelCancelled", message="the model call was cancelled from outside the session")
        return _fail(session, fact.at, error)
    session = change(session, limits=answer.limits)
    session = with_message(session, answer.message)
    session = change(session, known=session.mark)
    session = with_entry(
        session,
        fact.at,
        "assistant",
        turn_id=current.turn_id,
        run_id=current.run_id,
        message=as_json(answer.message),
    )
    if not answer.message.calls:
        return _settle(session, fact.at, TurnStatus.COMPLETED)
    return _act(session, fact, current)


def _with_usage(session: Session, turn_id: str, fact: ModelAnswered) -> Session:
    record = session.record(turn_id)
    used = fact.answer.usage
    session = change(session, usage=session.usage + used)
    return session if record is None else with_record(session, turn_id, usage=record.usage + used)


def _act(session: Session, fact: ModelAnswered, current: CurrentTurn) -> Session:
    """Turn the calls of an answer into calls that are wanted; refused ones have their result at once."""
    plans = {plan.call_id: plan for plan in fact.answer.plans}
    calls: list[PlannedCall] = []
    for index, block in enumerate(fact.answer.message.calls):
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
            fact.at,
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
    session = change(session, current=change(current, phase=Acting(calls=tuple(calls), since=fact.at)))
    for call in calls:
        if call.result is not None:
            session = _result_entry(session, fact.at, current, call, call.result)
    return _after_calls(session, fact.at)


def _model_failed(session: Session, fact: ModelFailed) -> Session:
    current = _thinking(session, fact.operation_id)
    if current is None:
        return session
    if current.stop is not None:
        return _close_stopped(session, fact.at)
    return _fail(session, fact.at, fact.error)


# ---- tool calls -------------------------------------------------------------------------------------------------


def _calls(session: Session) -> tuple[PlannedCall, ...]:
    current = session.current
    return current.phase.calls if current is not None and isinstance(current.phase, Acting) else ()


def _with_calls(session: Session, update: Callable[[PlannedCall], PlannedCall]) -> Session:
    """Change the tool calls of the current step, one by one."""
    current = session.current
    if current is None or not isinstance(current.phase, Acting):
        return session
    calls = tuple(update(call) for call in current.phase.calls)
    return change(session, current=change(current, phase=change(current.phase, calls=calls)))


def _open_call(session: Session, operation: str) -> PlannedCall | None:
    """Return the call of this operation if it is still open."""
    found = (call for call in _calls(session) if call.operation_id == operation and not call.settled)
    return next(found, None)


def _tool_started(session: Session, fact: ToolStarted) -> Session:
    def started(call: PlannedCall) -> PlannedCall:
        mine = call.operation_id == fact.operation_id and call.started_at is None
        return change(call, started_at=fact.at) if mine else call

    return _with_calls(session, started)


def _tool_finished(session: Session, fact: ToolFinished) -> Session:
    current = session.running
    unsettled = (call for call in _calls(session) if call.operation_id == fact.operation_id and call.result is None)
    call = next(unsettled, None)
    if call is None or current is None:
        return _settled_late(session, fact)
    result = change(fact.result, id=call.plan.call_id, name=call.plan.tool)
    session = _with_calls(session, lambda each: change(each, result=result, lost=None) if each is call else each)
    session = _certain(session, fact.operation_id)
    session = _result_entry(session, fact.at, current, call, result)
    return _after_calls(session, fact.at)


def _certain(session: Session, operation: str) -> Session:
    return change(session, uncertain=tuple(one for one in session.uncertain if one.operation_id != operation))


def _settled_late(session: Session, fact: ToolFinished) -> Session:
    """Take in the result of an operation that was uncertain: it is certain now. The context has moved on."""
    operation = next((one for one in session.uncertain if one.operation_id == fact.operation_id), None)
    if operation is None or any(call.lost and call.operation_id == fact.operation_id for call in _calls(session)):
        return session
    session = _certain(session, fact.operation_id)
    return with_entry(
        session,
        fact.at,
        "tool_result",
        turn_id=operation.turn_id,
        operation_id=operation.operation_id,
        late=True,
        result=as_json(fact.result),
    )


def _tool_lost(session: Session, at: datetime, operation: str, why: str) -> Session:
    call = _open_call(session, operation)
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
    session = _with_calls(session, lambda each: change(each, lost=why) if each is call else each)
    session = change(session, uncertain=(*session.uncertain, lost))
    session = with_entry(
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
    return _after_calls(session, at)


def _after_calls(session: Session, at: datetime) -> Session:
    """Go on when every call of the step has settled; wait otherwise."""
    calls = _calls(session)
    current = session.current
    if current is None or not all(call.settled for call in calls):
        return session
    if current.stop is not None:
        return _close_stopped(session, at)
    if any(call.lost for call in calls):
        return _suspend(session, at, current)
    session = _with_results(session, at, current)
    if current.step >= session.limits.max_steps:
        message = f"the turn took {current.step} steps, and the agent allows {session.limits.max_steps}"
        return _fail(session, at, TurnError(type=MAX_STEPS, message=message))
    return _think(session, at, current.turn_id, current.run_id, current.attributes, step=current.step + 1)


def _with_results(session: Session, at: datetime, current: CurrentTurn) -> Session:
    """Add the message with the results of the step, in the order of its calls."""
    results = _carried(session, tuple(call.result or _interrupted_result(call) for call in _calls(session)))
    message = Message(
        id=derived_id(
            "message", session.key.workflow_id, current.turn_id, current.first_run_id, str(current.step), "results"
        ),
        role=Role.TOOL,
        content=results,
        timestamp=at.isoformat(),
    )
    return with_message(session, message)


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


def _result_entry(
    session: Session, at: datetime, current: CurrentTurn, call: PlannedCall, result: ToolResultBlock
) -> Session:
    return with_entry(
        session,
        at,
        "tool_result",
        turn_id=current.turn_id,
        run_id=current.run_id,
        operation_id=call.operation_id,
        result=as_json(result),
    )


# ---- stopping and settling --------------------------------------------------------------------------------------


def _stop(session: Session, at: datetime, stop: Stop, *, at_once: bool) -> Session:
    """Stop the current turn: at once what has no effect, with some time to settle what may have one."""
    current = session.current
    if current is None:
        return session
    if current.stop is not None and current.stop.reason is StopReason.CLOSE:
        stop = current.stop
    session = change(session, current=change(current, stop=stop, suspended=False))
    if isinstance(current.phase, Thinking):
        return _close_stopped(session, at) if at_once else session
    session = _with_calls(session, _give_up_harmless)
    return _after_calls(session, at)


def _give_up_harmless(call: PlannedCall) -> PlannedCall:
    harmless = call.started_at is None or call.plan.effect is Effect.READ
    return change(call, result=_interrupted_result(call)) if harmless and not call.settled else call


def _grace_expired(session: Session, fact: GraceExpired) -> Session:
    current = session.running
    if current is None or current.stop is None:
        return session
    if _thinking(session, fact.operation_id) is not None:
        return _close_stopped(session, fact.at)
    return _tool_lost(session, fact.at, fact.operation_id, "it had not settled when the turn was interrupted")


def _close_stopped(session: Session, at: datetime, kept: Message | None = None) -> Session:
    """Close a stopped turn so that its context is valid input: every call has a result, the assistant has the word."""
    current = session.current
    if current is None or current.stop is None:
        return session
    if isinstance(current.phase, Acting):
        session = _with_results(session, at, current)
    closing = Message(
        id=derived_id("message", session.key.workflow_id, current.turn_id, current.run_id, "interrupted"),
        role=Role.ASSISTANT,
        content=as_blocks(INTERRUPTED_TEXT if kept is None else kept.text),
        metadata=_marked(EMPTY if kept is None else kept.metadata),
        timestamp=at.isoformat(),
        usage=None if kept is None else kept.usage,
    )
    session = with_message(session, closing)
    session = with_entry(
        session, at, "assistant", turn_id=current.turn_id, run_id=current.run_id, message=as_json(closing)
    )
    if current.stop.message:
        session = with_message(session, _stop_message(session, at, current, current.stop.message))
    cancelled = current.stop.reason is StopReason.CLOSE
    return _settle(session, at, TurnStatus.CANCELLED if cancelled else TurnStatus.INTERRUPTED)


def _marked(metadata: FrozenDict) -> FrozenDict:
    return FrozenMap({**metadata, INTERRUPTED_MARK: True})


def _stop_message(session: Session, at: datetime, current: CurrentTurn, text: str) -> Message:
    return Message(
        id=derived_id("message", session.key.workflow_id, current.turn_id, current.run_id, "stop"),
        name=session.state.user_id,
        role=Role.USER,
        content=as_blocks(text),
        timestamp=at.isoformat(),
    )


def _suspend(session: Session, at: datetime, current: CurrentTurn) -> Session:
    """Hold the turn, and the queue with it, until somebody settles what is outstanding."""
    session = change(session, current=change(current, suspended=True))
    return _end_run(session, at, current, TurnStatus.SUSPENDED)


def _fail(session: Session, at: datetime, error: TurnError) -> Session:
    current = session.current
    if current is None:
        return session
    session = with_entry(
        session, at, "error", turn_id=current.turn_id, run_id=current.run_id, type=error.type, message=error.message
    )
    session = with_record(session, current.turn_id, error=error)
    return _settle(session, at, TurnStatus.FAILED)


def _settle(session: Session, at: datetime, status: TurnStatus) -> Session:
    """End the current turn's run, and go on with the queue."""
    current = session.current
    if current is None:
        return session
    session = _end_run(session, at, current, status)
    return _start_next(change(session, current=None), at)


def _end_run(session: Session, at: datetime, current: CurrentTurn, status: TurnStatus) -> Session:
    record = session.record(current.turn_id)
    runs = () if record is None else record.runs
    if runs:
        runs = (*runs[:-1], change(runs[-1], ended_at=at, outcome=status))
    session = with_record(session, current.turn_id, status=status, runs=runs)
    return with_entry(session, at, "turn", turn_id=current.turn_id, run_id=current.run_id, status=status.value)
