"""How the list of todos changes: as a whole, by a trusted caller or by a model. Nothing else follows from it."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Annotated

from pydantic import ConfigDict, Field

from perdure.errors import InvalidCommand
from perdure.tasking import check_said, check_size, revised
from perdure.tasks import Task, TaskState
from perdure.values import CLEAN, Frozen, FrozenMap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from perdure.tasks import TasksContext

MAX_TODOS = 200
MAX_TODO = 2000
"""Todos of a list, and characters of one. More is no list that anybody follows."""

PRIORITY = "priority"
"""The metadata key under which a todo's priority stands."""


class TodoItem(Frozen):
    """One todo, as a model writes it."""

    model_config = ConfigDict(extra="forbid")

    content: Annotated[str, Field(max_length=MAX_TODO), CLEAN]
    status: TaskState
    priority: Annotated[str, Field(max_length=100), CLEAN] | None = None


def write_todos(
    tasks: TasksContext, items: Sequence[TodoItem], at: datetime, make_id: Callable[[int], str]
) -> TasksContext:
    """Put the list that a model wrote in the place of the one before.

    An item with the same content as before keeps what else is known of it: id, time of creation, owner and the like.
    `make_id` gives a different id for each number; ids that are taken are passed over.

    Raises:
        InvalidCommand: an item is blank, or two are in progress.
    """
    for number, item in enumerate(items, 1):
        check_said(f"todo {number}", item.content, MAX_TODO)
    if sum(item.status is TaskState.IN_PROGRESS for item in items) > 1:
        msg = "one todo may be in progress at a time; leave the others pending"
        raise InvalidCommand(msg)
    before = {todo.id: todo for todo in reversed(tasks.tasks) if todo.id.strip()}
    kept: dict[str, list[Task]] = {}
    for todo in before.values():
        kept.setdefault(todo.subject, []).append(todo)
    fresh = (new for number in count() if (new := make_id(number)) not in before)

    def written(item: TodoItem) -> Task:
        same = kept.get(item.content)
        todo = same.pop() if same else Task(id=next(fresh), subject=item.content, created_at=at.isoformat())
        metadata = {key: value for key, value in todo.metadata.items() if key != PRIORITY}
        if item.priority is not None:
            metadata[PRIORITY] = item.priority
        return todo.model_copy(update={"state": item.status, "metadata": FrozenMap(metadata)})

    return revised(tasks, tasks=tuple(written(item) for item in items))


def replace_tasks(tasks: TasksContext, todos: Sequence[Task]) -> TasksContext:
    """Put other todos in the place of the list. Requirements stay as they are.

    Raises:
        InvalidCommand: one is blank or too large, an id is blank or stands twice, or there are too many.
    """
    if len(todos) > MAX_TODOS:
        msg = f"{len(todos)} todos are too many; {MAX_TODOS} are the most"
        raise InvalidCommand(msg)
    for number, todo in enumerate(todos, 1):
        check_said(f"the subject of todo {number}", todo.subject, MAX_TODO)
        check_size(f"todo {number}", todo)
    ids = {todo.id for todo in todos}
    if len(ids) != len(todos) or not all(each.strip() for each in ids):
        msg = "each todo needs an id of its own: one is blank, or stands twice"
        raise InvalidCommand(msg)
    return revised(tasks, tasks=tuple(todos))
