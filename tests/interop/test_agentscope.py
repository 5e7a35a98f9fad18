"""States that AgentScope has written become ours, and the conversation goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, strategies as st

from perdure import Agent, AgentState, App, PermissionMode, ResultState, Role, TurnStatus
from perdure.agentscope import HINT_MARK, UNREADABLE
from perdure.errors import InvalidCommand
from perdure.messages import Usage, flaws
from perdure.tasks import TaskState
from perdure.testing import ScriptedModel
from tests.support.strategies import ANY_TEXT, json_values
from tests.support.world import fresh, world

if TYPE_CHECKING:
    from perdure import Message
    from worker.embedded import EmbeddedServer

DUMP = Path(__file__).with_name("dump_state.py")


@pytest.fixture(scope="module")
def exported() -> str:
    """A state as the package itself dumps it."""
    run = subprocess.run([sys.executable, "-W", "ignore", DUMP], capture_output=True, text=True, check=True)
    return run.stdout.splitlines()[-1]


def told(context: tuple[Message, ...]) -> list[tuple[str, str]]:
    """Return a context in short."""
    return [(message.role.value, message.text or " ".join(call.id for call in message.calls)) for message in context]


def test_a_state_of_the_package_is_read_with_all_that_we_have_a_place_for(exported: str) -> None:
    """B1: calls, results, hints, permissions, tasks and groups; what it writes is always the eleven-field form."""
    state = AgentState.from_json(exported)
    assert (state.session_id, state.reply_id, state.cur_iter) == ("order-A1042", "reply-1", 2)
    assert state.summary == "they met\nand talked"
    assert not list(flaws(state.context))
    assert told(state.context) == [
        ("user", "refund A1"),
        ("assistant", "let me see"),
        ("tool", ""),
        ("user", "be quick"),
        ("assistant", "it can be refunded"),
        ("tool", ""),
        ("user", "I am in a hurry"),
        ("assistant", "c3"),
        ("tool", ""),
    ]
    user, speech, results, hint, last, late, _, _, open_end = state.context
    assert user.timestamp is not None
    assert [block.type for block in user.content] == ["text", "data"]
    assert [block.type for block in speech.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert [call.input for call in speech.calls] == [{"order_id": "A1"}, {UNREADABLE: "{broken"}]
    assert [(result.state, result.text) for result in results.results] == [
        (ResultState.SUCCESS, "paid 12"),
        (ResultState.ERROR, "no"),
    ]
    assert (hint.role, hint.metadata[HINT_MARK]) == (Role.USER, "system")
    assert last.calls[0].id != speech.calls[0].id
    assert (late.results[0].state, late.results[0].text) == (ResultState.SUCCESS, "paid back")
    assert open_end.results[0].state is ResultState.INTERRUPTED
    assert [message.usage for message in state.context if message.usage] == [Usage(10, 5)]
    (rule,) = state.permission_context.ask_rules["refund"]
    assert (state.permission_context.mode, rule.rule_content) == (PermissionMode.ACCEPT_EDITS, "A*")
    assert state.tool_context.activated_groups == ("shop",)
    (task,) = state.tasks_context.tasks
    assert (task.subject, task.state, task.metadata) == ("refund A1", TaskState.IN_PROGRESS, {"n": 1})
    assert list(json.loads(state.to_json()))[:3] == ["session_id", "user_id", "summary"]
    assert AgentState.from_json(state.to_json()) == state


async def test_the_conversation_goes_on_where_the_package_left_it(server: EmbeddedServer, exported: str) -> None:
    """B9: under the names that are given, with the groups that were on."""
    model = ScriptedModel(["as I said, it can be refunded"])
    async with world(server, App([Agent("support", model)])) as served:
        state = AgentState.from_json(exported)
        session = await served.sessions.create("support", fresh(), "alice", state=state)
        result = await session.ask("so?", timeout=30)
        assert (result.status, result.output) == (TurnStatus.COMPLETED, "as I said, it can be refunded")
        assert told(model.requests[0].messages)[:2] == [("user", "refund A1"), ("assistant", "let me see")]
        assert "they met" in model.requests[0].instructions
        assert (await session.state()).tool_context.activated_groups == ("shop",)


IDS = st.sampled_from(["c1", "c2", "", "\ud800", "reply"])
BLOCKS = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": ANY_TEXT, "id": IDS}),
    st.fixed_dictionaries({"type": st.just("thinking"), "thinking": ANY_TEXT}),
    st.fixed_dictionaries({"type": st.just("hint"), "hint": ANY_TEXT, "source": st.none() | ANY_TEXT}),
    st.fixed_dictionaries(
        {
            "type": st.just("tool_call"),
            "id": IDS,
            "name": st.sampled_from(["look", "refund"]),
            "input": st.sampled_from(["", "{}", "[1]", '{"a": 1}', "{broken", "\ud800"])
            | json_values().map(json.dumps),
            "state": st.sampled_from(["pending", "asking", "allowed", "submitted", "finished"]),
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("tool_result"),
            "id": IDS,
            "name": st.sampled_from(["look", "refund"]),
            "output": ANY_TEXT
            | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": ANY_TEXT}), max_size=2),
            "state": st.sampled_from(["success", "error", "interrupted", "denied", "running"]),
        }
    ),
)
MESSAGES = st.fixed_dictionaries(
    {
        "id": IDS,
        "name": ANY_TEXT,
        "role": st.sampled_from(["user", "assistant", "system"]),
        "content": st.lists(BLOCKS, max_size=8),
        "metadata": st.just({}),
        "created_at": st.just("2026-01-01T00:00:00"),
        "usage": st.none() | st.just({"input_tokens": 1, "output_tokens": 2, "cache_input_tokens": 3}),
    }
)


@given(st.lists(MESSAGES, max_size=4))
def test_whatever_was_said_and_done_there_is_valid_input_for_a_model_here(messages: list[dict[str, Any]]) -> None:
    """B77, B78: half-finished calls, results without calls, ids that come again; ids are unique in what comes out."""
    text = json.dumps({"session_id": "s", "reply_context": {"reply_id": "r"}, "context": messages})
    state = AgentState.from_json(text)
    assert not list(flaws(state.context))
    ids = [message.id for message in state.context]
    assert len(set(ids)) == len(ids)
    calls = sum(block["type"] == "tool_call" for message in messages for block in message["content"])
    assert sum(len(message.calls) for message in state.context) == calls
    assert AgentState.from_json(state.to_json()) == state


STEPS = st.sampled_from(["call", "result", "say", "hint", "next", "observe"])


@given(st.lists(st.tuples(STEPS, st.integers(0, 3)), max_size=20))
@example([("call", 0), ("observe", 0), ("result", 0)])
@example([("call", 0), ("call", 0), ("next", 0), ("result", 1), ("result", 0)])
def test_every_result_of_a_call_arrives_behind_it_wherever_it_stood(steps: list[tuple[str, int]]) -> None:
    """B24, B75: results come in any order, in any later message; only a call without one was interrupted."""
    messages: list[dict[str, Any]] = [{"role": "assistant", "content": [], "created_at": "now"}]
    waiting: list[str] = []
    expected: dict[str, str | None] = {}
    for number, (step, which) in enumerate(steps):
        block: dict[str, Any] = {"type": "text", "text": "so"}
        if step in ("next", "observe"):
            role = "assistant" if step == "next" else "user"
            messages.append({"role": role, "content": [block], "created_at": "now"})
            continue
        if messages[-1]["role"] == "user":
            messages.append({"role": "assistant", "content": [], "created_at": "now"})
        if step == "call":
            waiting.append(f"c{number}")
            expected[waiting[-1]] = None
            block = {"type": "tool_call", "id": waiting[-1], "name": "look", "input": "{}"}
        elif step == "result" and waiting:
            call_id = waiting.pop(which % len(waiting))
            expected[call_id] = f"found {number}"
            block = {"type": "tool_result", "id": call_id, "name": "look", "state": "success"} | {
                "output": f"found {number}"
            }
        elif step == "hint":
            block = {"type": "hint", "hint": "quick"}
        messages[-1]["content"].append(block)
    state = AgentState.from_json(json.dumps({"session_id": "s", "reply_context": {}, "context": messages}))
    assert not list(flaws(state.context))
    results = [result for message in state.context for result in message.results]
    found = {each.id: None if each.state is ResultState.INTERRUPTED else each.text for each in results}
    assert found == expected


def test_a_result_goes_to_the_nearest_message_with_an_open_call_of_its_id() -> None:
    """B75: a call that a crash left open does not take the result of a later one that has its id."""
    call = {"type": "tool_call", "id": "c", "name": "look", "input": "{}"}
    result = {"type": "tool_result", "id": "c", "name": "look", "output": "found", "state": "success"}
    contents = [[call], [call, result]]
    messages = [{"role": "assistant", "content": content, "created_at": "now"} for content in contents]
    state = AgentState.from_json(json.dumps({"session_id": "s", "context": messages}))
    states = [result.state for message in state.context for result in message.results]
    assert states == [ResultState.INTERRUPTED, ResultState.SUCCESS]


DEEP = '{"a": ' + "[" * 70 + "]" * 70 + "}"


@pytest.mark.parametrize("text", ["[1]", "{broken", '{"a": 1, "a": 2}', '{"a": NaN}', DEEP])
def test_arguments_that_are_not_kept_as_an_object_are_kept_as_text(text: str) -> None:
    """B75, B77: what a model wrote there does not keep the rest of the state out."""
    block = {"type": "tool_call", "id": "c", "name": "look", "input": text}
    message = {"role": "assistant", "content": [block], "created_at": "now"}
    state = AgentState.from_json(json.dumps({"session_id": "s", "context": [message]}))
    assert state.context[0].calls[0].input == {UNREADABLE: text}


@pytest.mark.parametrize(("given", "read"), [({}, 25_000), ({"max_cache_bytes": 10000.4}, 10_001)])
def test_sizes_may_be_fractions_or_missing(given: dict[str, object], read: int) -> None:
    """B1: rounded up, since what is allowed there is more than the least."""
    data = {"session_id": "s", "reply_context": {}, "tool_context": {"activated_groups": ["web"], **given}}
    tools = AgentState.from_json(json.dumps(data)).tool_context
    assert (tools.max_cache_bytes, tools.activated_groups) == (read, ("web",))


def _saying(*blocks: object) -> dict[str, Any]:
    return {"session_id": "s", "context": [{"role": "assistant", "content": blocks, "created_at": "now"}]}


CALL = {"type": "tool_call", "id": "c", "name": "look", "input": "{}"}
RESULT = {"type": "tool_result", "id": "c", "name": "look", "state": "success"}

NO_STATES: list[dict[str, Any]] = [
    {"session_id": "s", "reply_context": {}, "context": "nothing"},
    {"session_id": "s", "reply_context": {}, "context": [1]},
    {"session_id": "s", "reply_context": {}, "context": [{"role": "nobody", "content": []}]},
    {"session_id": "s", "reply_context": {}, "context": [{"role": "user", "content": [{"type": "tool_call"}]}]},
    {"reply_context": {}},
    {"session_id": "s", "reply_context": {}, "tool_context": 3},
    {"session_id": "s", "reply_context": {}, "summary": ["so far"]},
    _saying("hello"),
    _saying({"type": "text", "text": "hello"}, 5),
    _saying({"type": "hint", "hint": 5}),
    _saying({"type": "something new"}),
    _saying({**CALL, "input": 5}),
    _saying(CALL, {**RESULT, "output": 5}),
    _saying(CALL, {**RESULT, "output": ["paid"]}),
    {"session_id": "s", "reply_context": {}, "permission_context": {"mode": "anything"}},
]


@pytest.mark.parametrize("data", NO_STATES)
def test_what_is_no_state_is_refused_in_words(data: dict[str, object]) -> None:
    """B16: whoever is said to have written it."""
    with pytest.raises(InvalidCommand, match="not an AgentState"):
        AgentState.from_json(json.dumps(data))


def test_the_form_from_before_reply_context_is_read_too() -> None:
    """B1: its messages tell it apart."""
    message = {"id": "m", "name": "a", "role": "user", "content": [{"type": "text", "text": "hi"}], "created_at": "now"}
    state = AgentState.from_json(json.dumps({"session_id": "s", "reply_id": "r", "cur_iter": 3, "context": [message]}))
    assert (state.reply_id, state.cur_iter, state.context[0].timestamp) == ("r", 3, "now")
