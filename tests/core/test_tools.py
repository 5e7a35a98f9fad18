from __future__ import annotations

import inspect
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, cast

import httpx
import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel

from perdure.agents import Agent, App
from perdure.errors import ConfigurationError
from perdure.messages import TextBlock
from perdure.operations import Effect
from perdure.state import AgentState
from perdure.testing import ScriptedModel
from perdure.toolgroups import ToolGroup
from perdure.tools import RuntimeContext, Tool, ToolContext, ToolError, ToolOutput, Verdict, tool
from perdure.values import FrozenMap, freeze, thaw
from tests.support.strategies import json_values

if TYPE_CHECKING:
    from collections.abc import Mapping


class Speed(StrEnum):
    SLOW = "slow"
    FAST = "fast"


class Address(BaseModel):
    street: str
    number: int | None = None


async def no_state() -> AgentState:
    return AgentState(session_id="s")


def context() -> ToolContext:
    return ToolContext(
        agent_id="a",
        session_id="s",
        turn_id="t",
        run_id="r",
        operation_id="o",
        http=httpx.AsyncClient(),
        read_state=no_state,
    )


@tool(effect=Effect.IDEMPOTENT)
async def ship(  # noqa: PLR0917  # models name their arguments
    ctx: ToolContext,
    amount: Decimal,
    to: Address,
    speed: Speed = Speed.SLOW,
    note: str | None = None,
    on: date | None = None,
    kind: Literal["box", "letter"] = "box",
    tags: tuple[str, ...] = (),
) -> str:
    """Ship something.

    It may take a while.
    """
    return f"{ctx.operation_id} {amount} {to.street} {speed} {note} {on} {kind} {tags}"


def schema(made: Tool) -> dict[str, Any]:
    return cast("dict[str, Any]", thaw(made.parameters))


def test_a_tools_schema_is_made_of_its_type_hints_and_its_context_is_not_in_it() -> None:
    """B37: what the model is told about the arguments."""
    parameters = schema(ship)
    assert parameters["type"] == "object"
    assert list(parameters["properties"]) == ["amount", "to", "speed", "note", "on", "kind", "tags"]
    assert parameters["required"] == ["amount", "to"]
    assert parameters["additionalProperties"] is False
    assert parameters["properties"]["kind"]["enum"] == ["box", "letter"]
    assert parameters["$defs"]["Speed"]["enum"] == ["slow", "fast"]
    assert parameters["properties"]["speed"]["default"] == "slow"
    assert parameters["$defs"]["Address"]["required"] == ["street"]
    assert "title" not in parameters


def test_a_tool_is_described_by_its_docstring_and_named_by_its_function() -> None:
    """B37: unless it is given another name."""
    assert (ship.name, ship.description) == ("ship", "Ship something.\n\nIt may take a while.")

    @tool(name="pay.now")
    def pay() -> None: ...

    assert (pay.name, pay.description, schema(pay)["properties"]) == ("pay.now", "", {})


async def test_binding_gives_typed_values_the_context_and_the_defaults() -> None:
    """B37: a decimal is no float, an enum no string, a model no dictionary."""
    ctx = context()
    bound = ship.bind(
        ctx, {"amount": "10.10", "to": {"street": "Main"}, "speed": "fast", "on": "2026-01-02", "tags": ["x"]}
    )
    assert bound == {
        "ctx": ctx,
        "amount": Decimal("10.10"),
        "to": Address(street="Main"),
        "speed": Speed.FAST,
        "note": None,
        "on": date(2026, 1, 2),
        "kind": "box",
        "tags": ("x",),
    }
    assert bound["ctx"] is ctx
    assert await ship(**bound) == "o 10.10 Main fast None 2026-01-02 box ('x',)"


def test_a_parameter_may_have_any_name() -> None:
    """B37: also one that models of pydantic, or this library, use for themselves."""

    @tool
    def odd(  # noqa: PLR0917  # the same
        schema: int,
        json: str,
        copy: Speed,
        model_dump: str,
        model_config: int,
        _hidden: int = 1,
        dict: str = "d",  # noqa: A002  # the point of the test
    ) -> str:
        return f"{schema} {json} {copy} {model_dump} {model_config} {_hidden} {dict}"

    given = {"schema": 1, "json": "j", "copy": "fast", "model_dump": "m", "model_config": 2}
    assert odd.problem(given) is None
    assert odd(**odd.bind(context(), given)) == "1 j fast m 2 1 d"
    assert set(schema(odd)["properties"]) == {*given, "_hidden", "dict"}


def test_a_parameter_named_self_is_a_parameter() -> None:
    """B37: a plain function may call anything so."""

    @tool
    def reflect(self: str, cls: str) -> str:
        return f"{self} {cls}"

    given = {"self": "me", "cls": "mine"}
    assert reflect.problem(given) is None
    assert reflect.bind(context(), given) == given


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "amount: Field required"),
        ({"amount": "ten", "to": {"street": "x"}}, "amount: Input should be a valid decimal"),
        ({"amount": 1, "to": "Main"}, "to: Input should be a valid dictionary"),
        ({"amount": 1, "to": {"street": 5}}, "to.street: Input should be a valid string"),
        ({"amount": 1, "to": {"street": "x"}, "speed": "warp"}, "speed: Input should be 'slow' or 'fast'"),
        ({"amount": 1, "to": {"street": "x"}, "ctx": "mine"}, "ctx: Extra inputs are not permitted"),
        ({"amount": 1, "to": {"street": "x"}, "argument_note": "x"}, "argument_note: Extra inputs are not permitted"),
    ],
)
def test_arguments_that_do_not_fit_are_named_in_words_for_the_model(
    arguments: Mapping[str, object], words: str
) -> None:
    """B37: so that it can mend them; the context can't be given by a model."""
    problem = ship.problem(arguments)
    assert problem is not None
    assert problem.startswith("the arguments of ship do not fit: ")
    assert words in problem


@given(st.dictionaries(st.sampled_from(["amount", "to", "speed", "note", "x"]), json_values(max_leaves=3), max_size=4))
def test_any_json_has_a_problem_or_can_be_bound(arguments: dict[str, object]) -> None:
    """B37: nothing that a model sends makes a tool's check fail in another way."""
    frozen = cast("FrozenMap[object]", freeze(arguments))
    if ship.problem(frozen) is None:
        assert isinstance(ship.bind(context(), frozen)["amount"], Decimal)


def test_a_plain_function_is_a_tool_and_can_be_called_as_before() -> None:
    """B81: whether it runs in a thread is not its business."""

    @tool
    def add(one: int, other: int = 2) -> int:
        return one + other

    assert add(1) == 3
    assert add(**add.bind(context(), {"one": 5})) == 7
    assert not inspect.iscoroutinefunction(add.function)
    assert add.context_parameter is None
    assert (add.effect, add.timeout, add.attempts) == (Effect.ONCE, timedelta(minutes=1), 4)


def test_a_context_of_either_kind_under_any_name_is_given_and_not_asked_for() -> None:
    """B66: a tool may take only what every run knows."""

    @tool
    def whoami(run: RuntimeContext) -> str:
        return run.agent_id

    @dataclass(frozen=True, kw_only=True)
    class MyContext(ToolContext):
        pass

    def typed(mine: Any) -> str:
        return mine.agent_id

    typed.__annotations__["mine"] = MyContext
    assert schema(whoami)["properties"] == {}
    assert whoami(**whoami.bind(context(), {})) == "a"
    assert tool(typed).context_parameter == "mine"


def test_a_parameter_without_a_hint_takes_anything() -> None:
    """B37: hints are for the model's good; without one there is nothing to check."""

    def loose(value) -> str:  # noqa: ANN001  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
        return str(value)  # pyright: ignore[reportUnknownArgumentType]

    made = tool(loose)  # pyright: ignore[reportUnknownArgumentType]
    assert made.problem({"value": [1]}) is None
    assert made.problem({}) is not None


def test_parameters_that_no_schema_can_name_are_refused() -> None:
    """B37: when the tool is made, with its name."""

    def starred(*values: int) -> None: ...
    def named(**values: int) -> None: ...
    def positional(value: int, /) -> None: ...

    for function in (starred, named, positional):
        with pytest.raises(ConfigurationError, match=rf"tool '{function.__name__}'.*plain named parameters"):
            tool(function)


def test_types_without_a_json_form_are_refused() -> None:
    """B37: a connection is a resource of the worker and no argument."""

    def connected(client: httpx.AsyncClient) -> None: ...
    def forgotten(value: int) -> None: ...

    forgotten.__annotations__["value"] = "NobodyDefinedThis"
    with pytest.raises(ConfigurationError, match="no JSON form"):
        tool(connected)
    with pytest.raises(ConfigurationError, match="can't be resolved"):
        tool(forgotten)


@pytest.mark.parametrize("name", ["", " ", "x" * 201, "perdure.model", "a\0b"])
def test_a_name_that_no_activity_may_have_is_refused(name: str) -> None:
    """B80: blank, too long, or one of our own."""
    with pytest.raises(ConfigurationError, match="can't name a tool"):
        tool(name=name)(lambda: None)


def test_numbers_that_make_no_sense_are_refused() -> None:
    """B38: no tool without a try or without time."""
    for options in ({"attempts": 0}, {"timeout": timedelta()}, {"timeout": timedelta(seconds=-1)}):
        with pytest.raises(ConfigurationError):
            tool(**cast("dict[str, Any]", options))(lambda: None)
    with pytest.raises(ValueError, match="sometimes"):
        tool(effect=cast("Effect", "sometimes"))(lambda: None)


def test_what_a_tool_says_of_a_call_is_said_without_waiting() -> None:
    """B41: its subject and its opinion are asked for beside the model call, by a plain call."""

    async def later(amount: int) -> Verdict:
        return Verdict.deny(str(amount))

    async def named(amount: int) -> str:
        return str(amount)

    for options in ({"check": later}, {"subject": named}):
        with pytest.raises(ConfigurationError, match="plain functions"):
            tool(**cast("dict[str, Any]", options))(lambda: None)


def test_what_tools_give_and_raise_says_what_it_means() -> None:
    """B38, B41: the values of a tool's own words."""
    error = ToolError("no", retryable=True)
    assert (str(error), error.retryable, error.uncertain) == ("no", True, False)
    assert ToolOutput([TextBlock("x")]).blocks == [TextBlock("x")]
    assert Verdict.ask("sure?", safety=True) == Verdict("ask", "sure?", True)
    assert Verdict.deny("no").behavior == "deny"
    assert Verdict.allow().behavior == "allow"


def test_a_resource_is_found_by_its_type_or_the_words_say_how_to_give_it() -> None:
    """B66: the worker holds it, no session does."""
    ctx = RuntimeContext(
        agent_id="a", session_id="s", turn_id="t", run_id="r", resources={Address: Address(street="x")}
    )
    assert ctx.resource(Address).street == "x"
    with pytest.raises(ConfigurationError, match="holds no Decimal"):
        ctx.resource(Decimal)


def test_an_agent_that_can_not_work_is_refused_when_it_is_made() -> None:
    """B80: the words name the agent and what is wrong with it."""
    model = ScriptedModel([])

    @tool
    def one() -> None: ...

    @tool(name="one")
    def again() -> None: ...

    @tool(group="web")
    def grouped() -> None: ...

    cases: list[tuple[str, dict[str, Any]]] = [
        ("two tools are named 'one'", {"tools": [one, again]}),
        ("add it to tool_groups", {"tools": [grouped]}),
        ("is not a tool", {"tools": [lambda: None]}),
        ("at least 1", {"max_steps": 0}),
        ("at least 1", {"queue_limit": 0}),
        ("at least 1", {"model_attempts": 0}),
        ("blank", {"id": " "}),
    ]
    for words, fields in cases:
        with pytest.raises(ConfigurationError, match=words):
            Agent(**cast("dict[str, Any]", {"id": "a", "model": model, **fields}))
    agent = Agent(id="a", model=model, tools=[grouped], tool_groups=[ToolGroup("web")])
    assert agent.tool("grouped") is grouped
    assert agent.tool("gone") is None


def test_an_app_needs_agents_that_can_be_told_apart() -> None:
    """B74: by their ids."""
    agent = Agent(id="a", model=ScriptedModel([]), tools=[ship])
    app = App(agents=[agent])
    assert app.agent("a") is agent
    assert app.agent("b") is None
    assert app.tools == {("a", "ship"): ship}
    for agents in ([], [agent, agent]):
        with pytest.raises(ConfigurationError, match="different ids"):
            App(agents=agents)
