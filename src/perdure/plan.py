"""Plan mode: a flag of the session under which nothing but reading and planning runs, and the plan itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import model_serializer

from perdure.values import Frozen, Text

if TYPE_CHECKING:
    from pydantic import SerializerFunctionWrapHandler

PLAN_FILE = "plan.md"
"""What a plan is called in the state, which has a place for a name only."""

MAX_PLAN = 50_000
"""Characters of a plan, which each model call reads."""


class PlanModeContext(Frozen):
    """Whether the session plans, and which plan is current. `plan` is its text; without one it is not in the JSON."""

    plan_active: bool = False
    current_plan_file: Text | None = None
    plan: Text | None = None

    @model_serializer(mode="wrap")
    def _without_nothing(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        if self.plan is None:
            fields.pop("plan", None)
        return fields
