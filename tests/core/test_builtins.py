"""The tools that perdure brings: what a model is told of them, and what they do to a state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import jsonschema
import pytest
from hypothesis import given, strategies as st

from perdure.builtins import BY_NAME, Builtin, Ran, builtins_of, run_builtin
from perdure.errors import ConfigurationError
from perdure.plan import PLAN_FILE
from perdure.state import AgentState
from perdure.tasks import TaskState
from perdure.todos import MAX_TODO, MAX_TODOS
from perdure.toolgroups import ToolContextState
from perdure.values import FrozenDict, freeze_object, thaw
from tests.support.strategies import EPOCH, JSON_OBJECTS, STATES, json_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STATE = AgentState(session_id="s", revision=4)
GROUPS = ("web", "mail")
SECRET = "hunter2"  # noqa: S105  # of nothing

GOOD: dict[str, dict[str, Any]] = {
    "todo_write": {"todos": [{"content": "look", "status": "in_progress", "priority": "high"}]},
    "plan_enter": {},
    "plan_write": {"content": "1. look"},
    "plan_exit": {"summary": "look, then pay"},
    "reset_equipped_tools": {"to_activate": ["web"]},
}


def run(
    state: AgentState, name: str, *, seed: str = "op", meta_groups: Sequence[str] = GROUPS, **arguments: Any
) -> Ran:
    return run_builtin(state, name, freeze_object(arguments), at=EPOCH, seed=seed, meta_groups=meta_groups)


def ran(state: AgentState, name: str, **arguments: Any) -> AgentState:
    """Return the state after a call that must be fine."""
    result = run(state, name, **arguments)
    assert result.ok, result.text
    return result.state


PLANNING = ran(STATE, "plan_enter")


# ---- what there is ----------------------------------------------------------------------------------------------


def names(tools: tuple[Builtin, ...]) -> list[str]:
    return [tool.name for tool in tools]


def test_an_agent_has_the_builtins_that_its_definition_names() -> None:
    """B51, B56: the tool that switches groups comes with groups that a model may switch."""
    assert names(builtins_of((), ())) == []
    assert names(builtins_of(("todo",), ())) == ["todo_write"]
    assert names(builtins_of(("plan", "todo"), ())) == ["plan_enter", "plan_write", "plan_exit", "todo_write"]
    assert names(builtins_of((), GROUPS)) == ["reset_equipped_tools"]
    assert {tool.name for tool in builtins_of(("todo", "plan"), GROUPS)} == BY_NAME.keys() == GOOD.keys()


def test_the_tool_that_switches_groups_says_which_there_are() -> None:
    """B56: a model that doesn't know them could only guess."""
    (tool,) = builtins_of((), GROUPS)
    assert tool.description.endswith("There are: web, mail.")


@pytest.mark.parametrize("named", [("todos",), ("todo", "todo"), ("reset_equipped_tools",), ("",)])
def test_an_unknown_builtin_is_an_error_of_the_agents_definition(named: tuple[str, ...]) -> None:
    """B51: when the agent is defined, not when it runs."""
    with pytest.raises(ConfigurationError, match="todo, plan"):
        builtins_of(named, ())


def schemas(value: object) -> Iterator[dict[str, Any]]:
    """Yield every JSON object within a schema."""
    if isinstance(value, dict):
        yield cast("dict[str, Any]", value)
        for item in cast("dict[str, Any]", value).values():
            yield from schemas(item)


@pytest.mark.parametrize("tool", BY_NAME.values(), ids=BY_NAME)
def test_a_schema_says_all_fields_and_nothing_of_our_code(tool: Builtin) -> None:
    """B51: no titles and docstrings; objects take no other fields; the same value each time."""
    schema = cast("dict[str, Any]", thaw(tool.parameters))
    jsonschema.Draft202012Validator.check_schema(schema)
    for part in schemas(schema):
        assert not isinstance(part.get("title"), str)
        assert not isinstance(part.get("description"), str)
        assert part.get("type") != "object" or part["additionalProperties"] is False
    assert (schema["type"], "properties" in schema) == ("object", True)
    assert tool.parameters is tool.parameters
    jsonschema.validate(GOOD[tool.name], schema)
    assert tool.problem(GOOD[tool.name]) is None


@given(st.sampled_from(list(BY_NAME.values())), st.data())
def test_what_the_schema_refuses_is_a_problem_and_the_other_way_round(tool: Builtin, data: st.DataObject) -> None:
    """B37: the model was told of each rule that it is held to."""
    good = GOOD[tool.name]
    fields = st.sampled_from([*good, "other"])
    arguments = good | data.draw(st.dictionaries(fields, st.just("x") | json_values(), max_size=2))
    validator: Any = jsonschema.Draft202012Validator(cast("dict[str, Any]", thaw(tool.parameters)))
    assert (tool.problem(arguments) is None) == validator.is_valid(arguments)


# ---- todo_write -------------------------------------------------------------------------------------------------


def test_todos_are_written_under_ids_made_of_the_call() -> None:
    """B51: the same for each replay; the text says how many there are of each state."""
    todos = [
        {"content": "look", "status": "completed"},
        {"content": "pay", "status": "in_progress", "priority": "high"},
        {"content": "say so", "status": "pending"},
        {"content": "file", "status": "pending"},
    ]
    result = run(STATE, "todo_write", todos=todos)
    assert (result.ok, result.text) == (True, "the list is written: 2 pending, 1 in progress, 1 completed")
    tasks = result.state.tasks_context.tasks
    assert [todo.subject for todo in tasks] == ["look", "pay", "say so", "file"]
    assert (tasks[1].state, thaw(tasks[1].metadata)) == (TaskState.IN_PROGRESS, {"priority": "high"})
    assert tasks[0].created_at == EPOCH.isoformat()
    assert run(STATE, "todo_write", todos=todos) == result
    again = run(STATE, "todo_write", seed="other", todos=todos).state.tasks_context.tasks
    assert not {todo.id for todo in tasks} & {todo.id for todo in again}
    assert run(result.state, "todo_write", todos=[]).text == "the list is written: it is empty"


@pytest.mark.parametrize(
    ("todos", "words"),
    [
        ([{"content": "x", "status": SECRET}], "'pending', 'in_progress' or 'completed'"),
        ([{"content": SECRET, "status": "pending"}, {"content": " ", "status": "pending"}], "todo 2 is blank"),
        ([{"content": SECRET, "status": "in_progress"}, {"content": "y", "status": "in_progress"}], "one todo may be"),
        ([{"content": SECRET * MAX_TODO, "status": "pending"}], f"at most {MAX_TODO} characters"),
        ([{"content": "x", "status": "pending"}] * (MAX_TODOS + 1), f"at most {MAX_TODOS} items"),
        ([{"content": "x", "status": "pending", "activeForm": SECRET}], "Extra inputs are not permitted"),
        (SECRET, "valid tuple"),
    ],
)
def test_a_list_that_is_none_is_an_error_text_and_changes_nothing(todos: object, words: str) -> None:
    """B51: the model reads what to mend."""
    before = ran(STATE, "todo_write", **GOOD["todo_write"])
    result = run(before, "todo_write", todos=todos)
    assert not result.ok
    assert result.state is before
    assert words in result.text
    assert SECRET not in result.text


# ---- plan mode --------------------------------------------------------------------------------------------------


def test_a_plan_is_made_in_plan_mode_and_stays_when_it_is_left() -> None:
    """B50: enter, write, exit."""
    written = ran(PLANNING, "plan_write", content="1. look\n2. pay")
    context = written.plan_mode_context
    assert (context.plan_active, context.current_plan_file, context.plan) == (True, PLAN_FILE, "1. look\n2. pay")
    left = ran(written, "plan_exit", summary="look, then pay")
    assert left.plan_mode_context == context.model_copy(update={"plan_active": False})
    assert ran(left, "plan_enter") == written


def test_entering_twice_is_entering_once() -> None:
    """B50."""
    assert ran(PLANNING, "plan_enter") == PLANNING


@pytest.mark.parametrize(
    ("state", "name", "arguments", "words"),
    [
        (STATE, "plan_write", {"content": SECRET}, "plan mode is off"),
        (STATE, "plan_exit", {}, "plan mode is off"),
        (PLANNING, "plan_write", {"content": " \n"}, "the plan is blank"),
        (PLANNING, "plan_write", {"content": SECRET * 10_000}, "at most 16000 characters"),
        (PLANNING, "plan_write", {"content": None}, "content: "),
        (PLANNING, "plan_exit", {"summary": SECRET * 10_000}, "at most 16000 characters"),
        (PLANNING, "plan_enter", {SECRET + " ": 1}, "do not fit"),
    ],
)
def test_what_plan_mode_does_not_take_is_an_error_text_and_changes_nothing(
    state: AgentState, name: str, arguments: dict[str, Any], words: str
) -> None:
    """B50."""
    result = run(state, name, **arguments)
    assert not result.ok
    assert result.state is state
    assert words in result.text
    assert SECRET not in result.text


# ---- tool groups ------------------------------------------------------------------------------------------------


def activated(*groups: str) -> AgentState:
    return AgentState(session_id="s", tool_context=ToolContextState(activated_groups=groups))


def test_the_groups_that_are_named_are_on_and_those_of_the_application_stay() -> None:
    """B56: replacement, not addition; an external group is not the model's to switch."""
    state = activated("billing", "mail", "audit")
    assert ran(state, "reset_equipped_tools", to_activate=["web"]) == activated("billing", "audit", "web")
    assert ran(state, "reset_equipped_tools", to_activate=["mail", "web", "mail"]) == activated(
        "billing", "audit", "web", "mail"
    )
    assert ran(state, "reset_equipped_tools", to_activate=[]) == activated("billing", "audit")


@pytest.mark.parametrize("group", ["billing", SECRET, ""])
def test_a_group_that_the_model_may_not_switch_is_an_error_text(group: str) -> None:
    """B56: an external one too; the text lists those that it may switch."""
    state = activated("billing", "mail")
    result = run(state, "reset_equipped_tools", to_activate=["web", group])
    assert not result.ok
    assert result.state is state
    assert "there are: web, mail" in result.text
    assert SECRET not in result.text
    assert "there are: none" in run(state, "reset_equipped_tools", meta_groups=(), to_activate=["web"]).text


# ---- whatever comes ---------------------------------------------------------------------------------------------


def todo_list(contents: list[str], status: str) -> FrozenDict:
    return freeze_object({"todos": [{"content": content, "status": status} for content in contents]})


CALLS = st.tuples(
    st.sampled_from([*GOOD, "decide_requirement", "begin_task", "record_verification"]),
    st.one_of(
        st.sampled_from([freeze_object(arguments) for arguments in GOOD.values()]),
        st.builds(todo_list, st.lists(st.sampled_from("abc"), max_size=3), st.sampled_from(["completed", "done"])),
        JSON_OBJECTS.map(freeze_object),
    ),
)


@given(STATES, st.lists(CALLS, max_size=12))
def test_no_calls_of_a_model_decide_verify_or_begin_anything(
    state: AgentState, calls: list[tuple[str, FrozenDict]]
) -> None:
    """B53: also when all todos are completed; whatever is called, nothing is raised and nothing else is changed."""
    contract = {"requirements", "verifications", "scope", "contract_version", "subject_version"}
    before = state
    for number, (name, arguments) in enumerate(calls):
        result = run_builtin(state, name, arguments, at=EPOCH, seed=str(number), meta_groups=GROUPS)
        assert result.ok or result.state is state
        assert len(result.text) < 1000
        state = result.state
    for field in contract:
        assert getattr(state.tasks_context, field) == getattr(before.tasks_context, field)
    theirs = {"tasks_context", "plan_mode_context", "tool_context"}
    assert state.model_copy(update={name: getattr(before, name) for name in theirs}) == before
    assert AgentState.from_json(state.to_json()) == state


@pytest.mark.parametrize("name", [*GOOD, "unknown", SECRET * 1000])
@pytest.mark.parametrize(
    "arguments", [None, 5, SECRET, [SECRET], {"todos": {"todos": []}}, {1: 2}, {SECRET * 1000: {}}]
)
def test_arguments_that_are_no_object_at_all_are_an_error_text(name: str, arguments: object) -> None:
    """B37, B51: what a model makes up never stops a session."""
    result = run_builtin(STATE, name, cast("FrozenDict", arguments), at=EPOCH, seed="op")
    assert not result.ok
    assert result.state is STATE
    assert len(result.text) < 1000
    assert SECRET not in result.text
