"""What model and tool calls report, and clocks. A report that nobody waits for changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.commands import Partial
from perdure.decide import deadline
from perdure.messages import as_json
from perdure.results import TurnError
from perdure.rules.asides import steered
from perdure.rules.calls import plan_calls
from perdure.rules.changes import take_defaults
from perdure.rules.compacting import compaction_started, not_summarised, summarised
from perdure.rules.ending import complete, end_stopped, fail, say, stop
from perdure.rules.interactions import request_due
from perdure.rules.outcomes import outlast_call
from perdure.session import Session, change, with_entry, with_record
from perdure.turns import CurrentTurn, Due, Stop, StopReason, Thinking

if TYPE_CHECKING:
    from perdure.facts import GraceExpired, ModelAnswered, ModelFailed, ModelStarted, TimeExpired


def _thinking(session: Session, operation: str) -> CurrentTurn | None:
    """Return the current turn if it waits for just this model call."""
    current = session.running
    if current is None or not isinstance(current.phase, Thinking) or current.phase.operation_id != operation:
        return None
    return current


def model_started(session: Session, fact: ModelStarted) -> Session:
    """Note that the model call was handed out: from here on it may have said something."""
    current = _thinking(session, fact.operation_id)
    if current is None:
        return compaction_started(session, fact)
    if not isinstance(current.phase, Thinking) or current.phase.started:
        return session
    return change(session, current=change(current, phase=change(current.phase, started=True)))


def model_answered(session: Session, fact: ModelAnswered) -> Session:
    """Take in an answer: a whole one ends the turn or asks for tools; what a stopped one had said is kept if asked."""
    current = _thinking(session, fact.operation_id)
    if current is None:
        return summarised(session, fact)
    answer = fact.answer
    session = _with_usage(change(session, limits=answer.limits), current.turn_id, fact)
    session = take_defaults(session, answer.defaults)
    if current.stop is not None:
        keep = current.stop.partial is Partial.KEEP and answer.message.text.strip()
        return end_stopped(session, fact.at, kept=answer.message if keep else None)
    if answer.partial:
        error = TurnError(type="ModelCancelled", message="the model call was cancelled from outside the session")
        return fail(session, fact.at, error)
    session = say(session, answer.message)
    used = answer.usage.input_tokens + answer.usage.output_tokens
    session = change(session, known=session.mark, context_tokens=used if answer.usage.input_tokens else 0)
    session = with_entry(
        session,
        fact.at,
        "assistant",
        turn_id=current.turn_id,
        run_id=current.run_id,
        message=as_json(answer.message),
    )
    current = session.current or current
    if answer.message.calls:
        return plan_calls(session, fact.at, answer, current)
    if steered(session):
        return change(session, current=change(current, phase=Due(since=fact.at)))
    return complete(session, fact.at)


def _with_usage(session: Session, turn_id: str, fact: ModelAnswered) -> Session:
    record = session.record(turn_id)
    used = fact.answer.usage
    session = change(session, usage=session.usage + used)
    return session if record is None else with_record(session, turn_id, usage=record.usage + used)


def model_failed(session: Session, fact: ModelFailed) -> Session:
    """End the turn whose model call gave no answer."""
    current = _thinking(session, fact.operation_id)
    if current is None:
        return not_summarised(session, fact)
    if fact.limits is not None:
        session = change(session, limits=fact.limits)
    return fail(session, fact.at, fact.error) if current.stop is None else end_stopped(session, fact.at)


def grace_expired(session: Session, fact: GraceExpired) -> Session:
    """Wait no longer for an operation that was asked to end."""
    current = session.running
    if current is None or current.stop is None:
        return session
    if _thinking(session, fact.operation_id) is not None:
        return end_stopped(session, fact.at)
    return outlast_call(session, fact.at, fact.operation_id)


def time_expired(session: Session, fact: TimeExpired) -> Session:
    """Do what time brings: to a run that took longer than its agent allows, or to a request that nobody has answered.

    A clock that was set before a pause rings too early.
    """
    due = deadline(session)
    if due is None or due.about != fact.about or fact.at < due.at:
        return session
    if session.running is None:
        return request_due(session, fact.at, fact.about)
    return stop(session, fact.at, Stop(reason=StopReason.TIMEOUT, partial=Partial.DISCARD, at=fact.at))
