from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from perdure.agents import Agent
from perdure.contract import ModelAnswer, ModelCall
from perdure.errors import ConfigurationError
from perdure.identity import SessionKey
from perdure.messages import INTERRUPTED_MARK, Message, Role, TextBlock, ThinkingBlock, Usage, as_blocks, flaws
from perdure.models import ModelError, ModelResponse, Purpose, ToolCall
from perdure.operations import Effect, operation_id
from perdure.planning import MAX_SUMMARY, Planner
from perdure.requests import active_tools, build_request
from perdure.session import Session
from perdure.testing import ScriptedModel
from perdure.toolgroups import ToolGroup
from perdure.toolnames import MAX_INSIDE, MAX_OUTSIDE, outside_name, outside_names
from perdure.tools import tool
from perdure.values import freeze_object
from tests.support.lives import KEY, Life
from tests.support.strategies import ANY_TEXT, EPOCH, NAMES, json_values


@tool(effect=Effect.IDEMPOTENT, attempts=3, subject=lambda arguments: f"order/{arguments['order_id']}")
def refund(order_id: str, amount: int = 1) -> str:
    """Refund an order."""
    return f"{order_id}: {amount}"


@tool(effect=Effect.READ, group="web")
def search(query: str) -> str:
    """Search the web."""
    return query


@tool(group="shop")
def buy() -> str:
    """Buy something."""
    return "bought"


AGENT = Agent(
    id="support",
    model=ScriptedModel([]),
    instructions="Be kind.",
    tools=[refund, search, buy],
    tool_groups=[ToolGroup("web"), ToolGroup("shop", active=True)],
    max_steps=7,
    queue_limit=9,
)

MARK = Session.new(KEY).mark


def model_call(**fields: Any) -> ModelCall:
    given = {"turn_id": "t1", "run_id": "r1", "step": 2, "operation_id": "o", "base": MARK, "head": MARK}
    return ModelCall(
        agent_id=KEY.agent_id, session_id=KEY.session_id, user_id=KEY.user_id, **{**given, **fields}
    )


def answer(*calls: ToolCall, call: ModelCall | None = None, **fields: Any) -> ModelAnswer:
    planner = Planner(AGENT, call or model_call(), EPOCH, heartbeat_seconds=5)
    return planner.answer(ModelResponse(tool_calls=calls, **fields))


LEAVES = st.none() | st.booleans() | st.floats() | st.integers() | ANY_TEXT | st.binary(max_size=3) | st.just({1, 2})

TOOL_CALLS = st.builds(
    ToolCall,
    name=st.sampled_from(["refund", "search", "buy", "nothing", "", "\ud800", "x" * 500]) | ANY_TEXT,
    arguments=st.dictionaries(
        st.sampled_from(["order_id", "amount", "query", "\0"]), json_values(leaves=LEAVES, max_leaves=3), max_size=3
    ),
    id=st.none() | st.sampled_from(["", "call_0", "call_1"]),
    problem=st.none() | st.just("half of it is missing"),
)


@settings(max_examples=150)
@given(st.lists(TOOL_CALLS, max_size=4), st.sampled_from([None, (), ("web",), ("web", "shop"), ("gone",)]))
def test_whatever_a_model_asks_for_every_call_gets_exactly_one_plan_that_is_sound(
    calls: list[ToolCall], groups: tuple[str, ...] | None
) -> None:
    """B37, B75, B77: ids are ours and unique; what may run has arguments that fit; the rest says why not."""
    call = model_call(activated_groups=groups)
    made = answer(*calls, call=call)
    assert [plan.call_id for plan in made.plans] == [use.id for use in made.message.calls]
    assert len({plan.call_id for plan in made.plans}) == len(calls)
    active = {each.name: each for each in active_tools(AGENT, groups)}
    for asked, plan, use in zip(calls, made.plans, made.message.calls, strict=True):
        assert (plan.tool, plan.arguments) == (use.name, use.input)
        if plan.refusal is None:
            assert asked.name in active
            assert asked.problem is None
            assert active[asked.name].problem(plan.arguments) is None
            assert plan.effect is active[asked.name].effect
        assert 0 < len(plan.tool) <= MAX_INSIDE
        assert len(plan.summary) <= MAX_SUMMARY
    assert ModelAnswer.model_validate_json(made.model_dump_json()) == made


@settings(max_examples=50)
@given(st.lists(TOOL_CALLS, max_size=3), st.lists(TOOL_CALLS, max_size=3))
def test_calls_of_two_steps_never_share_an_id_and_fit_into_a_session(
    first: list[ToolCall], second: list[ToolCall]
) -> None:
    """B75: also when the model gives the same ids for ever; the session takes what the planner makes."""
    life = Life()
    life.submit(turn_id="t1")
    seen: set[str] = set()
    for step, calls in enumerate((first, second), start=1):
        made = answer(*calls, call=model_call(step=step))
        ids = {plan.call_id for plan in made.plans}
        assert not ids & seen
        seen |= ids
        if life.wanted != ["model"]:
            break
        from perdure.facts import ModelAnswered  # noqa: PLC0415

        life.take(ModelAnswered(life.now(), life.model_operation, made))
        while life.session.running is not None and life.wanted != ["model"]:
            index = next(call.index for call in _open(life.session))
            life.start(index)
            life.finish(index)
    if life.session.current is None or life.wanted == ["model"]:
        assert not list(flaws(life.session.state.context))
