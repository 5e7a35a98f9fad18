"""How a run ends: what its context looks like then, and what becomes of its turn and of the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.commands import Partial
from perdure.contract import TURN_TIMEOUT
from perdure.messages import INTERRUPTED_MARK, INTERRUPTED_TEXT, Message, Role, as_blocks, as_json
from perdure.operations import derived_id
from perdure.results import TurnError, TurnStatus
from perdure.rules.asides import see_asides
from perdure.rules.calls import give_up_harmless, interrupt_rest, results_message
from perdure.rules.interactions import close_requests
from perdure.rules.runs import end_run
from perdure.session import Session, change, with_message, with_record, with_turn_entry, without_messages
from perdure.turns import Acting, Asker, CurrentTurn, Due, Stop, StopReason, Thinking
from perdure.values import EMPTY, FrozenDict, FrozenMap

if TYPE_CHECKING:
    from datetime import datetime

    from perdure.contract import AfterStop

MAX_STEPS = "max_steps"
"""Error type of a turn that needed more model calls than its agent allows."""


def say(session: Session, message: Message) -> Session:
    """Add a message of the current turn to the context."""
    current = session.current
    if current is not None:
        session = change(session, current=change(current, message_ids=(*current.message_ids, message.id)))
    return with_message(session, message)


def say_results(session: Session, at: datetime) -> Session:
    """Add the results of the step's calls to the context."""
    current = session.current
    if current is None or not isinstance(current.phase, Acting):
        return session
    return say(session, results_message(session, at, current))


def complete(session: Session, at: datetime) -> Session:
    """End a turn that is done."""
    return _settle(session, at, TurnStatus.COMPLETED)


def fail(session: Session, at: datetime, error: TurnError) -> Session:
    """End a turn that can't go on. What was said to it stays in the context; a half answer does not."""
    current = session.current
    if current is None:
        return session
    session = see_asides(session, at, steered_only=True)
    session = with_turn_entry(session, at, "error", type=error.type, message=error.message)
    session = with_record(session, current.turn_id, error=error)
    return _settle(session, at, TurnStatus.FAILED)


def end_stopped(session: Session, at: datetime, kept: Message | None = None) -> Session:
    """End a stopped turn, once everything of it has settled: every call has a result, the assistant has the word."""
    current = session.current
    if current is None or current.stop is None:
        return session
    session = say_results(interrupt_rest(session, at), at)
    if current.stop.reason is StopReason.TIMEOUT:
        seconds = session.limits.turn_timeout_seconds or 0
        message = f"the turn took longer than {seconds:g} s, which is what its agent allows"
        return fail(_hear_out(session, at, current.stop), at, TurnError(type=TURN_TIMEOUT, message=message))
    closing = _closing(session, at, current, kept)
    session = say(session, closing)
    session = with_turn_entry(session, at, "assistant", message=as_json(closing))
    session = _hear_out(session, at, current.stop)
    return _settle(session, at, TurnStatus.CANCELLED if current.stop.reason.final else TurnStatus.INTERRUPTED)


def _hear_out(session: Session, at: datetime, stop: Stop) -> Session:
    """Put into the context what people said to the turn while it ended."""
    session = see_asides(session, at, steered_only=True)
    current = session.current
    if current is None or not stop.message:
        return session
    return say(session, _stop_message(session, at, current, stop.message))


def _closing(session: Session, at: datetime, current: CurrentTurn, kept: Message | None) -> Message:
    return Message(
        id=derived_id("message", session.key.workflow_id, current.turn_id, current.run_id, "interrupted"),
        role=Role.ASSISTANT,
        content=as_blocks(INTERRUPTED_TEXT if kept is None else kept.text),
        metadata=_marked(EMPTY if kept is None else kept.metadata),
        timestamp=at.isoformat(),
        usage=None if kept is None else kept.usage,
    )


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


def roll_back(session: Session, at: datetime, actor: str | None) -> Session:
    """End the current turn as if it had never been said. Only for one that has touched nothing."""
    current = session.current
    if current is None:
        return session
    session = interrupt_rest(close_requests(session, at, actor), at)
    current = session.current or current
    session = with_turn_entry(session, at, "change", actor=actor, change="rollback")
    if session.compaction is not None:  # it may be of what is taken away: it is made anew
        session = change(session, compaction=None, compact_for=Asker(actor=session.compaction.actor))
    session = without_messages(session, frozenset(current.message_ids))
    left = tuple(aside for aside in session.asides if aside.turn_id is None)
    return _settle(change(session, asides=left), at, TurnStatus.CANCELLED)


def _settle(session: Session, at: datetime, status: TurnStatus) -> Session:
    """End the current turn's run. One that can go on is kept for it, and its rule says whether the queue waits."""
    current = session.current
    if current is None:
        return session
    session = change(end_run(session, at, current, status), current=None)
    if status.final:
        return session
    kept = change(current, phase=Due(since=at), suspended=False)
    # A queue that waits goes on waiting, for the turn that can be resumed: there is only one.
    parks = _rule(session, current, status) == "park" or session.parked is not None
    return change(session, unfinished=kept, parked=current.turn_id if parks else None)


def _rule(session: Session, current: CurrentTurn, status: TurnStatus) -> AfterStop:
    """Return what the turn's own submit says of the queue, or else its agent."""
    if status is TurnStatus.FAILED:
        return current.after_failure or session.limits.after_failure
    return current.after_interrupt or session.limits.after_interrupt


def stop(session: Session, at: datetime, wanted: Stop) -> Session:
    """Stop the current turn: what has no effect is given up at once, what may have one has some time to settle.

    A turn that is being stopped already goes on being stopped; what can't be taken back outweighs what can, and
    nothing that anybody has said is lost.
    """
    current = session.current
    if current is None:
        return session
    before = current.stop
    if before is not None:
        stronger = wanted if wanted.reason.final and not before.reason.final else before
        if before.reason is StopReason.CANCEL and wanted.reason is StopReason.CLOSE:
            stronger = wanted
        discard = Partial.DISCARD in (before.partial, wanted.partial)
        wanted = change(
            stronger,
            message=_both(before.message, wanted.message),
            partial=Partial.DISCARD if discard else Partial.KEEP,
        )
    session = close_requests(session, at, wanted.actor)
    current = session.current or current
    session = change(session, current=change(current, stop=wanted, suspended=False))
    if isinstance(current.phase, Thinking):
        begun = current.phase.started
        return session if begun and wanted.partial is Partial.KEEP else end_stopped(session, at)
    return give_up_harmless(session, at)


def _both(first: str | None, second: str | None) -> str | None:
    """Return what two stops of one run have said; neither is lost."""
    said = [text for text in (first, second) if text]
    return "\n".join(said) if said else None
