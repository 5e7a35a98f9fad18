"""Which commands a session may refuse, told anew from what people can see: a refusal is right only if its reason is.

`admission` is held to this, in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, assert_never

from perdure.admission import admit, repeats
from perdure.changes import SetContext, SetSummary
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
    InteractionNotFound,
    InvalidCommand,
    NotResumable,
    NotSteerable,
    PerdureError,
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
from perdure.messages import blocks_text
from perdure.results import TurnStatus
from perdure.turns import Doubt
from perdure.views import interactions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.session import Session
    from tests.support.witness import Witness

WAITING = (TurnStatus.QUEUED, TurnStatus.RUNNING, TurnStatus.SUSPENDED)


def accepted(session: Session, witness: Witness, command: AnyCommand) -> bool:
    """Have a command admitted, and tell whether it was and means something.

    Raises:
        AssertionError: it was refused or accepted wrongly.
    """
    reasons = set(_reasons(session, witness, command))
    refusal = _refusal(session, command)
    right = " or ".join(sorted(reason.__name__ for reason in reasons))
    told = f"{type(command).__name__} was answered with {refusal!r}, where {right or 'no refusal'} is right"
    assert (type(refusal) in reasons) if reasons else (refusal is None), told
    return refusal is None and not (isinstance(command, SubmitTurn) and repeats(session, command))


def _refusal(session: Session, command: AnyCommand) -> PerdureError | None:
    try:
        admit(session, command)
    except PerdureError as refusal:
        return refusal
    return None


def _reasons(  # noqa: C901, PLR0912  # a table: one case a command
    session: Session, witness: Witness, command: AnyCommand
) -> Iterator[type[PerdureError]]:
    match command:
        case SubmitTurn():
            yield from _against_submit(session, witness, command)
        case ResumeTurn():
            yield from _against_resume(session, command)
        case CancelTurn():
            yield from _against_cancel(session, command)
        case Interrupt():
            yield from _stale(session, command.run_id)
        case Steer():
            yield from _stale(session, command.run_id)
            yield from _against_input(session)
            yield from () if _steerable(session) else (NotSteerable,)
        case Inject():
            yield from _against_input(session)
        case Pause() | Unpause() | Renew():
            yield from (SessionClosed,) if session.closing else ()
        case WaitTurn():
            yield from (TurnNotFound,) if session.find(command.turn_id) is None else ()
        case Respond():
            yield from _against_answer(session, command)
        case Reconcile():
            yield from (SessionClosed,) if session.closing else ()
            outstanding = {one.operation_id for one in session.uncertain if one.doubt is not Doubt.FLYING}
            yield from () if outstanding and outstanding == command.outcomes.keys() else (InvalidCommand,)
        case UpdateState():
            yield from _against_changes(session, command)
        case ClearContext():
            yield from (SessionClosed,) if session.closing else ()
            yield from () if command.when_idle else _unrest(session)
        case Compact():
            yield from (SessionClosed,) if session.closing else ()
            yield from (InvalidCommand,) if len(session.state.context) < 2 else ()
        case Close():
            pass
        case _:  # pragma: no cover
            assert_never(command)


def _against_submit(session: Session, witness: Witness, command: SubmitTurn) -> Iterator[type[PerdureError]]:
    turn_id = command.turn_id
    if turn_id is not None and (witness.submit(turn_id) or turn_id in witness.joined):
        if not any(one.text == blocks_text(command.input) for one in witness.said):
            yield TurnConflict
        return
    if session.closing:
        yield SessionClosed
    yield from _used(session, command.run_id)
    steers = command.on_busy is OnBusy.STEER and _steerable(session)
    if command.on_busy is OnBusy.REJECT and _busy(session):
        yield SessionBusy
    current = session.current
    if command.on_busy is OnBusy.ROLLBACK and current is not None and current.turn_id in witness.touched:
        yield RollbackRefused
    full = len(session.asides if steers else session.queue) >= session.limits.queue_limit
    if full and command.on_busy is not OnBusy.LATEST:
        yield QueueFull


def _against_resume(session: Session, command: ResumeTurn) -> Iterator[type[PerdureError]]:
    record = session.record(command.turn_id)
    if record is None:
        yield TurnNotFound
        return
    if session.closing:
        yield SessionClosed
    latest = session.unfinished is not None and session.unfinished.turn_id == command.turn_id
    if session.current is not None or not latest:
        yield NotResumable
    if session.uncertain:
        yield UncertainOperations
    yield from _used(session, command.run_id)


def _against_cancel(session: Session, command: CancelTurn) -> Iterator[type[PerdureError]]:
    record = session.record(command.turn_id)
    if record is None:
        yield TurnNotFound
    elif not record.status.final and any(one.turn_id == command.turn_id for one in session.uncertain):
        yield UncertainOperations


def _against_answer(session: Session, command: Respond) -> Iterator[type[PerdureError]]:
    if session.closing:
        yield SessionClosed
    asked = next((one for one in interactions(session) if one.request_id == command.request_id), None)
    if asked is None:
        yield InteractionNotFound
        return
    ids = {call.call_id for call in asked.calls}
    results = {*(command.result or {}), *(command.errors or {})}
    named = set(command.approve) if isinstance(command.approve, Mapping) else ids
    fits = {
        "approval": command.approve is not None and not results and named and named <= ids,
        "external": command.approve is None and not command.remember and results and results <= ids,
        "reconciliation": False,
    }
    if not fits[asked.kind] or (
        command.remember and not any(call.suggested_rules for call in asked.calls if _approves(command, call.call_id))
    ):
        yield InvalidCommand


def _approves(command: Respond, call_id: str) -> bool:
    if isinstance(command.approve, Mapping):
        return call_id in command.approve and command.approve[call_id].approve
    return command.approve is True


def _against_changes(session: Session, command: UpdateState) -> Iterator[type[PerdureError]]:
    """Tell of changes that are possible in themselves."""
    if session.closing:
        yield SessionClosed
    if command.expected_revision != session.state.revision:
        yield StaleRevision
    if any(isinstance(one, SetContext | SetSummary) for one in command.changes):
        yield from _unrest(session)


def _unrest(session: Session) -> Iterator[type[PerdureError]]:
    if session.uncertain:
        yield UncertainOperations
    if session.current is not None:
        yield SessionBusy


def _against_input(session: Session) -> Iterator[type[PerdureError]]:
    if session.closing:
        yield SessionClosed
    if len(session.asides) >= session.limits.queue_limit:
        yield QueueFull


def _stale(session: Session, run_id: str | None) -> Iterator[type[PerdureError]]:
    running = [one for one in session.turns if one.status is TurnStatus.RUNNING]
    if run_id is not None and run_id not in {one.runs[-1].run_id for one in running}:
        yield StaleRun


def _used(session: Session, run_id: str | None) -> Iterator[type[PerdureError]]:
    taken = {run.run_id for record in session.turns for run in record.runs} | {one.run_id for one in session.turns}
    if run_id in taken:
        yield RunConflict


def _busy(session: Session) -> bool:
    waits = any(record.status in WAITING for record in session.turns)
    return waits or session.pause is not None or session.parked is not None


def _steerable(session: Session) -> bool:
    runs = any(record.status is TurnStatus.RUNNING for record in session.turns)
    return runs and session.current is not None and session.current.stop is None
