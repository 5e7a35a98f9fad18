"""`decide(session)`: what should be in flight now.

The edge compares it with what is, starts what is missing and stops what is not wanted any more; so a session that moved
to another worker, or continued as new, goes on by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias, assert_never

from perdure.contract import ArchiveCall, CallPlan, Inquiry, ModelCall, ToolInvocation
from perdure.messages import Role
from perdure.models import Purpose
from perdure.operations import MODEL, derived_id, readable_id
from perdure.projections import projections
from perdure.rules.archiving import due as archive_due
from perdure.turns import Acting, CurrentTurn, Doubt, Due, PlannedCall, Thinking
from perdure.values import FrozenMap, canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.messages import Message
    from perdure.session import Session

EMPTY_ATTRIBUTES: FrozenMap[str] = FrozenMap()

MAX_DELTA_BYTES = 256 * 1024
"""Messages since the last model call travel with the next one up to this size. Larger ones are read by the worker
through a query, which costs no history."""


MAX_WHOLE_BYTES = 16 * 1024
"""The same for a context that no worker knows yet, as after a summary: it is in history already, or was carried."""

MAX_REMINDER = 500
"""Characters of a request that a model is reminded of."""


class Wanted(StrEnum):
    """What should become of an operation."""

    RUN = "run"
    SETTLE = "settle"
    """It was stopped: ask it to end, and give it a bounded time to say how."""


@dataclass(frozen=True, slots=True)
class CallModel:
    """Have the model called, for an answer or for a summary; `model_call` gives the payload."""

    operation_id: str
    activity_id: str
    turn_id: str
    step: int
    wanted: Wanted
    purpose: Purpose = Purpose.ANSWER


@dataclass(frozen=True, slots=True)
class CallTool:
    """Have a tool called; `tool_invocation` gives the payload."""

    operation_id: str
    activity_id: str
    turn_id: str
    plan: CallPlan
    index: int
    wanted: Wanted


@dataclass(frozen=True, slots=True)
class AskTool:
    """Have a tool asked what became of one of its calls; `inquiry` gives the payload.

    `operation_id` is the question's own; `about` is the call's.
    """

    operation_id: str
    activity_id: str
    turn_id: str
    about: str
    plan: CallPlan
    wanted: Wanted = Wanted.RUN


@dataclass(frozen=True, slots=True)
class KeepTranscript:
    """Have what was said and done go to the archive; of a closed session all, until it is there."""

    operation_id: str
    activity_id: str
    call: ArchiveCall
    turn_id: str = ""
    wanted: Wanted = Wanted.RUN


Wish: TypeAlias = CallModel | CallTool | AskTool | KeepTranscript


def decide(session: Session) -> tuple[Wish, ...]:
    """Return everything that should be in flight, in a stable order. Nothing, when the session waits."""
    if session.closing:
        return (*_of_the_turn(session), *_archive(session))
    return (*_of_the_turn(session), *_inquiries(session), *_summary(session), *_archive(session))


def _archive(session: Session) -> Iterator[KeepTranscript]:
    last = session.archives and session.closed and not session.checkpointed
    if last or archive_due(session):
        place = f"{session.archived + 1}.{session.archive_tries}" if not last else f"all-{session.last_seq}"
        call = ArchiveCall(after=session.archived, upto=session.last_seq, checkpoint=last)
        yield KeepTranscript(derived_id("archive", session.key.workflow_id, place), f"archive/{place}", call)


def _inquiries(session: Session) -> Iterator[AskTool]:
    for one in session.uncertain:
        if one.doubt is Doubt.ASKING and one.plan is not None:
            question = derived_id("inquiry", one.operation_id)
            activity_id = f"{readable_id(one.turn_id, one.step, one.tool, one.index)}/reconcile"
            yield AskTool(question, activity_id, one.turn_id, one.operation_id, one.plan)


def _summary(session: Session) -> Iterator[CallModel]:
    compaction = session.compaction
    if compaction is not None:
        turn_id = "" if session.current is None else session.current.turn_id
        activity_id = f"summary/{compaction.operation_id}"
        yield CallModel(compaction.operation_id, activity_id, turn_id, 0, Wanted.RUN, Purpose.SUMMARY)


def _of_the_turn(session: Session) -> tuple[Wish, ...]:
    current = session.running
    if current is None:
        return ()
    wanted = Wanted.RUN if current.stop is None else Wanted.SETTLE
    match current.phase:
        case Due():
            return ()
        case Thinking():
            activity_id = readable_id(current.turn_id, current.step, MODEL, 0)
            return (CallModel(current.phase.operation_id, activity_id, current.turn_id, current.step, wanted),)
        case Acting():
            if any(call.asking for call in current.phase.calls):
                return ()
            due = (call for call in current.phase.calls if not call.settled and not call.outside)
            return tuple(_call_tool(current, call, wanted) for call in due)
        case _:  # pragma: no cover
            assert_never(current.phase)


@dataclass(frozen=True, slots=True)
class Deadline:
    """When something is due: for a run, to be stopped; for a request, to be brought up again or to expire."""

    about: str
    at: datetime


def deadline(session: Session) -> Deadline | None:
    """Return when time next brings something; None when it brings nothing."""
    if session.current is not None and session.current.suspended:
        moments = [
            Deadline(request.request_id, moment)
            for request in session.current.requests
            for moment in (request.expires_at, request.remind_at)
            if moment is not None
        ]
        return min(moments, key=lambda due: due.at, default=None)
    current, seconds = session.steerable, session.limits.turn_timeout_seconds
    if current is None or seconds is None or current.clock_from is None or isinstance(current.phase, Due):
        return None
    return Deadline(current.run_id, current.clock_from + timedelta(seconds=seconds))


def _call_tool(current: CurrentTurn, call: PlannedCall, wanted: Wanted) -> CallTool:
    activity_id = readable_id(current.turn_id, current.step, call.plan.tool, call.index)
    return CallTool(call.operation_id, activity_id, current.turn_id, call.plan, call.index, wanted)


def tool_invocation(session: Session, wish: CallTool) -> ToolInvocation:
    """Return what a tool's activity is given."""
    current = _current(session)
    edited = any(call.operation_id == wish.operation_id and call.edited for call in current.calls)
    rules = session.state.permission_context.deny_rules.get(wish.plan.tool, ()) if edited else ()
    place = Place(current.turn_id, current.run_id, current.step, wish.index, wish.operation_id, current.attributes)
    return _invocation(session, wish.plan, place).model_copy(update={"edited": edited, "deny_rules": rules})


def inquiry(session: Session, wish: AskTool) -> Inquiry | None:
    """Return what the activity is given that asks a tool about its call; None if nobody wants to know any more."""
    known = next((one for one in session.uncertain if one.operation_id == wish.about), None)
    if known is None:
        return None
    place = Place(known.turn_id, known.run_id, known.step, known.index, known.operation_id, known.attributes)
    return Inquiry(invocation=_invocation(session, wish.plan, place), over_by=known.over_by)


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a session a call stands, and what it is known by."""

    turn_id: str
    run_id: str
    step: int
    index: int
    operation_id: str
    attributes: FrozenMap[str]


def _invocation(session: Session, plan: CallPlan, place: Place) -> ToolInvocation:
    state = session.state
    return ToolInvocation(
        agent_id=state.agent_id,
        session_id=state.session_id,
        user_id=state.user_id,
        call_id=plan.call_id,
        tool=plan.tool,
        arguments=plan.arguments,
        effect=plan.effect,
        attempts=plan.attempts,
        turn_id=place.turn_id,
        run_id=place.run_id,
        step=place.step,
        index=place.index,
        operation_id=place.operation_id,
        attributes=place.attributes,
    )


def model_call(session: Session, wish: CallModel) -> ModelCall:
    """Return what the model activity is given."""
    if wish.purpose is Purpose.SUMMARY:
        return _summary_call(session, wish)
    current = _current(session)
    state, limits = session.state, session.limits
    call = _call(session, wish, current)
    return call.model_copy(
        update={
            "base": session.known,
            "head": session.mark,
            "delta": _delta(session),
            "clock_from": current.clock_from,
            "defaults_wanted": bool(session.unset),
            "projections": (
                *projections(
                    state.tasks_context,
                    state.plan_mode_context,
                    requirements=limits.show_requirements,
                    verifications=limits.show_verifications,
                ),
                *_reminder(session, current),
            ),
        }
    )


def _reminder(session: Session, current: CurrentTurn) -> Iterator[str]:
    """Say what a turn that was resumed is about, where others have talked since."""
    if current.step != current.first_step:
        return
    mine, asked, others = frozenset(current.message_ids), "", False
    for message in session.state.context:
        if message.id in mine:
            asked, others = asked or message.text, False
        else:
            others = others or message.role is Role.ASSISTANT
    if asked and others:
        shown = " ".join(asked.split())[:MAX_REMINDER]
        yield f"You were stopped while you worked on this request of the user, and are to go on with it now: {shown}"


def _delta(session: Session) -> tuple[Message, ...] | None:
    """Return what is new in the context since the last call, if it is worth sending."""
    delta = session.state.context[session.known.position :]
    size = sum(len(canonical_json(message.model_dump(mode="json"))) for message in delta)
    return delta if size <= (MAX_DELTA_BYTES if session.known.position else MAX_WHOLE_BYTES) else None


def _summary_call(session: Session, wish: CallModel) -> ModelCall:
    """Ask for a summary of the older messages, all of which a worker has, or reads from the session."""
    upto = session.mark if session.compaction is None else session.compaction.upto
    return _call(session, wish, session.current).model_copy(update={"base": upto, "head": upto})


def _call(session: Session, wish: CallModel, current: CurrentTurn | None) -> ModelCall:
    state = session.state
    groups = None if "groups" in session.unset else state.tool_context.activated_groups
    return ModelCall(
        purpose=wish.purpose,
        agent_id=state.agent_id,
        session_id=state.session_id,
        user_id=state.user_id,
        turn_id=wish.turn_id,
        run_id="" if current is None else current.run_id,
        step=wish.step,
        operation_id=wish.operation_id,
        attributes=EMPTY_ATTRIBUTES if current is None else current.attributes,
        base=session.mark,
        head=session.mark,
        activated_groups=groups,
    )


def _current(session: Session) -> CurrentTurn:
    current = session.current
    if current is None:
        msg = "a wish belongs to the current turn, and the session has none"
        raise ValueError(msg)
    return current
