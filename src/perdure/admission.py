"""Admission: which commands a session can carry out in its present state. Refusing changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from perdure.changes import apply_changes, checked, touches_context
from perdure.commands import (
    AnyCommand,
    CancelTurn,
    ClearContext,
    Close,
    Compact,
    Inject,
    Interrupt,
    OnBusy,
    Pause,
    Reconcile,
    Renew,
    Respond,
    ResumeTurn,
    Steer,
    SubmitTurn,
    Unpause,
    UpdateState,
    WaitTurn,
)
from perdure.errors import (
    ContextTooLarge,
    InvalidCommand,
    NotResumable,
    NotSteerable,
    QueueFull,
    RollbackRefused,
    RunConflict,
    SessionBusy,
    SessionClosed,
    StaleRevision,
    StaleRun,
    TurnConflict,
    TurnNotFound,
    UncertainOperations,
)
from perdure.former import Former, find_former, short
from perdure.responses import admit_response
from perdure.results import TurnStatus
from perdure.turns import Doubt, input_digest
from perdure.values import json_bytes

MIN_COMPACTABLE = 2
"""Messages. The last one stays as it is."""

if TYPE_CHECKING:
    from datetime import datetime

    from perdure.session import Session
    from perdure.turns import TurnRecord


def admit(session: Session, command: AnyCommand, at: datetime | None = None) -> None:  # noqa: C901, PLR0912  # a table: one case a command
    """Check that a command can be carried out now, which is the time `at`, if that matters.

    Raises:
        CommandRefused: it can't; the class says why.
    """
    match command:
        case SubmitTurn():
            _admit_submit(session, command)
        case ResumeTurn():
            _admit_resume(session, command)
        case CancelTurn():
            _admit_cancel(session, command)
        case Interrupt():
            _check_run(session, command.run_id, "nothing was interrupted")
        case Steer():
            _admit_steer(session, command)
        case Inject():
            _check_open(session)
            _check_asides(session)
        case Respond():
            _check_open(session)
            admit_response(session, command)
        case Reconcile():
            _admit_outcomes(session, command, at)
        case UpdateState():
            _admit_changes(session, command)
        case ClearContext():
            _check_open(session)
            if not command.when_idle:
                _check_at_rest(session, "clear_context with when_idle waits for that")
        case Compact():
            _check_open(session)
            _check_compactable(session)
        case Pause() | Unpause():
            _check_open(session)
        case WaitTurn():
            if session.find(command.turn_id) is None:
                raise TurnNotFound(unknown_turn(session, command.turn_id))
        case Renew():
            _check_open(session)
            _check_carriable(session)
        case Close():
            pass
        case _:  # pragma: no cover
            assert_never(command)


def repeats(session: Session, command: SubmitTurn) -> bool:
    """Tell whether a submit repeats one that was accepted before."""
    return command.turn_id is not None and session.find(command.turn_id) is not None


def unknown_turn(session: Session, turn_id: str) -> str:
    """Return the words for a turn that the session doesn't know."""
    remembered = len(session.turns) + len(session.former)
    return f"session {session.key.workflow_id} knows no turn {turn_id!r}; it remembers the last {remembered}"


# ---- turns ------------------------------------------------------------------------------------------------------


def _admit_submit(session: Session, command: SubmitTurn) -> None:
    if command.turn_id is not None and repeats(session, command):
        if not _same_input(session, command.turn_id, input_digest(command.input)):
            msg = (
                f"turn {command.turn_id!r} was submitted before with another input; "
                "choose a new turn_id for a new input"
            )
            raise TurnConflict(msg)
        return
    if not session.reopens:
        _check_open(session)
    _check_new_run(session, command.run_id)
    match command.on_busy:
        case OnBusy.REJECT if session.busy:
            msg = f"the session is busy: {_why_busy(session)}; submit with on_busy=enqueue to wait for your turn"
            raise SessionBusy(msg)
        case OnBusy.STEER if session.steerable is not None:
            _check_asides(session)
        case OnBusy.LATEST:
            pass  # it takes the place of whatever waits
        case OnBusy.ROLLBACK:
            _check_rollback(session)
            _check_queue(session)
        case _:
            _check_queue(session)


def _same_input(session: Session, turn_id: str, digest: str) -> bool:
    joined = session.joined_by(turn_id)
    if joined is not None:
        return joined.input_digest == digest
    known = session.find(turn_id)
    return known is not None and (
        known.input == short(digest) if isinstance(known, Former) else known.input_digest == digest
    )


def _why_busy(session: Session) -> str:
    current = session.current
    if current is not None:
        return f"turn {current.turn_id!r} {'waits for somebody' if current.suspended else 'runs'}"
    if session.paused:
        return "it is paused"
    if session.parked is not None:
        return f"its queue is held until turn {session.parked!r} is resumed or cancelled"
    return f"{len(session.queue)} turns wait"


def _check_rollback(session: Session) -> None:
    current = session.current
    if current is not None and current.effectful:
        msg = (
            f"turn {current.turn_id!r} has used a tool that is not read-only, which can't be taken back; "
            "submit with on_busy=interrupt to stop it and keep what was said"
        )
        raise RollbackRefused(msg)


def _admit_resume(session: Session, command: ResumeTurn) -> None:
    record = session.record(command.turn_id)
    if record is None:
        _refuse_former(session, command.turn_id)
        raise TurnNotFound(_not_a_turn(session, command.turn_id))
    _check_open(session)
    if any(one.turn_id == record.turn_id for one in session.uncertain):
        raise UncertainOperations(_unsettled(session, f"turn {record.turn_id!r} can be resumed"))
    why = _why_not_resumable(session, record)
    if why is not None:
        msg = f"turn {record.turn_id!r} can't be resumed: {why}"
        raise NotResumable(msg)
    if session.uncertain:
        raise UncertainOperations(_unsettled(session, f"turn {record.turn_id!r} can be resumed"))
    _check_new_run(session, command.run_id)


def _refuse_former(session: Session, turn_id: str) -> None:
    former = find_former(session.former, turn_id)
    if former is not None:
        msg = f"turn {turn_id!r} can't be resumed: it is {former.status.value}, and others have come since"
        raise NotResumable(msg)


def _why_not_resumable(session: Session, record: TurnRecord) -> str | None:
    if record.status not in (TurnStatus.INTERRUPTED, TurnStatus.FAILED):
        return f"it is {record.status.value}, and only an interrupted or a failed turn can be"
    current = session.current
    if current is not None:
        return f"turn {current.turn_id!r} {'waits for somebody' if current.suspended else 'runs'}"
    kept = session.unfinished
    if kept is None or kept.turn_id != record.turn_id:
        last = "none is left" if kept is None else f"that is {kept.turn_id!r}"
        return f"only the latest unfinished turn can be, and {last}; submit its input again instead"
    return None


def _admit_cancel(session: Session, command: CancelTurn) -> None:
    record = session.record(command.turn_id)
    if record is None:
        if find_former(session.former, command.turn_id) is not None:
            return
        raise TurnNotFound(_not_a_turn(session, command.turn_id))
    if record.status.final:
        return
    if any(one.turn_id == record.turn_id for one in session.uncertain):
        raise UncertainOperations(_unsettled(session, f"turn {record.turn_id!r} can be cancelled"))


def _not_a_turn(session: Session, turn_id: str) -> str:
    joined = session.joined_by(turn_id)
    if joined is None:
        return unknown_turn(session, turn_id)
    return f"{turn_id!r} is no turn of its own: its input joined turn {joined.into!r}; name that one"


def _unsettled(session: Session, what: str) -> str:
    named = "; ".join(f"{one.tool} (operation {one.operation_id}) {_HOW[one.doubt]}" for one in session.uncertain)
    return f"before {what}, what was begun must settle: {named}"


_HOW = {
    Doubt.FLYING: "is still under way: wait until it ends",
    Doubt.ASKING: "was lost, and its tool is being asked: wait for the answer",
    Doubt.OPEN: "was lost, and nobody knows what became of it: look it up, and say so by reconcile",
}


# ---- input for a turn that runs ---------------------------------------------------------------------------------


def _admit_steer(session: Session, command: Steer) -> None:
    _check_open(session)
    _check_run(session, command.run_id, "nothing was steered")
    if session.steerable is None:
        now = "no turn runs" if session.running is None else "the turn that runs is being stopped"
        msg = f"{now}; submit the input as a turn of its own, or inject it for the next one"
        raise NotSteerable(msg)
    _check_asides(session)


def _check_asides(session: Session) -> None:
    if len(session.asides) >= session.limits.queue_limit:
        msg = f"{len(session.asides)} inputs wait for the next step already; wait until it begins"
        raise QueueFull(msg)


# ---- answers ----------------------------------------------------------------------------------------------------


def _admit_outcomes(session: Session, command: Reconcile, at: datetime | None) -> None:
    _check_open(session)
    for one in session.uncertain:
        stated = command.outcomes.get(one.operation_id)
        early = at is not None and one.over_by is not None and at < one.over_by
        if stated is not None and stated.outcome == "did_not_happen" and early:
            msg = (
                f"{one.tool} (operation {one.operation_id}) may still be under way until {one.over_by}: "
                "look again after that, and say then that it did not happen"
            )
            raise UncertainOperations(msg)
    flying = [one.operation_id for one in session.uncertain if one.doubt is Doubt.FLYING]
    wanted = {one.operation_id for one in session.uncertain} - set(flying)
    given = command.outcomes.keys()
    if given == wanted and wanted:
        return
    if not session.uncertain:
        msg = "no operation's outcome is unknown; there is nothing to reconcile"
        raise InvalidCommand(msg)
    still = f"; {', '.join(flying)} is still under way, and settles by itself" if flying else ""
    missing, other = wanted - given, given - wanted
    wrong = f"{len(other)} of the ids given are not among them" if other else f"{len(missing)} of them are missing"
    msg = f"the outcomes of just these operations are wanted: {', '.join(sorted(wanted)) or 'none'}; {wrong}{still}"
    raise InvalidCommand(msg)


# ---- the state --------------------------------------------------------------------------------------------------


def _admit_changes(session: Session, command: UpdateState) -> None:
    _check_open(session)
    if checked(command.changes) and command.expected_revision != session.state.revision:
        msg = (
            f"the state is at revision {session.state.revision}, and the changes are meant for "
            f"{command.expected_revision}; read the state again and decide anew"
        )
        raise StaleRevision(msg)
    if touches_context(command.changes):
        _check_at_rest(session, "change the context when the turn is over")
    apply_changes(session.state, command.changes)


def _check_at_rest(session: Session, otherwise: str) -> None:
    """Refuse to touch the context while something of it is under way, or somebody still has to answer for it."""
    if session.uncertain:
        raise UncertainOperations(_unsettled(session, "the context can be changed"))
    current = session.current
    if current is not None:
        msg = f"turn {current.turn_id!r} {'waits for somebody' if current.suspended else 'runs'}; {otherwise}"
        raise SessionBusy(msg)


def _check_compactable(session: Session) -> None:
    if len(session.state.context) < MIN_COMPACTABLE:
        msg = f"the context has {len(session.state.context)} messages, which is too little to be put into a summary"
        raise InvalidCommand(msg)


# ---- what several commands need ---------------------------------------------------------------------------------


def _check_open(session: Session) -> None:
    if session.closing:
        msg = "the session is being closed; submit again to open it anew"
        raise SessionClosed(msg)


def _check_carriable(session: Session) -> None:
    most = session.limits.carry_bytes
    if most is not None and json_bytes(session) > most:
        msg = f"the session has more than the {most} bytes that a new run can be started with; set PERDURE_STORAGE"
        raise ContextTooLarge(msg)


def _check_queue(session: Session) -> None:
    if len(session.queue) >= session.limits.queue_limit:
        msg = f"{len(session.queue)} turns wait, and the agent allows {session.limits.queue_limit}; submit again later"
        raise QueueFull(msg)


def _check_new_run(session: Session, run_id: str | None) -> None:
    if run_id is not None and session.used_run(run_id):
        msg = f"run {run_id!r} was used before in this session; leave run_id out to have one generated"
        raise RunConflict(msg)


def _check_run(session: Session, run_id: str | None, consequence: str) -> None:
    """Refuse a command that names a run which is not the active one: a late click must not hit a later run."""
    if run_id is None:
        return
    active = session.running
    if active is None or active.run_id != run_id:
        now = "nothing runs" if active is None else f"the active run is {active.run_id!r}"
        msg = f"run {run_id!r} is not active ({now}); {consequence}"
        raise StaleRun(msg)
