"""Plan mode: a flag of the session under which nothing but reading and planning runs."""

from __future__ import annotations

from perdure.values import Frozen, Text


class PlanModeContext(Frozen):
    """Whether the session plans, and which plan is current."""

    plan_active: bool = False
    current_plan_file: Text | None = None
