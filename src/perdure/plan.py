"""Plan mode: a flag of the session under which nothing but reading and planning runs, and the plan itself."""

from __future__ import annotations

from pydantic import Field

from perdure.errors import InvalidCommand
from perdure.values import Frozen, Text

PLAN_FILE = "plan.md"
"""What a plan is called in the state, which has a place for a name only."""

MAX_PLAN = 16_000
"""Characters of a plan. While plan mode is on, history carries it with each model call."""


def _none(value: object) -> bool:
    return value is None


class PlanModeContext(Frozen):
    """Whether the session plans, and which plan is current. `plan` is its text; without one it is not in the JSON."""

    plan_active: bool = False
    current_plan_file: Text | None = None
    plan: Text | None = Field(default=None, exclude_if=_none)


def enter(context: PlanModeContext) -> PlanModeContext:
    """Switch plan mode on. A plan that was written before stays until another is written."""
    return context.model_copy(update={"plan_active": True})


def write(context: PlanModeContext, content: str) -> PlanModeContext:
    """Put a plan in the place of the one before.

    Raises:
        InvalidCommand: plan mode is off, or the plan is blank or too long.
    """
    if not context.plan_active:
        msg = "plan mode is off, and a plan is written in plan mode only; enter it first"
        raise InvalidCommand(msg)
    if not content.strip():
        msg = "the plan is blank; write what is to be done"
        raise InvalidCommand(msg)
    if len(content) > MAX_PLAN:
        msg = f"the plan has {len(content)} characters; {MAX_PLAN} are the most"
        raise InvalidCommand(msg)
    return context.model_copy(update={"plan": content, "current_plan_file": PLAN_FILE})


def leave(context: PlanModeContext) -> PlanModeContext:
    """Switch plan mode off. The plan stays, to be carried out."""
    return context.model_copy(update={"plan_active": False})
