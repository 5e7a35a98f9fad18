"""`decide(session)`: what should be in flight now.

The edge compares it with what is, starts what is missing and stops what is not wanted any more; so a session that moved
to another worker, or continued as new, goes on by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias, assert_never

from perdure.contract import CallPlan, ModelCall, ToolInvocation
from perdure.operations import MODEL, readable_id
from perdure.turns import Acting, CurrentTurn, Due, PlannedCall, Thinking
from perdure.values import canonical_json

if TYPE_CHECKING:
    from perdure.session import Session

MAX_DELTA_BYTES = 256 * 1024
"""Messages since the last model call travel with the next one up to this size. Larger ones are read by the worker
through a query, which costs no history."""


class Wanted(StrEnum):
    """What should become of an operation."""

    RUN = "run"
    SETTLE = "settle"
    """It was stopped: ask it to end, and give it a bounded time to say how."""


@dataclass(frozen=True, slots=True)
class CallModel:
    """Have the model called; `model_call` gives the payload."""

    operation_id: str
    activity_id: str
    turn_id: str
    step: int
    wanted: Wanted


@dataclass(frozen=True, slots=True)
class CallTool:
    """Have a tool called; `tool_invocation` gives the payload."""

    operation_id: str
    activity_id: str
    turn_id: str
    plan: CallPlan
    index: int
    wanted: Wanted


Wish: TypeAlias = CallModel | CallTool


def decide(session: Session) -> tuple[Wish, ...]:
    """Return everything that should be in flight, in a stable order. Nothing, when the session waits."""
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
            return tuple(_call_tool(current, call, wanted) for call in current.phase.calls if not call.settled)
        case _:  # pragma: no cover
            assert_never(current.phase)


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a run is to be stopped for the time that it takes."""

    run_id: str
    at: datetime


def deadline(session: Session) -> Deadline | None:
    """Return when the active run has had its time; None when nothing counts against it."""
    current, seconds = session.steerable, session.limits.turn_timeout_seconds
    if current is None or seconds is None or current.clock_from is None or isinstance(current.phase, Due):
        return None
    return Deadline(current.run_id, current.clock_from + timedelta(seconds=seconds))


def _call_tool(current: CurrentTurn, call: PlannedCall, wanted: Wanted) -> CallTool:
    activity_id = readable_id(current.turn_id, current.step, call.plan.tool, call.index)
    return CallTool(call.operation_id, activity_id, current.turn_id, call.plan, call.index, wanted)


def tool_invocation(session: Session, wish: CallTool) -> ToolInvocation:
    """Return what a tool's activity is given."""
    state = session.state
    current = _current(session)
    return ToolInvocation(
        agent_id=state.agent_id,
        session_id=state.session_id,
        user_id=state.user_id,
        turn_id=current.turn_id,
        run_id=current.run_id,
        step=current.step,
        index=wish.index,
        operation_id=wish.operation_id,
        call_id=wish.plan.call_id,
        tool=wish.plan.tool,
        arguments=wish.plan.arguments,
        effect=wish.plan.effect,
        attempts=wish.plan.attempts,
        attributes=current.attributes,
    )


def model_call(session: Session, wish: CallModel) -> ModelCall:
    """Return what the model activity is given: where the context ends, and what is new in it since the last call."""
    state = session.state
    current = _current(session)
    delta = state.context[session.known.position :]
    size = sum(len(canonical_json(message.model_dump(mode="json"))) for message in delta)
    return ModelCall(
        agent_id=state.agent_id,
        session_id=state.session_id,
        user_id=state.user_id,
        turn_id=current.turn_id,
        run_id=current.run_id,
        step=current.step,
        operation_id=wish.operation_id,
        attributes=current.attributes,
        base=session.known,
        head=session.mark,
        delta=delta if size <= MAX_DELTA_BYTES else None,
        activated_groups=state.tool_context.activated_groups or None,
        plan_active=state.plan_mode_context.plan_active,
        clock_from=current.clock_from,
    )


def _current(session: Session) -> CurrentTurn:
    current = session.current
    if current is None:
        msg = "a wish belongs to the current turn, and the session has none"
        raise ValueError(msg)
    return current
