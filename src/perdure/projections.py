"""What a model is told of a session's state beside its messages: made anew for each request, never kept.

Texts of people and models stand on one line each, so that none can pass for a heading or another item.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.tasking import is_current

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.plan import PlanModeContext
    from perdure.tasks import TasksContext

MAX_LINE = 500
"""Characters of one item."""

MAX_ITEMS = 64
"""Items of one list. It bounds what history carries with each model call."""

PLANNING = (
    "You are in plan mode: read and plan, and change nothing. Write the plan with plan_write; "
    "when it is ready, ask with plan_exit to carry it out."
)


def projections(
    tasks: TasksContext, plan: PlanModeContext, *, requirements: bool, verifications: bool
) -> tuple[str, ...]:
    """Return the sections: the plan, the todos and, if the agent wants them, requirements and verification results."""
    sections = (
        ("", (PLANNING,) if plan.plan_active else ()),
        ("The plan:\n", (plan.plan,) if plan.plan else ()),
        ("Todo list:\n", _todos(tasks)),
        ("Requirements:\n", _requirements(tasks) if requirements else ()),
        ("Verification results:\n", _verifications(tasks) if verifications else ()),
    )
    made = ((title, _listed(list(lines))) for title, lines in sections)
    return tuple(f"{title}{text}" for title, text in made if text)


def _listed(lines: list[str]) -> str:
    left_out = len(lines) - MAX_ITEMS
    more = [f"- and {left_out} more"] if left_out > 0 else []
    return "\n".join((*lines[:MAX_ITEMS], *more))


def _todos(tasks: TasksContext) -> Iterator[str]:
    for todo in tasks.tasks:
        yield f"- [{todo.state.value}] {_line(todo.subject)}"


def _requirements(tasks: TasksContext) -> Iterator[str]:
    if tasks.scope is not None:
        yield f"- objective: {_line(tasks.scope.objective)}"
    for one in tasks.requirements:
        yield f"- {one.id} [{one.kind.value}, {one.status.value}] {_line(one.text)}"


def _verifications(tasks: TasksContext) -> Iterator[str]:
    for one in tasks.verifications:
        age = "" if is_current(tasks, one) else ", stale"
        said = "" if one.reason is None else f": {_line(one.reason)}"
        yield f"- {one.requirement_id} [{one.outcome.value}{age}]{said}"


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 1]}…"
