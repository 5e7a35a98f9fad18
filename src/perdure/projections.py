"""What a model is told of a session's state beside its messages: made anew for each request, never kept.

Texts of people and models stand on one line each, or indented, so that none can pass for a heading or another item.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure.tasking import is_current

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.plan import PlanModeContext
    from perdure.tasks import TasksContext

MAX_PROJECTIONS = 20_000
"""Characters of all sections together. History carries them with each model call."""

MAX_LINE = 2000
"""Characters of one line from outside, as many as a requirement may have. Longer lines of a plan are broken."""

PLANNING = (
    "You are in plan mode: read and plan, and change nothing; other calls are denied. Write the plan with plan_write; "
    "when it is ready, ask with plan_exit to carry it out."
)
REQUIREMENTS = "Requirements (only people and the application decide on them):"
VERIFICATIONS = "Verification results (a stale one says nothing of now):"


def projections(
    tasks: TasksContext, plan: PlanModeContext, *, requirements: bool, verifications: bool
) -> tuple[str, ...]:
    """Return the sections: the todos, plan mode and, if the agent wants them, requirements and verification results.

    Together they have at most `MAX_PROJECTIONS` characters; a section that is cut says how many lines are left out.
    """
    sections: list[_Section] = []
    if tasks.tasks:
        sections.append(_Section("Todo list:", tuple(_todos(tasks))))
    if plan.plan_active:
        sections.append(_planning(plan))
    if requirements and (tasks.requirements or tasks.scope is not None):
        sections.append(_Section(REQUIREMENTS, tuple(_requirements(tasks))))
    if verifications and tasks.verifications:
        sections.append(_Section(VERIFICATIONS, tuple(_verifications(tasks))))
    return _fitted(sections)


@dataclass(frozen=True, slots=True)
class _Section:
    head: str
    lines: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return len(self.head) + sum(len(line) + 1 for line in self.lines)

    def text(self, room: int) -> str:
        """Return the section in this many characters at most."""
        if self.size <= room:
            return "\n".join((self.head, *self.lines))
        left = room - len(self.head) - len(_left_out(len(self.lines))) - 1
        kept: list[str] = []
        for line in self.lines:
            left -= len(line) + 1
            if left < 0:
                break
            kept.append(line)
        return "\n".join((self.head, *kept, _left_out(len(self.lines) - len(kept))))


def _left_out(lines: int) -> str:
    return f"(and {lines} more, left out here)"


def _fitted(sections: list[_Section]) -> tuple[str, ...]:
    """Share the room out: what a small section doesn't need is left to the larger ones."""
    left, texts = MAX_PROJECTIONS, dict[int, str]()
    by_size = sorted(range(len(sections)), key=lambda index: sections[index].size)
    for place, index in enumerate(by_size):
        texts[index] = sections[index].text(left // (len(sections) - place))
        left -= len(texts[index])
    return tuple(texts[index] for index in range(len(sections)))


def _todos(tasks: TasksContext) -> Iterator[str]:
    for todo in tasks.tasks:
        yield f"- [{todo.state.value}] {_line(todo.subject)}"


def _planning(plan: PlanModeContext) -> _Section:
    if plan.plan is None:
        return _Section(PLANNING)
    return _Section(f"{PLANNING} The present plan:", tuple(_indented(plan.plan)))


def _indented(text: str) -> Iterator[str]:
    for line in text.splitlines():
        for start in range(0, max(len(line), 1), MAX_LINE):
            yield f"    {line[start : start + MAX_LINE]}"


def _requirements(tasks: TasksContext) -> Iterator[str]:
    if tasks.scope is not None:
        yield f"- objective: {_line(tasks.scope.objective)}"
    for one in tasks.requirements:
        yield f"- {_line(one.id)} [{one.kind.value}, {one.status.value}] {_line(one.text)}"


def _verifications(tasks: TasksContext) -> Iterator[str]:
    for one in tasks.verifications:
        age = "" if is_current(tasks, one) else ", stale"
        said = "" if one.reason is None else f": {_line(one.reason)}"
        yield f"- {_line(one.requirement_id)} [{one.outcome.value}{age}]{said}"


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 1]}…"
