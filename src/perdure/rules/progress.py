"""What follows of itself: the steps and turns that are due, as long as nothing holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from perdure.messages import Message, Role
from perdure.operations import derived_id, operation_id
from perdure.results import TurnError
from perdure.rules.asides import see_asides
from perdure.rules.calls import calls_of
from perdure.rules.changes import clear
from perdure.rules.compacting import begin_compaction, compaction_due
from perdure.rules.ending import MAX_STEPS, end_stopped, fail, say, say_results
from perdure.rules.interactions import outstanding, suspend
from perdure.rules.runs import begin_run
from perdure.session import Session, change, with_late_results, with_record
from perdure.turns import Acting, CurrentTurn, Doubt, Due, PlannedCall, Thinking

if TYPE_CHECKING:
    from datetime import datetime


def go_on(session: Session, at: datetime) -> Session:
    """Take every move that is due now, until the session waits: for an operation, for somebody, or for nothing."""
    while (further := _move(session, at)) is not session:
        session = further
    return session


def _move(session: Session, at: datetime) -> Session:
    """Take one move; return the same session when none is due."""
    current = session.current
    if current is None:
        return _at_rest(session, at)
    if current.suspended:
        return session
    match current.phase:
        case Due():
            return _begin_step(session, at, current)
        case Thinking():
            return _before_the_call(session, at, current.phase)
        case Acting():
            return _after_the_calls(session, at, current)
        case _:  # pragma: no cover
            assert_never(current.phase)


def _at_rest(session: Session, at: datetime) -> Session:
    """Do what had to wait until no turn runs; then start the turn at the head of the queue."""
    if session.closing:
        return session
    if session.clear_for is not None and not session.uncertain:
        return clear(session, at, session.clear_for.actor)
    if session.compact_for is not None and session.compaction is None:
        return begin_compaction(session, at)
    return _start_next(session, at)


def _start_next(session: Session, at: datetime) -> Session:
    """Start the turn at the head of the queue, if nothing holds it."""
    if session.paused or session.compaction is not None or not session.queue:
        return session
    turn, *rest = session.queue
    if session.parked is not None and not turn.ahead:
        return session
    record = session.record(turn.turn_id)
    first_run_id = turn.run_id if record is None else record.run_id
    current = CurrentTurn(
        turn_id=turn.turn_id,
        run_id=turn.run_id,
        first_run_id=first_run_id,
        attributes=turn.attributes,
        phase=Due(since=at),
        clock_from=at,
        effectful=False,
        after_interrupt=turn.after_interrupt,
        after_failure=turn.after_failure,
    )
    session = begin_run(change(session, queue=tuple(rest), current=current), at, current)
    session = see_asides(session, at)  # before the turn's own input, which is what the model is to answer
    message = Message(
        id=derived_id("message", session.key.workflow_id, turn.turn_id, turn.run_id, "input"),
        name=session.state.user_id,
        role=Role.USER,
        content=turn.input,
        timestamp=at.isoformat(),
    )
    return say(session, message)


def _begin_step(session: Session, at: datetime, current: CurrentTurn) -> Session:
    """Begin the next step: what was put aside is seen, and a model call is wanted."""
    if current.stop is not None:
        return end_stopped(session, at)
    taken, allowed = current.step - current.first_step + 1, session.limits.max_steps
    if taken >= allowed:
        message = f"the turn took {taken} steps, and the agent allows {allowed}"
        return fail(session, at, TurnError(type=MAX_STEPS, message=message))
    if session.paused or session.compaction is not None:
        return session
    if compaction_due(session):
        return begin_compaction(session, at)
    session = see_asides(with_late_results(session), at)
    current = session.current or current
    step = current.step + 1
    wanted = operation_id(
        session.key.workflow_id, current.turn_id, step, None, first_run_id=current.first_run_id or current.run_id
    )
    current = change(current, step=step, phase=Thinking(operation_id=wanted, since=at))
    state = change(session.state, reply_id=current.run_id, cur_iter=step, revision=session.state.revision + 1)
    return with_record(change(session, current=current, state=state), current.turn_id, steps=step)


def _before_the_call(session: Session, at: datetime, phase: Thinking) -> Session:
    """Let a model call that was not handed out yet see what came since."""
    if phase.started or not session.asides:
        return session
    return see_asides(session, at)


def _after_the_calls(session: Session, at: datetime, current: CurrentTurn) -> Session:
    """End the step when every call of it has settled; suspend the turn when only people can go on with it."""
    calls = calls_of(session)
    if current.stop is not None:
        return end_stopped(session, at) if all(call.settled for call in calls) else session
    if not any(call.asking for call in calls) and (_under_way(calls) or _being_asked(session, calls)):
        return session
    if outstanding(session):
        return suspend(session, at)
    session = say_results(session, at)
    current = session.current or current
    return change(session, current=change(current, phase=Due(since=at)))


def _under_way(calls: tuple[PlannedCall, ...]) -> bool:
    return any(not call.settled and not call.outside for call in calls)


def _being_asked(session: Session, calls: tuple[PlannedCall, ...]) -> bool:
    """Whether a tool is being asked what became of one of these calls."""
    lost = {call.operation_id for call in calls if call.lost is not None}
    return any(one.doubt is Doubt.ASKING and one.operation_id in lost for one in session.uncertain)
