"""The tools that perdure brings: they run inside the session, as pure functions of its state.

None of them reaches what only trusted callers may do: begin a task, decide on a requirement, record a verification.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from perdure.errors import ConfigurationError, InvalidCommand
from perdure.operations import derived_id
from perdure.plan import MAX_PLAN, PLAN_FILE
from perdure.tasking import replace_tasks
from perdure.tasks import Task, TaskState
from perdure.values import EMPTY, Frozen, FrozenMap, Text, freeze_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from perdure.state import AgentState
    from perdure.values import FrozenDict

MAX_TODOS = 200
MAX_TODO = 2000
"""Todos of a list, and characters of one. More is no list that anybody follows."""


class _Arguments(Frozen):
    model_config = ConfigDict(extra="forbid")


class TodoItem(_Arguments):
    """One todo, as a model writes it."""

    content: Annotated[Text, Field(max_length=MAX_TODO)]
    status: TaskState
    priority: Text | None = None


class TodoWrite(_Arguments):
    """The whole list."""

    todos: Annotated[tuple[TodoItem, ...], Field(max_length=MAX_TODOS)]


class PlanEnter(_Arguments):
    """Nothing."""


class PlanWrite(_Arguments):
    """The whole plan."""

    content: Annotated[Text, Field(max_length=MAX_PLAN)]


class PlanExit(_Arguments):
    """What is to be done, for the person who decides."""

    summary: Annotated[Text, Field(max_length=MAX_PLAN)] | None = None


class ResetEquippedTools(_Arguments):
    """The names of the groups that are to be on."""

    to_activate: Annotated[tuple[Text, ...], Field(max_length=MAX_TODOS)]


@dataclass(frozen=True, slots=True)
class Builtin:
    """A tool that perdure brings."""

    name: str
    description: str
    arguments: type[Frozen]

    @property
    def parameters(self) -> FrozenDict:
        """The JSON schema of the arguments."""
        schema = self.arguments.model_json_schema()
        schema.pop("title", None)
        schema.pop("description", None)
        schema.setdefault("properties", {})
        return freeze_object(schema)

    def problem(self, arguments: Mapping[str, object]) -> str | None:
        """Return what is wrong with these arguments, in words for the model, or None."""
        try:
            self.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            return _words(self.name, error)
        return None


def _words(name: str, error: ValidationError) -> str:
    lines = (
        f"{'.'.join(str(part) for part in item['loc']) or 'arguments'}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False, include_context=False)[:5]
    )
    return f"the arguments of {name} do not fit: {'; '.join(lines)}"


TODO_WRITE = "todo_write"
PLAN_ENTER = "plan_enter"
PLAN_WRITE = "plan_write"
PLAN_EXIT = "plan_exit"
RESET_EQUIPPED_TOOLS = "reset_equipped_tools"

GROUPS: Mapping[str, tuple[Builtin, ...]] = {
    "todo": (
        Builtin(
            TODO_WRITE,
            "Write the whole list of todos: it takes the place of the one before. Keep it up to date while you work on "
            "something with several steps; at most one todo is in progress at a time.",
            TodoWrite,
        ),
    ),
    "plan": (
        Builtin(
            PLAN_ENTER,
            "Enter plan mode, in which you can read and plan but change nothing. Use it before what is hard to undo.",
            PlanEnter,
        ),
        Builtin(
            PLAN_WRITE, "Write the whole plan; it takes the place of the one before. In plan mode only.", PlanWrite
        ),
        Builtin(
            PLAN_EXIT,
            "Ask to leave plan mode and carry the plan out. A person decides; say in a few words what will be done.",
            PlanExit,
        ),
    ),
}
"""The builtin tools by the name under which an agent's definition asks for them."""

RESET = Builtin(
    RESET_EQUIPPED_TOOLS,
    "Choose which groups of tools are on: exactly those that are named; the others are switched off.",
    ResetEquippedTools,
)


def builtins_of(names: Sequence[str], meta_groups: Sequence[str]) -> tuple[Builtin, ...]:
    """Return the tools that perdure brings to an agent with these builtins and groups that its model may switch.

    Raises:
        ConfigurationError: there is no such builtin, or one is named twice.
    """
    unknown = [name for name in names if name not in GROUPS]
    if unknown or len(set(names)) != len(names):
        msg = f"builtins are any of {', '.join(GROUPS)}, each once; got {list(names)}"
        raise ConfigurationError(msg)
    tools = tuple(tool for name in names for tool in GROUPS[name])
    return (*tools, RESET) if meta_groups else tools


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a call: the state after it, and the text for the model. A call that is not `ok` changed nothing."""

    state: AgentState
    text: str
    ok: bool = True


def run_builtin(
    state: AgentState,
    name: str,
    arguments: FrozenDict,
    *,
    at: datetime,
    seed: str,
    meta_groups: Sequence[str] = (),
) -> Ran:
    """Carry a call out. Never raises: what can't be done is an error text.

    Args:
        state: The state before.
        name: Which tool.
        arguments: What the model gave, checked again here.
        at: Now.
        seed: What new ids are made of; different for each call.
        meta_groups: The groups that the model may switch.
    """
    try:
        match name:
            case _ if name == TODO_WRITE:
                return _write_todos(state, _read(TodoWrite, arguments), at, seed)
            case _ if name == PLAN_ENTER:
                return _enter_plan(state)
            case _ if name == PLAN_WRITE:
                return _write_plan(state, _read(PlanWrite, arguments))
            case _ if name == PLAN_EXIT:
                return _exit_plan(state)
            case _ if name == RESET_EQUIPPED_TOOLS:
                return _reset_tools(state, _read(ResetEquippedTools, arguments), meta_groups)
            case _:
                return Ran(state, f"there is no builtin {name!r}", ok=False)
    except ValidationError as error:
        return Ran(state, _words(name, error), ok=False)
    except InvalidCommand as error:
        return Ran(state, str(error), ok=False)


A = TypeVar("A", bound=Frozen)


def _read(kind: type[A], arguments: FrozenDict) -> A:
    return kind.model_validate(dict(arguments))


def _write_todos(state: AgentState, given: TodoWrite, at: datetime, seed: str) -> Ran:
    """Replace the list. An item that says the same as before keeps its id and the time that it was made."""
    before = {todo.subject: todo for todo in reversed(state.tasks_context.tasks)}
    todos: list[Task] = []
    for index, item in enumerate(given.todos):
        new_id = derived_id("todo", seed, str(index))
        todo = before.pop(item.content, None) or Task(id=new_id, created_at=at.isoformat(), subject=item.content)
        metadata = EMPTY if item.priority is None else FrozenMap({"priority": item.priority})
        todos.append(todo.model_copy(update={"state": item.status, "metadata": metadata}))
    tasks = replace_tasks(state.tasks_context, todos)
    done = sum(todo.state is TaskState.COMPLETED for todo in todos)
    return Ran(state.model_copy(update={"tasks_context": tasks}), f"{len(todos)} todos, {done} of them completed")


def _with_plan(state: AgentState, **fields: object) -> AgentState:
    return state.model_copy(update={"plan_mode_context": state.plan_mode_context.model_copy(update=fields)})


def _enter_plan(state: AgentState) -> Ran:
    if state.plan_mode_context.plan_active:
        return Ran(state, "plan mode is on already")
    return Ran(_with_plan(state, plan_active=True), "plan mode is on: read and plan, and change nothing")


def _write_plan(state: AgentState, given: PlanWrite) -> Ran:
    if not state.plan_mode_context.plan_active:
        return Ran(state, "plan mode is off; enter it first", ok=False)
    if not given.content.strip():
        return Ran(state, "the plan is blank", ok=False)
    return Ran(_with_plan(state, plan=given.content, current_plan_file=PLAN_FILE), "the plan is written")


def _exit_plan(state: AgentState) -> Ran:
    if not state.plan_mode_context.plan_active:
        return Ran(state, "plan mode is off already", ok=False)
    return Ran(_with_plan(state, plan_active=False), "plan mode is off: carry the plan out")


def _reset_tools(state: AgentState, given: ResetEquippedTools, meta_groups: Sequence[str]) -> Ran:
    unknown = sorted(set(given.to_activate) - set(meta_groups))
    if unknown:
        return Ran(state, f"{len(unknown)} of these are no groups; there are: {', '.join(meta_groups)}", ok=False)
    chosen = [name for name in meta_groups if name in given.to_activate]
    others = [name for name in state.tool_context.activated_groups if name not in meta_groups]
    tools = state.tool_context.model_copy(update={"activated_groups": (*others, *chosen)})
    return Ran(state.model_copy(update={"tool_context": tools}), f"on: {', '.join(chosen) or 'none'}")
