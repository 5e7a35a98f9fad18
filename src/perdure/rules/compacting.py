"""Compaction: a summary, made by a model call, takes the place of the older messages.

It happens between steps, when the context has grown over what the agent allows or when somebody asks for it. A call
and its result are never parted, the newest messages and calls without an outcome stay, and a summary that fails costs
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.contract import Mark
from perdure.messages import Message, Role, chain_all, context_origin
from perdure.operations import derived_id
from perdure.results import TurnError
from perdure.session import Session, change, with_context, with_entry, with_late_results
from perdure.turns import Asker, Compaction
from perdure.values import json_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from perdure.facts import CompactionRequested, ModelAnswered, ModelFailed, ModelStarted

BYTES_PER_TOKEN = 4
"""What a token is about, in bytes of a message's JSON, where no provider has counted."""

KEPT_SHARE = 3
"""One part in so many of what the agent allows stays as it was said: the newest messages."""

RETRY_SHARE = 4
"""A context that could not be made smaller is tried again when it has grown by one part in so many."""


def context_tokens(session: Session) -> int:
    """Return about how many tokens the next model call would read."""
    if not session.context_tokens:
        return _tokens(session.state.context)
    return session.context_tokens + _tokens(session.state.context[session.known.position :])


def _tokens(messages: Sequence[Message]) -> int:
    return sum(json_bytes(message) for message in messages) // BYTES_PER_TOKEN


def compaction_due(session: Session) -> bool:
    """Tell whether older messages should be put into a summary before the next step."""
    if session.compaction is not None:
        return False
    if session.compact_for is not None:
        return True
    over = session.limits.compact_over
    return over is not None and context_tokens(session) > max(over, session.compact_again_over)


def compaction_requested(session: Session, fact: CompactionRequested) -> Session:
    """Note that somebody wants a summary: it is made before the next step, or at once when no turn runs."""
    return session if session.closing else change(session, compact_for=Asker(actor=fact.actor))


def begin_compaction(session: Session, at: datetime) -> Session:
    """Want a summary of the older messages, if there are any."""
    asker = session.compact_for
    kept = 0 if asker is not None else (session.limits.compact_over or 0) // KEPT_SHARE
    session = change(with_late_results(session), compact_for=None)
    upto = min(_cut(session.state.context, kept), _first_unsettled(session))
    if upto == 0:
        return _not_before_it_grows(session)
    digest = chain_all(context_origin(session.state.summary), session.state.context[:upto])
    number = str(session.compactions)  # a summary that failed is asked for by another operation
    wanted = derived_id("operation", session.key.workflow_id, "summary", digest, number)
    compaction = Compaction(
        operation_id=wanted,
        upto=Mark(position=upto, digest=digest),
        since=at,
        actor=None if asker is None else asker.actor,
    )
    return change(session, compaction=compaction, compactions=session.compactions + 1)


def _not_before_it_grows(session: Session) -> Session:
    room = (session.limits.compact_over or 0) // RETRY_SHARE
    return change(session, compact_again_over=context_tokens(session) + room)


def _cut(context: Sequence[Message], kept_tokens: int) -> int:
    """Return how many messages go into the summary; 0 for none.

    What stays begins with what a user said, if it can, and never with the results of a call that goes.
    """
    index, left = len(context) - 1, kept_tokens
    while index > 0 and (left := left - _tokens(context[index : index + 1])) >= 0:
        index -= 1
    spoken = [at for at in range(1, index + 1) if context[at].role is Role.USER]
    if spoken:
        return spoken[-1]
    while index > 0 and context[index].results:
        index -= 1
    return max(index, 0)


def _first_unsettled(session: Session) -> int:
    """Return the place of the first call whose outcome is unknown: its result is still to take its place there."""
    awaited = {one.plan.call_id for one in session.uncertain if one.plan is not None}
    context = session.state.context
    places = (index for index, message in enumerate(context) if any(call.id in awaited for call in message.calls))
    return next(places, len(context))


def compaction_started(session: Session, fact: ModelStarted) -> Session:
    """Note that a model was asked for the summary."""
    compaction = session.compaction
    if compaction is None or compaction.operation_id != fact.operation_id:
        return session
    return change(session, compaction=change(compaction, started=True))


def summarised(session: Session, fact: ModelAnswered) -> Session:
    """Put the summary in its place. One of messages that are not there any more is dropped."""
    compaction = session.compaction
    if compaction is None or compaction.operation_id != fact.operation_id:
        return session
    answer = fact.answer
    session = change(session, compaction=None, limits=answer.limits, usage=session.usage + answer.usage)
    text = answer.message.text.strip()
    if answer.partial or not text:
        error = TurnError(type="SummaryCutShort", message="the model was stopped, or said nothing")
        return _failed(session, fact.at, compaction, error)
    context, upto = session.state.context, compaction.upto
    if chain_all(context_origin(session.state.summary), context[: upto.position]) != upto.digest:
        return session
    taken = frozenset(message.id for message in context[: upto.position])
    current = session.current
    if current is not None and not taken.isdisjoint(current.message_ids):
        session = change(session, current=change(current, effectful=True))  # it can't be taken back any more
    session = _not_before_it_grows(with_context(session, context[upto.position :], text))
    return with_entry(
        session,
        fact.at,
        "summary",
        actor=compaction.actor,
        text=text,
        messages=upto.position,
        tokens=answer.usage.input_tokens,
    )


def not_summarised(session: Session, fact: ModelFailed) -> Session:
    """Go on without a summary."""
    compaction = session.compaction
    if compaction is None or compaction.operation_id != fact.operation_id:
        return session
    return _failed(change(session, compaction=None), fact.at, compaction, fact.error)


def _failed(session: Session, at: datetime, compaction: Compaction, error: TurnError) -> Session:
    words = f"no summary: {error.message}"
    session = with_entry(session, at, "error", actor=compaction.actor, type=error.type, message=words)
    return _not_before_it_grows(session)
