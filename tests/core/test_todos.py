"""The list of todos: replaced by a caller, written by a model."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from perdure.errors import InvalidCommand
from perdure.tasks import Task, TasksContext, TaskState
from perdure.todos import MAX_TODO, MAX_TODOS, TodoItem, replace_tasks, write_todos
from perdure.values import freeze_object, thaw
from tests.support.strategies import EPOCH, TASKS_CONTEXTS

SECRET = "hunter2"  # noqa: S105  # of nothing


def item(content: str, status: str = "pending", priority: str | None = None) -> TodoItem:
    return TodoItem(content=content, status=TaskState(status), priority=priority)


def number(n: int) -> str:
    return f"new-{n}"


def written(tasks: TasksContext, *items: TodoItem) -> TasksContext:
    return write_todos(tasks, items, EPOCH, number)


def test_the_list_is_replaced_and_what_is_new_is_made_now() -> None:
    """B51: content is the subject; the priority stands in the metadata."""
    before = TasksContext(tasks=(Task(id="old", subject="gone"),), revision=3)
    after = written(before, item("look", "in_progress", "high"), item("pay"))
    at = EPOCH.isoformat()
    assert after.tasks == (
        Task(
            id="new-0",
            subject="look",
            created_at=at,
            state=TaskState.IN_PROGRESS,
            metadata=freeze_object({"priority": "high"}),
        ),
        Task(id="new-1", subject="pay", created_at=at),
    )
    assert after.revision == 4
    assert written(after).tasks == ()


def test_an_item_with_the_same_content_keeps_what_is_known_of_it() -> None:
    """B51: its id and creation time, and what a model can't write: owner, links, other metadata."""
    known = Task(
        id="t",
        subject="look",
        description="at the order",
        created_at="2025-01-01",
        owner="alice",
        blocks=("u",),
        metadata=freeze_object({"from": "ticket 7", "priority": "low"}),
    )
    before = TasksContext(tasks=(Task(id="s", subject="first"), known))
    (after,) = write_todos(before, [item("look", "completed")], EPOCH + timedelta(days=1), number).tasks
    assert after == known.model_copy(
        update={"state": TaskState.COMPLETED, "metadata": freeze_object({"from": "ticket 7"})}
    )
    (urgent,) = written(before, item("look", priority="high")).tasks
    assert thaw(urgent.metadata) == {"from": "ticket 7", "priority": "high"}


def test_items_that_say_the_same_are_matched_one_by_one() -> None:
    """B51: the first to the first; no id stands twice, also where an id would be made again."""
    before = TasksContext(tasks=(Task(id="new-1", subject="try"), Task(id="b", subject="try")))
    assert [todo.id for todo in written(before, item("try"), item("try"), item("try")).tasks] == ["new-1", "b", "new-0"]
    assert [todo.id for todo in written(before, item("x"), item("y")).tasks] == ["new-0", "new-2"]
    nameless = TasksContext(tasks=(Task(id=" ", subject="try"),))
    assert [todo.id for todo in written(nameless, item("try")).tasks] == ["new-0"]


@pytest.mark.parametrize(
    "items",
    [
        [item("look"), item(" \n")],
        [item("")],
        [item("look", "in_progress"), item("pay", "in_progress")],
    ],
)
def test_blank_content_and_two_in_progress_are_refused(items: list[TodoItem]) -> None:
    """B51."""
    with pytest.raises(InvalidCommand, match=r"todo \d is blank|one todo may be in progress"):
        written(TasksContext(), *items)


@pytest.mark.parametrize(
    "fields",
    [
        {"content": "x", "status": "done"},
        {"content": "x"},
        {"status": "pending"},
        {"content": "x" * (MAX_TODO + 1), "status": "pending"},
        {"content": "x", "status": "pending", "id": "mine"},
        {"content": "x", "status": "pending", "priority": "x" * 101},
    ],
)
def test_an_item_of_another_form_is_none(fields: dict[str, object]) -> None:
    """B51: unknown states and fields too."""
    with pytest.raises(ValidationError):
        TodoItem.model_validate(fields)


@given(TASKS_CONTEXTS, st.lists(st.builds(item, st.sampled_from(["a", "b", "c", "\u2028x"])), max_size=6))
def test_a_written_list_says_what_was_written_and_every_id_in_it_is_its_own(
    tasks: TasksContext, items: list[TodoItem]
) -> None:
    """B51, B53: over any state, those with ids twice or blank too; nothing but list and revision is another."""
    after = written(tasks, *items)
    assert [todo.subject for todo in after.tasks] == [one.content for one in items]
    assert len({todo.id for todo in after.tasks}) == len(items)
    assert after == tasks.model_copy(update={"tasks": after.tasks, "revision": tasks.revision + 1})
    assert [todo.id for todo in written(after, *items).tasks] == [todo.id for todo in after.tasks]


@pytest.mark.parametrize(
    ("todos", "words"),
    [
        ([Task(id="a", subject="x"), Task(id="b", subject="  ")], "the subject of todo 2 is blank"),
        ([Task(id="a", subject="x"), Task(id="a", subject="y")], "an id of its own"),
        ([Task(id=" ", subject="x")], "an id of its own"),
        ([Task(id="a", subject=SECRET * MAX_TODO)], f"{MAX_TODO} are the most"),
        ([Task(id="a", subject="x", description=SECRET * 10_000)], "keep long text elsewhere"),
        ([Task(id="a", subject="x", metadata=freeze_object({"k": SECRET * 10_000}))], "keep long text elsewhere"),
        ([Task(id=str(n), subject="x") for n in range(MAX_TODOS + 1)], f"{MAX_TODOS} are the most"),
    ],
)
def test_a_caller_too_gives_todos_that_say_something_within_bounds(todos: list[Task], words: str) -> None:
    """B52: in words that don't repeat them."""
    with pytest.raises(InvalidCommand, match=words) as caught:
        replace_tasks(TasksContext(), todos)
    assert SECRET not in str(caught.value)


def test_several_people_may_each_have_a_todo_in_progress() -> None:
    """B52: what one model may not write, an application that gives todos to many may."""
    todos = [Task(id=who, subject="x", owner=who, state=TaskState.IN_PROGRESS) for who in ("a", "b")]
    assert replace_tasks(TasksContext(), todos).tasks == tuple(todos)
