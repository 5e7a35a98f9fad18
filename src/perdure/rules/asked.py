"""What people ask of a session: commands that were accepted, as facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.commands import OnBusy, Partial
from perdure.former import find_former
from perdure.messages import as_json
from perdure.results import Rejection, TurnStatus
from perdure.rules.archiving import reopen
from perdure.rules.asides import put_aside
from perdure.rules.ending import roll_back, stop
from perdure.rules.runs import begin_run
from perdure.session import (
    REMEMBERED_REJECTIONS,
    Session,
    change,
    with_entry,
    with_record,
)
from perdure.turns import (
    REMEMBERED_TURNS,
    Due,
    Joined,
    Pause,
    QueuedTurn,
    Stop,
    StopReason,
    TurnRecord,
    input_digest,
    remember,
)

if TYPE_CHECKING:
    from datetime import datetime

    from perdure.facts import (
        CancelRequested,
        CloseRequested,
        CommandRejected,
        InputInjected,
        InputSteered,
        InterruptRequested,
        PauseRequested,
        ResumeRequested,
        TurnSubmitted,
        UnpauseRequested,
    )
    from perdure.turns import CurrentTurn


# ---- turns ------------------------------------------------------------------------------------------------------


def turn_submitted(session: Session, fact: TurnSubmitted) -> Session:
    """Take a turn in, as its policy says when the session is busy. A repeated one changes nothing."""
    if session.find(fact.turn_id) is not None:
        return session
    if session.reopens:
        session = reopen(session, fact.at)
    if session.closing:
        return session
    current = session.steerable
    if fact.on_busy is OnBusy.STEER and current is not None:
        return _joined(session, fact, current)
    if fact.on_busy is OnBusy.LATEST:
        session = _cancel_queue(session, fact.at, fact.actor)
    ahead = fact.on_busy in (OnBusy.INTERRUPT, OnBusy.ROLLBACK)
    session = _queued(session, fact, ahead=ahead)
    if session.current is None or not ahead:
        return session
    if fact.on_busy is OnBusy.ROLLBACK and not session.current.effectful:
        return roll_back(session, fact.at, fact.actor)
    return stop(session, fact.at, Stop(reason=StopReason.INTERRUPT, actor=fact.actor, at=fact.at))


def _joined(session: Session, fact: TurnSubmitted, current: CurrentTurn) -> Session:
    """Have a submit join the running turn; its turn id means that turn from now on."""
    session = put_aside(session, fact.at, fact.input, current.turn_id, fact.actor)
    one = Joined(turn_id=fact.turn_id, into=current.turn_id, input_digest=input_digest(fact.input))
    return change(session, joined=(*session.joined, one)[-REMEMBERED_TURNS:])


def _queued(session: Session, fact: TurnSubmitted, *, ahead: bool) -> Session:
    record = TurnRecord(
        turn_id=fact.turn_id,
        run_id=fact.run_id,
        input_digest=input_digest(fact.input),
        submitted_at=fact.at,
        actor=fact.actor,
    )
    turn = QueuedTurn(
        turn_id=fact.turn_id,
        run_id=fact.run_id,
        input=fact.input,
        attributes=fact.attributes,
        ahead=ahead,
        after_interrupt=fact.after_interrupt,
        after_failure=fact.after_failure,
    )
    unfinished = session.unfinished.turn_id if session.unfinished else None
    needed = frozenset({session.parked, unfinished, *(one.turn_id for one in session.uncertain)})
    turns = remember(session.turns, record, needed)
    session = change(
        session,
        turns=turns,
        joined=session.joined if len(turns) > len(session.turns) else _joined_to(session, turns),
        turn_count=session.turn_count + 1,
        queue=(turn, *session.queue) if ahead else (*session.queue, turn),
    )
    content = [as_json(block) for block in fact.input]
    return with_entry(session, fact.at, "input", turn_id=fact.turn_id, actor=fact.actor, content=content)


def _joined_to(session: Session, turns: tuple[TurnRecord, ...]) -> tuple[Joined, ...]:
    """Return the submits that joined a turn which is still known."""
    known = {one.turn_id for one in turns}
    return tuple(one for one in session.joined if one.into in known or find_former(session.former, one.into))


def resume_requested(session: Session, fact: ResumeRequested) -> Session:
    """Go on with the unfinished turn, in a new run: its next step is due, and the queue is not held by it any more."""
    kept = session.unfinished
    if kept is None or kept.turn_id != fact.turn_id or session.current is not None or session.closing:
        return session
    session = with_entry(
        session, fact.at, "command", turn_id=kept.turn_id, run_id=fact.run_id, actor=fact.actor, command="resume_turn"
    )
    current = change(
        kept,
        run_id=fact.run_id,
        phase=Due(since=fact.at),
        stop=None,
        first_step=kept.step + 1,
        clock_from=fact.at,
    )
    session = change(_released(session, kept.turn_id), current=current, unfinished=None)
    return begin_run(session, fact.at, current)


def cancel_requested(session: Session, fact: CancelRequested) -> Session:
    """Have a turn be over for good, wherever it is."""
    record = session.record(fact.turn_id)
    if record is None or record.status.final:
        return session
    current = session.current
    session = with_entry(session, fact.at, "command", turn_id=fact.turn_id, actor=fact.actor, command="cancel_turn")
    if current is not None and current.turn_id == fact.turn_id:
        return stop(session, fact.at, Stop(reason=StopReason.CANCEL, actor=fact.actor, at=fact.at))
    kept = tuple(turn for turn in session.queue if turn.turn_id != fact.turn_id)
    session = _cancelled(change(session, queue=kept), fact.at, fact.turn_id)
    if session.unfinished is not None and session.unfinished.turn_id == fact.turn_id:
        session = change(session, unfinished=None)
    return _released(session, fact.turn_id)


def _released(session: Session, turn_id: str) -> Session:
    """Let the queue go on, if it was this turn that held it."""
    return change(session, parked=None) if session.parked == turn_id else session


def _cancel_queue(session: Session, at: datetime, actor: str | None) -> Session:
    waiting = [turn.turn_id for turn in session.queue]
    session = change(session, queue=())
    for turn_id in waiting:
        session = _cancelled(session, at, turn_id, actor)
    return session


def _cancelled(session: Session, at: datetime, turn_id: str, actor: str | None = None) -> Session:
    session = with_record(session, turn_id, status=TurnStatus.CANCELLED)
    return with_entry(session, at, "turn", turn_id=turn_id, actor=actor, status=TurnStatus.CANCELLED.value)


# ---- input for a turn that runs ---------------------------------------------------------------------------------


def input_steered(session: Session, fact: InputSteered) -> Session:
    """Keep input for the running turn's next model call."""
    current = session.steerable
    return session if current is None else put_aside(session, fact.at, fact.input, current.turn_id, fact.actor)


def input_injected(session: Session, fact: InputInjected) -> Session:
    """Keep input for the next step of whatever turn comes."""
    return session if session.closing else put_aside(session, fact.at, fact.input, None, fact.actor)


# ---- stopping and holding ---------------------------------------------------------------------------------------


def interrupt_requested(session: Session, fact: InterruptRequested) -> Session:
    """Stop what runs, if it is what was meant."""
    running = session.running
    if running is None or (fact.run_id is not None and fact.run_id != running.run_id):
        return session
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
    wanted = Stop(reason=StopReason.INTERRUPT, message=fact.message, partial=fact.partial, actor=fact.actor, at=fact.at)
    return stop(session, fact.at, wanted)


def pause_requested(session: Session, fact: PauseRequested) -> Session:
    """Begin no further step."""
    if session.paused or session.closing:
        return session
    session = with_entry(session, fact.at, "command", actor=fact.actor, command="pause", reason=fact.reason)
    return change(session, pause=Pause(at=fact.at, reason=fact.reason, actor=fact.actor))


def unpause_requested(session: Session, fact: UnpauseRequested) -> Session:
    """Go on. The time that a turn was held does not count against it."""
    if not session.paused:
        return session
    session = with_entry(session, fact.at, "command", actor=fact.actor, command="unpause", reason=fact.reason)
    current = session.current
    if current is not None and current.clock_from is not None and isinstance(current.phase, Due):
        held = fact.at - current.phase.since
        current = change(current, clock_from=current.clock_from + held)
    return change(session, pause=None, current=current)


def close_requested(session: Session, fact: CloseRequested) -> Session:
    """End the session: what waits is cancelled, what runs is stopped."""
    if fact.for_good:
        session = change(session, ending=True)
    if session.closing:
        return session
    waiting = tuple(turn.turn_id for turn in session.queue)
    current = session.current
    cancelled = waiting if current is None else (current.turn_id, *waiting)
    session = with_entry(session, fact.at, "command", actor=fact.actor, command="close", reason=fact.reason)
    session = change(session, closing=True, close_reason=fact.reason, cancelled_by_close=cancelled)
    session = change(session, compaction=None, compact_for=None, clear_for=None)
    session = _cancel_queue(session, fact.at, None)
    wanted = Stop(reason=StopReason.CLOSE, partial=Partial.DISCARD, actor=fact.actor, at=fact.at)
    return stop(session, fact.at, wanted)


def command_rejected(session: Session, fact: CommandRejected) -> Session:
    """Record a signal that could not be accepted."""
    rejection = Rejection(at=fact.at, command=fact.command, error=fact.error, message=fact.message)
    return change(
        session,
        rejections=(*session.rejections, rejection)[-REMEMBERED_REJECTIONS:],
        rejected_count=session.rejected_count + 1,
    )
