from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from perdure.agents import Agent
from perdure.contract import ModelAnswer, ModelCall
from perdure.errors import ConfigurationError
from perdure.messages import INTERRUPTED_MARK, Message, Role, TextBlock, ThinkingBlock, Usage, as_blocks
from perdure.models import ModelError, ModelResponse, Purpose, ToolCall
from perdure.operations import Effect, operation_id
from perdure.planning import MAX_SUMMARY, Planner
from perdure.requests import active_tools, build_request
from perdure.session import Session
from perdure.testing import ScriptedModel
from perdure.toolgroups import ToolGroup
from perdure.toolnames import MAX_INSIDE, MAX_OUTSIDE, outside_name, outside_names
from perdure.tools import RuntimeContext, tool
from perdure.values import freeze_object
from tests.support.lives import KEY
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

CONTEXT = RuntimeContext(agent_id="support", session_id="s1", user_id="alice", turn_id="t1", run_id="r1")

MARK = Session.new(KEY).mark


def model_call(**fields: Any) -> ModelCall:
    turn_id, step = fields.get("turn_id", "t1"), fields.get("step", 2)
    given: dict[str, Any] = {
        "turn_id": turn_id,
        "run_id": "r1",
        "step": step,
        "operation_id": operation_id(KEY.workflow_id, turn_id, step, None, first_run_id="r1"),
        "base": MARK,
        "head": MARK,
    }
    return ModelCall(agent_id=KEY.agent_id, session_id=KEY.session_id, user_id=KEY.user_id, **{**given, **fields})


def answer(*calls: ToolCall, call: ModelCall | None = None, **fields: Any) -> ModelAnswer:
    planner = Planner(AGENT, call or model_call(), EPOCH, heartbeat_seconds=5, context=CONTEXT)
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


def test_calls_of_any_two_steps_have_other_ids_and_two_attempts_at_one_step_the_same() -> None:
    """B75, B35: the model's own id is constant for ever; ours are made of the model call's and the index."""
    one = ToolCall("buy", id="call_0")
    steps = [answer(one, one, call=model_call(step=step, turn_id=turn)) for step in (1, 2, 12) for turn in ("t1", "t2")]
    ids = [plan.call_id for made in steps for plan in made.plans]
    assert len(set(ids)) == 12
    assert answer(one, one, call=model_call(step=1)).plans == steps[0].plans
    messages = [message for made in steps for message in (made.message,)]
    assert len({message.id for message in messages}) == 6


def test_ids_of_calls_fit_every_provider() -> None:
    """B75, B79: at most 40 characters of the plainest kind."""
    (plan,) = answer(ToolCall("buy")).plans
    assert re.fullmatch("call_[0-9a-f]{24}", plan.call_id)
    assert len(plan.call_id) <= 40


def test_a_good_call_is_planned_with_all_that_is_left_of_its_tool() -> None:
    """B37: the session needs nothing else of the tool's definition."""
    (plan,) = answer(ToolCall("refund", {"order_id": "A1"})).plans
    assert "A1" in plan.summary
    assert plan.model_dump(exclude={"call_id", "summary"}) == {
        "tool": "refund",
        "arguments": {"order_id": "A1"},
        "effect": "idempotent",
        "timeout_seconds": 60,
        "heartbeat_seconds": 5,
        "attempts": 3,
        "task_queue": None,
        "subject": "order/A1",
        "opinion": None,
        "external": False,
        "builtin": False,
        "meta_groups": (),
        "reconcilable": False,
        "refusal": None,
    }


@pytest.mark.parametrize(
    ("call", "groups", "words"),
    [
        (ToolCall("refnd"), None, "there is no tool 'refnd'; there are: buy, refund"),
        (ToolCall("search", {"query": "x"}), None, "there is no tool 'search'"),
        (ToolCall("buy"), ("web",), "there is no tool 'buy'; there are: refund, reset_equipped_tools, search"),
        (ToolCall(""), None, "there is no tool '(no name)'"),
        (ToolCall("refund"), None, "order_id: Field required"),
        (ToolCall("refund", {"order_id": 5}), None, "order_id: Input should be a valid string"),
        (ToolCall("refund", {"order_id": "A1", "amount": "many"}), None, "amount: Input should be a valid integer"),
        (ToolCall("refund", {"order_id": "A1", "more": 1}), None, "more: Extra inputs are not permitted"),
        (
            ToolCall("refund", {"order_id": "A1", "amount": float("nan")}),
            None,
            "can't be read: nan is not a JSON number",
        ),
        (ToolCall("refund", {"order_id": {1, 2}}), None, "can't be read: a set is not JSON"),
        (ToolCall("refund", problem="Expecting ',' delimiter"), None, "can't be read: Expecting ',' delimiter"),
    ],
)
def test_a_call_that_can_not_run_is_refused_in_words_for_the_model(
    call: ToolCall, groups: tuple[str, ...] | None, words: str
) -> None:
    """B37: unknown tools, tools outside the active groups, arguments that do not fit or can't be read."""
    (plan,) = answer(call, call=model_call(activated_groups=groups)).plans
    assert plan.refusal is not None
    assert words in plan.refusal
    assert plan.subject is None


def test_arguments_nested_without_end_are_refused_and_do_not_enter_the_context() -> None:
    """B37, B77: the call stands there without them."""
    deep: object = "x"
    for _ in range(5000):
        deep = [deep]
    made = answer(ToolCall("refund", {"order_id": deep}))
    assert made.plans[0].refusal == "the arguments can't be read: nested too deep"
    assert made.message.calls[0].input == {}


def test_a_call_whose_subject_can_not_be_told_is_refused_and_the_others_run() -> None:
    """B37, B43: no rule could be checked; a mistake in the app's function fails one call and no turn."""

    @tool(subject=lambda arguments: arguments["with_default"])
    def broken(with_default: str = "x") -> str:
        return with_default

    agent = Agent(
        id="support", model=ScriptedModel([]), tools=[broken, buy], tool_groups=[ToolGroup("shop", active=True)]
    )
    planner = Planner(agent, model_call(), EPOCH, heartbeat_seconds=5, context=CONTEXT)
    made = planner.answer(ModelResponse(tool_calls=[ToolCall("broken"), ToolCall("buy")]))
    assert [plan.refusal is None for plan in made.plans] == [False, True]
    assert "subject" in (made.plans[0].refusal or "")


@pytest.mark.parametrize("reason", ["length", "max_tokens", ""])
def test_an_answer_that_was_cut_off_is_no_answer_and_may_be_asked_for_again(reason: str) -> None:
    """B76: none of its calls is planned."""
    with pytest.raises(ModelError, match="cut off") as caught:
        answer(ToolCall("buy"), text="I shall", finish_reason=reason)
    assert caught.value.retryable


def test_an_answer_that_the_provider_withheld_is_a_final_error() -> None:
    """B76: asking again would be refused again."""
    with pytest.raises(ModelError, match="withheld") as caught:
        answer(text="I shall", finish_reason="content_filter")
    assert not caught.value.retryable


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "end_turn", "something new"])
def test_an_answer_with_any_other_finish_reason_is_whole(reason: str) -> None:
    """B79: providers have words of their own."""
    assert answer(ToolCall("buy"), finish_reason=reason).plans[0].refusal is None


def test_an_answer_carries_the_agents_limits_its_usage_and_its_thinking() -> None:
    """B64: what the agent says now holds from now on."""
    made = answer(text="hello", thinking="hm", usage=Usage(3, 4))
    assert (made.limits.max_steps, made.limits.queue_limit, made.usage) == (7, 9, Usage(3, 4))
    assert made.message.content == (ThinkingBlock("hm"), TextBlock("hello"))
    assert (made.message.role, made.message.name, made.message.usage) == (Role.ASSISTANT, "support", Usage(3, 4))
    assert answer().message.content == (TextBlock(""),)
    assert answer(ToolCall("buy")).message.text == ""


def test_what_was_streamed_before_an_interrupt_is_marked_and_runs_nothing() -> None:
    """B23, B76: half an answer has text and no calls."""
    made = Planner(AGENT, model_call(), EPOCH, heartbeat_seconds=5, context=CONTEXT).partial("hal\ud83d")
    assert made.partial
    assert made.plans == ()
    assert made.message.metadata == {INTERRUPTED_MARK: True}
    assert made.message.text == "hal\ufffd"


# ---- requests -----------------------------------------------------------------------------------------------------


def test_a_request_has_the_instructions_the_summary_the_messages_and_the_active_tools() -> None:
    """B55, B56: built anew for each call; nothing of it is kept in the session."""
    said = (Message(id="1", role=Role.USER, content=as_blocks("hello")),)
    call = model_call(attributes=freeze_object({"tenant": "acme"}), activated_groups=("web",))
    request = build_request(AGENT, call, "they talked", said)
    assert request.purpose is Purpose.ANSWER
    assert request.instructions == "Be kind.\n\nSummary of the conversation so far:\nthey talked"
    assert request.messages is said
    assert [spec.name for spec in request.tools] == ["refund", "search", "reset_equipped_tools"]
    assert [spec.description for spec in request.tools][:2] == ["Refund an order.", "Search the web."]
    assert (request.turn_id, request.run_id, request.step, request.operation_id) == ("t1", "r1", 2, call.operation_id)
    assert request.attributes == {"tenant": "acme"}
    assert "acme" not in request.instructions


def test_a_request_without_instructions_and_summary_has_none() -> None:
    """B78: no empty instruction is sent."""
    agent = Agent(id="support", model=ScriptedModel([]))
    assert build_request(agent, model_call(), "", ()).instructions == ""
    assert build_request(agent, model_call(), "so far", ()).instructions.startswith("Summary")


@pytest.mark.parametrize(
    ("activated", "names"),
    [
        (None, ["refund", "buy"]),
        ((), ["refund"]),
        (("web",), ["refund", "search"]),
        (("web", "shop", "gone"), ["refund", "search", "buy"]),
    ],
)
def test_ungrouped_tools_are_always_there_and_others_with_their_group(
    activated: tuple[str, ...] | None, names: list[str]
) -> None:
    """B9, B56: a session without settings of its own has the agent's; an empty list means none."""
    assert [each.name for each in active_tools(AGENT, activated)] == names


# ---- tool names outside ---------------------------------------------------------------------------------------------


@given(NAMES | st.sampled_from(["a.b", "a b", "x" * 65, "退款", "___", "a" * 64]))
def test_a_tools_name_outside_is_one_that_every_provider_takes(name: str) -> None:
    """B80: letters, digits, `_` and `-`, at most 64, the same every time."""
    outside = outside_name(name)
    assert 1 <= len(outside) <= MAX_OUTSIDE
    assert outside.isascii()
    assert outside.replace("_", "a").replace("-", "a").isalnum()
    assert outside_name(name) == outside
    assert outside_names([name])[outside] == name


def test_good_names_are_kept_and_ones_that_would_collide_are_an_error() -> None:
    """B80: when the agent is made, before a worker starts; unreadable names are told apart by their digest."""
    assert outside_name("submit_refund-request") == "submit_refund-request"
    assert outside_names(["退款", "查询"]).keys() == {outside_name("退款"), outside_name("查询")}
    assert len(outside_names(["x" * 64 + "a", "x" * 64 + "b"])) == 2
    with pytest.raises(ConfigurationError, match="both 'a_b'"):
        outside_names(["a.b", "a b"])

    @tool(name="a.b")
    def one() -> None: ...

    @tool(name="a b")
    def other() -> None: ...

    with pytest.raises(ConfigurationError, match="rename one of them"):
        Agent(id="a", model=ScriptedModel([]), tools=[one, other])
