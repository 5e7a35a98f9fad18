"""Views: what the outside may see of a session, made from its value. Reading changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from perdure.contract import PAGE_BYTES, ContextPage, PageRequest, TranscriptPage
from perdure.messages import Block, Message, blocks_text, chain, context_origin
from perdure.operations import derived_id
from perdure.results import (
    ActiveRun,
    Interaction,
    InteractionCall,
    InterruptReceipt,
    QueueEntry,
    Receipt,
    SessionView,
    TranscriptEntry,
    TurnStatus,
    TurnView,
)
from perdure.turns import Acting, CurrentTurn, TurnRecord
from perdure.values import Frozen, json_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from perdure.session import Session

SHORT_TEXT = 80
"""Characters of a queued input that a list shows."""


def session_view(session: Session, *, history_length: int = 0, history_size: int = 0) -> SessionView:
    """Return the session at a glance."""
    return SessionView(
        status=session.status,
        revision=session.state.revision,
        active=_active(session),
        queue=tuple(_queue(session)),
        interactions=interactions(session),
        uncertain=session.uncertain,
        unfinished=_unfinished(session),
        rejections=session.rejections,
        rejected_count=session.rejected_count,
        usage=session.usage,
        messages=len(session.state.context),
        turns=session.turn_count,
        history_length=history_length,
        history_size=history_size,
    )


def _active(session: Session) -> ActiveRun | None:
    current = session.running
    if current is None:
        return None
    return ActiveRun(
        turn_id=current.turn_id,
        run_id=current.run_id,
        step=current.step,
        doing=_doing(current),
        since=current.phase.since,
    )


def _doing(current: CurrentTurn) -> str:
    if current.stop is not None:
        return "stopping"
    if isinstance(current.phase, Acting):
        return ", ".join(call.plan.tool for call in current.phase.calls if not call.settled) or "tools"
    return "model"


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
    if current is None or not current.suspended or not isinstance(current.phase, Acting):
        return ()
    lost = tuple(
        InteractionCall(
            call_id=call.plan.call_id,
            tool=call.plan.tool,
            arguments=call.plan.arguments,
            subject=call.plan.subject,
            operation_id=call.operation_id,
        )
        for call in current.phase.calls
        if call.lost is not None
    )
    request_id = derived_id("interaction", session.key.workflow_id, current.turn_id, str(current.step))
    return (
        Interaction(
            request_id=request_id,
            kind="reconciliation",
            turn_id=current.turn_id,
            calls=lost,
            asked_at=current.phase.since,
        ),
    )


def _unfinished(session: Session) -> str | None:
    """Return the latest turn that has run, if it was interrupted or has failed."""
    for record in reversed(session.turns):
        if record.runs and record.status.settled:
            unfinished = record.status in (TurnStatus.INTERRUPTED, TurnStatus.FAILED, TurnStatus.SUSPENDED)
            return record.turn_id if unfinished else None
    return None


def turn_view(session: Session, turn_id: str) -> TurnView | None:
    """Return a turn as it stands, or None when the session doesn't know it."""
    record = session.record(turn_id)
    if record is None:
        return None
    return TurnView(
        turn_id=turn_id,
        status=record.status,
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


class _Said(Frozen):
    message: Message


def _input(transcript: Sequence[TranscriptEntry], turn_id: str) -> tuple[Block, ...]:
    for entry in reversed(transcript):
        if entry.turn_id == turn_id and entry.kind == "input":
            return _Content.model_validate(entry.data).content
    return ()


def _output(transcript: Sequence[TranscriptEntry], turn_id: str) -> str:
    for entry in reversed(transcript):
        if entry.turn_id == turn_id and entry.kind == "assistant":
            return _Said.model_validate(entry.data).message.text
        if entry.turn_id == turn_id and entry.kind == "input":
            return ""
    return ""


def receipt(session: Session, record: TurnRecord, *, repeated: bool = False) -> Receipt:
    """Return the receipt of a submit, in the words of the turn's present place."""
    waiting = [turn.turn_id for turn in session.queue]
    position = waiting.index(record.turn_id) + 1 if record.turn_id in waiting else None
    run_id = record.runs[-1].run_id if record.runs else record.run_id
    if repeated:
        disposition = "settled" if record.status.settled else "duplicate"
    else:
        disposition = "started" if position is None else "queued"
    return Receipt(turn_id=record.turn_id, run_id=run_id, disposition=disposition, position=position)


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
    if position == session.known.position:
        return session.known.digest
    at = context_origin(session.state.summary)
    for message in session.state.context[:position]:
        at = chain(at, message)
    return at


def transcript_page(session: Session, request: PageRequest) -> TranscriptPage:
    """Return entries behind the sequence number `request.after`."""
    entries = (entry for entry in session.transcript if entry.seq > request.after)
    return TranscriptPage(entries=tuple(_fitting(entries))[: request.limit], last=session.last_seq)


Item = TypeVar("Item", bound=Frozen)


def _fitting(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items while a page has room; the first always fits."""
    room = PAGE_BYTES
    for index, item in enumerate(items):
        room -= json_bytes(item)
        if room < 0 and index:
            return
        yield item
