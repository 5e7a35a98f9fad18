"""Admission: which commands a session can carry out in its present state. Refusing changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.commands import AnyCommand, Close, Interrupt, OnBusy, SubmitTurn, WaitTurn
from perdure.errors import QueueFull, RunConflict, SessionBusy, SessionClosed, StaleRun, TurnConflict, TurnNotFound
from perdure.turns import TurnRecord, input_digest

if TYPE_CHECKING:
    from perdure.session import Session


def admit(session: Session, command: AnyCommand) -> None:
    """Check that a command can be carried out now.

    Raises:
        CommandRefused: it can't; the class says why.
    """
    match command:
        case SubmitTurn():
            _admit_submit(session, command)
        case Interrupt():
            _admit_interrupt(session, command)
        case WaitTurn():
            if session.record(command.turn_id) is None:
                raise TurnNotFound(unknown_turn(session, command.turn_id))
        case Close():
            pass


def known_turn(session: Session, command: SubmitTurn) -> TurnRecord | None:
    """Return the turn that this submit repeats, if it is one that was accepted before."""
    return None if command.turn_id is None else session.record(command.turn_id)


def unknown_turn(session: Session, turn_id: str) -> str:
    """Return the words for a turn that the session doesn't know."""
    return f"session {session.key.workflow_id} knows no turn {turn_id!r}; it remembers the last {len(session.turns)}"


def _admit_submit(session: Session, command: SubmitTurn) -> None:
    known = known_turn(session, command)
    if known is not None:
        if known.input_digest != input_digest(command.input):
            msg = (
                f"turn {known.turn_id!r} was submitted before with another input; choose a new turn_id for a new input"
            )
            raise TurnConflict(msg)
        return
    if session.closing:
        msg = "the session is being closed; submit again to open it anew"
        raise SessionClosed(msg)
    if command.run_id is not None and command.run_id in session.run_ids():
        msg = f"run {command.run_id!r} was used before in this session; leave run_id out to have one generated"
        raise RunConflict(msg)
    if command.on_busy is OnBusy.REJECT and session.busy:
        msg = "the session is busy; submit with on_busy=enqueue to wait for your turn"
        raise SessionBusy(msg)
    if len(session.queue) >= session.limits.queue_limit:
        msg = f"{len(session.queue)} turns wait, and the agent allows {session.limits.queue_limit}; submit again later"
        raise QueueFull(msg)


def _admit_interrupt(session: Session, command: Interrupt) -> None:
    if command.run_id is None:
        return
    active = session.running
    if active is None or active.run_id != command.run_id:
        now = "nothing runs" if active is None else f"the active run is {active.run_id!r}"
        msg = f"run {command.run_id!r} is not active ({now}); nothing was interrupted"
        raise StaleRun(msg)
