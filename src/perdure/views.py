"""Views: what the outside may see of a session, made from its value. Reading changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar, assert_never

from perdure.contract import PAGE_BYTES, SLICE, CheckpointSlice, ContextPage, PageRequest, Slice, TranscriptPage
from perdure.former import Former
from perdure.messages import Block, Message, blocks_text, chain_all, context_origin
from perdure.results import (
    ActiveRun,
    ChangeReceipt,
    Interaction,
    InteractionCall,
    InterruptReceipt,
    Operation,
    PauseReceipt,
    QueueEntry,
    Receipt,
    SessionView,
    SteerReceipt,
    Stopped,
    TranscriptEntry,
    TurnView,
)
from perdure.rules.archiving import checkpoint
from perdure.rules.interactions import concerned
from perdure.session import with_late_results
from perdure.turns import Acting, Ask, CurrentTurn, Due, PlannedCall, Thinking, TurnRecord, Uncertain
from perdure.values import Frozen, json_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from perdure.session import Session
    from perdure.state import AgentState

SHOWN_ANSWERS = 10
"""Requests that were answered, in a view."""

_EPOCH = datetime.fromtimestamp(0, UTC)
"""Where a time must stand that only the archive knows."""

SHORT_TEXT = 80
"""Characters of a queued input that a list shows."""


def snapshot(session: Session) -> AgentState:
    """Return the state as it stands, with what is known by now of calls that have settled late."""
    return with_late_results(session).state.model_copy(update={"revision": session.state.revision})


def session_view(session: Session, *, history_length: int = 0, history_size: int = 0) -> SessionView:
    """Return the session at a glance."""
    return SessionView(
        status=session.status,
        revision=session.state.revision,
        active=_active(session),
        queue=tuple(_queue(session)),
        interactions=interactions(session),
        answered=session.answered[-SHOWN_ANSWERS:],
        uncertain=tuple(_operation(one) for one in session.uncertain),
        unfinished=_unfinished(session),
        stopped=_stopped(session),
        parked=session.parked,
        rejections=session.rejections,
        rejected_count=session.rejected_count,
        paused=session.paused,
        pause_reason=session.pause.reason if session.pause else None,
        paused_by=session.pause.actor if session.pause else None,
        waiting_inputs=len(session.asides),
        clearing=session.clear_for is not None,
        compacting=session.compaction is not None or session.compact_for is not None,
        usage=session.usage,
        unset=session.unset,
        messages=len(session.state.context),
        turns=session.turn_count,
        history_length=history_length,
        history_size=history_size,
    )


def _operation(uncertain: Uncertain) -> Operation:
    return Operation(**{name: getattr(uncertain, name) for name in Operation.model_fields})


def _active(session: Session) -> ActiveRun | None:
    current = session.running
    if current is None:
        return None
    record = session.record(current.turn_id)
    return ActiveRun(
        turn_id=current.turn_id,
        run_id=current.run_id,
        step=current.step,
        doing=_doing(current),
        since=current.phase.since,
        actor=None if record is None else record.actor,
        stopped_by=None if current.stop is None else current.stop.actor,
    )


def _doing(current: CurrentTurn) -> str:
    if current.stop is not None:
        return "stopping"
    match current.phase:
        case Due():
            return "held"
        case Thinking():
            return "model"
        case Acting():
            return ", ".join(call.plan.tool for call in current.phase.calls if not call.settled) or "tools"
        case _:  # pragma: no cover
            assert_never(current.phase)


def _queue(session: Session) -> Iterator[QueueEntry]:
    for turn in session.queue:
        record = session.record(turn.turn_id)
        if record is not None:
            text = blocks_text(turn.input)
            yield QueueEntry(
                turn_id=turn.turn_id,
                text=text if len(text) <= SHORT_TEXT else f"{text[: SHORT_TEXT - 1]}…",
                submitted_at=record.submitted_at,
                actor=record.actor,
            )


def interactions(session: Session) -> tuple[Interaction, ...]:
    """Return what the suspended turn waits for."""
    current = session.current
    if current is None:
        return ()
    return tuple(
        Interaction(
            request_id=request.request_id,
            kind=request.kind,
            turn_id=current.turn_id,
            calls=tuple(_asked(call) for call in current.calls if concerned(call, request.kind)),
            asked_at=request.asked_at,
            expires_at=request.expires_at,
            reminders=request.reminders,
        )
        for request in current.requests
    )


def _asked(call: PlannedCall) -> InteractionCall:
    ask = call.ask or Ask()
    return InteractionCall(
        call_id=call.plan.call_id,
        tool=call.plan.tool,
        arguments=call.plan.arguments,
        subject=call.plan.subject,
        suggested_rules=ask.remembered,
        reason=call.lost or ask.reason,
        operation_id=call.operation_id,
    )


def respond_receipt(session: Session, turn_id: str) -> Receipt:
    """Return whether a turn goes on after an answer, and in which run."""
    current = session.current
    waits = current is not None and current.turn_id == turn_id and current.suspended
    record = session.record(turn_id)
    return Receipt(
        turn_id=turn_id,
        run_id=None if record is None else _run_id(record),
        disposition="waiting" if waits else "started",
    )


def reconcile_receipt(session: Session, turn_id: str) -> Receipt:
    """Return what an outcome that was stated means for the turn that it is of."""
    running = session.running
    goes_on = running is not None and running.turn_id == turn_id
    record = session.record(turn_id)
    return Receipt(
        turn_id=turn_id,
        run_id=None if record is None else _run_id(record),
        disposition="started" if goes_on else "settled",
    )


def change_receipt(session: Session) -> ChangeReceipt:
    """Return the state's revision, and whether the context is still to be cleared."""
    return ChangeReceipt(revision=session.state.revision, pending=session.clear_for is not None)


def _unfinished(session: Session) -> str | None:
    """Return the turn that somebody may go on with: the suspended one, or the one that can be resumed."""
    current = session.current
    if current is not None and current.suspended:
        return current.turn_id
    return None if session.unfinished is None else session.unfinished.turn_id


def _stopped(session: Session) -> Stopped | None:
    kept = session.unfinished
    record = None if kept is None else session.record(kept.turn_id)
    if kept is None or record is None:
        return None
    return Stopped(
        turn_id=kept.turn_id,
        status=record.status,
        ended_at=kept.phase.since,
        stopped_by=None if kept.stop is None else kept.stop.actor,
        message=None if kept.stop is None else kept.stop.message,
        error=record.error,
    )


def turn_view(session: Session, turn_id: str) -> TurnView | None:
    """Return a turn as it stands, or the one that it joined; None when the session doesn't know it."""
    record = session.find(turn_id)
    if record is None:
        return None
    if isinstance(record, Former):
        joined = session.joined_by(turn_id)
        turn_id = turn_id if joined is None else joined.into
        return TurnView(turn_id=turn_id, status=record.status, submitted_at=_EPOCH, archived=True)
    turn_id = record.turn_id
    return TurnView(
        turn_id=turn_id,
        status=record.status,
        archived=session.has_archive and not any(_begins(entry, turn_id) for entry in session.transcript),
        input=_input(session.transcript, turn_id),
        output=_output(session.transcript, turn_id),
        error=record.error,
        runs=record.runs,
        steps=record.steps,
        usage=record.usage,
        submitted_at=record.submitted_at,
        submitted_by=record.actor,
    )


class _Content(Frozen):
    content: tuple[Block, ...] = ()
    via: str | None = None


class _Said(Frozen):
    message: Message


def _input(transcript: Sequence[TranscriptEntry], turn_id: str) -> tuple[Block, ...]:
    entry = next((each for each in reversed(transcript) if _begins(each, turn_id)), None)
    return () if entry is None else _Content.model_validate(entry.data).content


def _begins(entry: TranscriptEntry, turn_id: str) -> bool:
    """Whether this is the input that began the turn, and not one that was added later."""
    return entry.turn_id == turn_id and entry.kind == "input" and "via" not in entry.data


def _output(transcript: Sequence[TranscriptEntry], turn_id: str) -> str:
    for entry in reversed(transcript):
        if entry.turn_id == turn_id and entry.kind == "assistant":
            return _Said.model_validate(entry.data).message.text
        if _begins(entry, turn_id):
            return ""
    return ""


def submit_receipt(session: Session, turn_id: str, *, repeated: bool = False) -> Receipt | None:
    """Return the receipt of a submit, in the words of the turn's present place; None for a turn that is not known."""
    record = session.find(turn_id)
    if record is None:
        return None
    if isinstance(record, Former):
        return Receipt(turn_id=turn_id, disposition="settled")
    waiting = [turn.turn_id for turn in session.queue]
    position = waiting.index(record.turn_id) + 1 if record.turn_id in waiting else None
    if repeated:
        disposition = "settled" if record.status.settled else "duplicate"
    elif session.joined_by(turn_id) is not None:
        disposition = "steered"
    else:
        disposition = "started" if position is None else "queued"
    return Receipt(turn_id=record.turn_id, run_id=_run_id(record), disposition=disposition, position=position)


def resume_receipt(session: Session, turn_id: str) -> Receipt:
    """Return the receipt of a turn that was resumed."""
    record = session.record(turn_id)
    return Receipt(turn_id=turn_id, run_id=None if record is None else _run_id(record), disposition="started")


def cancel_receipt(session: Session, turn_id: str) -> Receipt:
    """Return the receipt of a turn that is to be over."""
    record = session.record(turn_id)
    settled = record is None or record.status.settled
    return Receipt(
        turn_id=turn_id,
        run_id=None if record is None else _run_id(record),
        disposition="settled" if settled else "stopping",
    )


def _run_id(record: TurnRecord) -> str:
    return record.runs[-1].run_id if record.runs else record.run_id


def steer_receipt(session: Session) -> SteerReceipt | None:
    """Return which step will see what the running turn is steered by now; None when no turn can be steered."""
    current = session.steerable
    if current is None:
        return None
    begun = not isinstance(current.phase, Thinking) or current.phase.started
    return SteerReceipt(turn_id=current.turn_id, run_id=current.run_id, step=current.step + (1 if begun else 0))


def inject_receipt(session: Session) -> Receipt:
    """Return who will see what is injected now."""
    running = session.steerable
    if running is None:
        return Receipt(turn_id="", disposition="queued")
    return Receipt(turn_id=running.turn_id, run_id=running.run_id, disposition="steered")


def pause_receipt(session: Session) -> PauseReceipt:
    """Return whether the session is paused."""
    running = session.running
    return PauseReceipt(paused=session.paused, turn_id=None if running is None else running.turn_id)


def interrupt_receipt(session: Session) -> InterruptReceipt:
    """Return what an interrupt meets in the present state."""
    running = session.running
    if running is None:
        return InterruptReceipt(interrupted=False)
    return InterruptReceipt(interrupted=True, turn_id=running.turn_id, run_id=running.run_id)


def context_page(session: Session, request: PageRequest) -> ContextPage:
    """Return messages behind `request.after`; from the start if the asker's digest up to there is not the session's."""
    context = session.state.context
    start = min(request.after, len(context))
    if start and request.digest is not None and request.digest != _digest_at(session, start):
        start = 0
    messages = _fitting(context[start : start + request.limit])
    return ContextPage(start=start, summary=session.state.summary, messages=tuple(messages), head=session.mark)


def _digest_at(session: Session, position: int) -> str:
    context, known = session.state.context, session.known
    if position == session.mark.position:
        return session.mark.digest
    if position >= known.position:
        return chain_all(known.digest, context[known.position : position])
    return chain_all(context_origin(session.state.summary), context[:position])


def transcript_page(session: Session, request: PageRequest) -> TranscriptPage:
    """Return entries behind the sequence number `request.after`, of those that the session has without a gap."""
    first = session.last_seq + 1
    for entry in reversed(session.transcript):
        if entry.seq != first - 1:
            break
        first = entry.seq
    entries = (entry for entry in session.transcript if entry.seq > request.after and entry.seq >= first)
    return TranscriptPage(
        entries=tuple(_fitting(entries))[: request.limit],
        last=session.last_seq,
        archived=session.archived if session.has_archive else 0,
    )


def checkpoint_slice(session: Session, wanted: Slice) -> CheckpointSlice:
    """Return part of a closed session as JSON, as the archive keeps it; nothing of one that is open again."""
    if not session.closed:
        return CheckpointSlice(seq=session.last_seq)
    text = checkpoint(session).model_dump_json()
    return CheckpointSlice(text=text[wanted.after : wanted.after + SLICE], total=len(text), seq=session.last_seq)


Item = TypeVar("Item", bound=Frozen)


def _fitting(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items while a page has room; the first always fits."""
    room = PAGE_BYTES
    for index, item in enumerate(items):
        room -= json_bytes(item)
        if room < 0 and index:
            return
        yield item
