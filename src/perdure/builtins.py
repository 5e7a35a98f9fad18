"""The tools that perdure brings: they run inside the session, as pure functions of its state.

None of them reaches what only trusted callers may do: begin a task, decide on a requirement, record a verification.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, TypeAlias, assert_never, cast

from pydantic import ConfigDict, Field, ValidationError

from perdure import plan
from perdure.errors import ConfigurationError, InvalidCommand
from perdure.operations import derived_id
from perdure.plan import MAX_PLAN
from perdure.state import explain
from perdure.tasks import TaskState
from perdure.todos import MAX_TODOS, TodoItem, write_todos
from perdure.values import CLEAN, Frozen, Text, freeze_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from perdure.plan import PlanModeContext
    from perdure.state import AgentState
    from perdure.values import FrozenDict

MAX_NAMES = 1000
"""Names of groups in one call."""


class _Arguments(Frozen):
    model_config = ConfigDict(extra="forbid")


class TodoWrite(_Arguments):
    """The whole list."""

    todos: Annotated[tuple[TodoItem, ...], Field(max_length=MAX_TODOS)]


class PlanEnter(_Arguments):
    """Nothing."""


class PlanWrite(_Arguments):
    """The whole plan."""

    content: Annotated[str, Field(max_length=MAX_PLAN), CLEAN]


class PlanExit(_Arguments):
    """What is to be done, for the person who decides."""

    summary: Annotated[str, Field(max_length=MAX_PLAN), CLEAN] | None = None


class ResetEquippedTools(_Arguments):
    """The names of the groups that are to be on."""

    to_activate: Annotated[tuple[Text, ...], Field(max_length=MAX_NAMES)]


Arguments: TypeAlias = TodoWrite | PlanEnter | PlanWrite | PlanExit | ResetEquippedTools


@dataclass(frozen=True, slots=True)
class Builtin:
    """A tool that perdure brings."""

    name: str
    description: str
    arguments: type[Arguments]

    @property
    def parameters(self) -> FrozenDict:
        """The JSON schema of the arguments."""
        return _schema(self.arguments)

    def problem(self, arguments: Mapping[str, object]) -> str | None:
        """Return what is wrong with these arguments, in words for the model that don't repeat them, or None."""
        try:
            self.read(arguments)
        except InvalidCommand as error:
            return str(error)
        return None

    def read(self, arguments: Mapping[str, object]) -> Arguments:
        """Read the arguments of a call.

        Raises:
            InvalidCommand: they don't fit.
        """
        try:
            return self.arguments.model_validate(arguments)
        except ValidationError as error:
            msg = f"the arguments of {self.name} do not fit: {explain(error)}"
            raise InvalidCommand(msg) from None


@lru_cache
def _schema(arguments: type[Arguments]) -> FrozenDict:
    return freeze_object(_plain(arguments.model_json_schema()))


def _plain(schema: object) -> object:
    """Leave out what is for readers of our code: titles, and the docstrings of our classes."""
    match schema:
        case dict():
            items = cast("dict[str, object]", schema).items()
            return {key: _plain(value) for key, value in items if key not in _WORDS or not isinstance(value, str)}
        case list():
            return [_plain(item) for item in cast("list[object]", schema)]
        case _:
            return schema


_WORDS = frozenset({"title", "description"})


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

BY_NAME: Mapping[str, Builtin] = {tool.name: tool for tool in (*GROUPS["todo"], *GROUPS["plan"], RESET)}
"""All builtin tools by their own names."""


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
    if not meta_groups:
        return tools
    return (*tools, replace(RESET, description=f"{RESET.description} There are: {', '.join(meta_groups)}."))


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
    builtin = BY_NAME.get(name)
    if builtin is None:
        return Ran(state, f"there is no such tool; perdure brings {', '.join(BY_NAME)}", ok=False)
    try:
        given = builtin.read(arguments)
        match given:
            case TodoWrite():
                return _write_todos(state, given, at, seed)
            case PlanEnter():
                return _with_plan(state, plan.enter(state.plan_mode_context), "plan mode is on: read and plan")
            case PlanWrite():
                return _with_plan(state, plan.write(state.plan_mode_context, given.content), "the plan is written")
            case PlanExit():
                return _leave_plan(state)
            case ResetEquippedTools():
                return _reset_tools(state, given, meta_groups)
            case _:  # pragma: no cover
                assert_never(given)
    except InvalidCommand as error:
        return Ran(state, str(error), ok=False)


def _write_todos(state: AgentState, given: TodoWrite, at: datetime, seed: str) -> Ran:
    tasks = write_todos(state.tasks_context, given.todos, at, lambda number: derived_id("todo", seed, str(number)))
    counts = {each: sum(todo.state is each for todo in tasks.tasks) for each in TaskState}
    said = ", ".join(f"{many} {each.value.replace('_', ' ')}" for each, many in counts.items() if many)
    return Ran(state.model_copy(update={"tasks_context": tasks}), f"the list is written: {said or 'it is empty'}")


def _with_plan(state: AgentState, context: PlanModeContext, text: str) -> Ran:
    return Ran(state.model_copy(update={"plan_mode_context": context}), text)


def _leave_plan(state: AgentState) -> Ran:
    if not state.plan_mode_context.plan_active:
        return Ran(state, "plan mode is off already", ok=False)
    return _with_plan(state, plan.leave(state.plan_mode_context), "plan mode is off: carry the plan out")


def _reset_tools(state: AgentState, given: ResetEquippedTools, meta_groups: Sequence[str]) -> Ran:
    unknown = set(given.to_activate) - set(meta_groups)
    if unknown:
        known = ", ".join(meta_groups) or "none"
        return Ran(state, f"{len(unknown)} of these are no groups that you may switch; there are: {known}", ok=False)
    chosen = [name for name in meta_groups if name in given.to_activate]
    others = [name for name in state.tool_context.activated_groups if name not in meta_groups]
    tools = state.tool_context.model_copy(update={"activated_groups": (*others, *chosen)})
    return Ran(state.model_copy(update={"tool_context": tools}), f"on: {', '.join(chosen) or 'none'}")
