from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import BaseModel, ValidationError

from perdure.errors import InvalidCommand
from perdure.messages import Message
from perdure.permissions import PermissionContext, PermissionMode
from perdure.plan import PlanModeContext
from perdure.state import SCHEMA_VERSION, AgentState
from perdure.tasks import MAX_REQUIREMENTS, Requirement, RequirementDecision, Scope, TasksContext, Verification
from perdure.toolgroups import ToolContextState
from perdure.values import FrozenMap
from tests.support.strategies import ANY_TEXT, STATES

KEYS = [
    "session_id",
    "user_id",
    "summary",
    "context",
    "reply_id",
    "cur_iter",
    "shutdown_interrupted",
    "permission_context",
    "tool_context",
    "tasks_context",
    "plan_mode_context",
    "agent_id",
    "revision",
    "schema_version",
]

NESTED_KEYS = {
    ("permission_context",): ["mode", "working_directories", "allow_rules", "deny_rules", "ask_rules"],
    ("permission_context", "working_directories", "home"): ["path", "source"],
    ("permission_context", "allow_rules", "pay", 0): ["tool_name", "rule_content", "behavior", "source"],
    ("tool_context",): ["max_cache_files", "max_cache_bytes", "activated_groups", "spawn_registry"],
    ("plan_mode_context",): ["plan_active", "current_plan_file"],
    ("tasks_context",): [
        "tasks",
        "requirements",
        "revision",
        "scope",
        "contractVersion",
        "subjectVersion",
        "verifications",
    ],
    ("tasks_context", "tasks", 0): [
        "subject",
        "description",
        "metadata",
        "created_at",
        "state",
        "id",
        "owner",
        "blocks",
        "blocked_by",
    ],
    ("tasks_context", "scope"): ["taskId", "objective", "sourceRef"],
    ("tasks_context", "requirements", 0): ["id", "kind", "text", "proposedSourceRef", "status", "decision"],
    ("tasks_context", "requirements", 0, "decision"): ["authority", "sourceRef"],
    ("tasks_context", "verifications", 0): [
        "id",
        "requirementId",
        "actionId",
        "verifierId",
        "outcome",
        "reason",
        "binding",
        "recordedAt",
    ],
    ("tasks_context", "verifications", 0, "binding"): ["taskId", "contractVersion", "subjectVersion"],
    ("context", 0): ["id", "name", "role", "content", "metadata", "timestamp", "usage"],
    ("context", 0, "content", 0): ["type", "text"],
    ("context", 0, "content", 1): ["type", "thinking"],
    ("context", 0, "content", 2): ["type", "source", "name"],
    ("context", 0, "content", 3): ["type", "id", "name", "input", "state"],
    ("context", 0, "content", 4): ["type", "id", "name", "output", "state", "metadata"],
}

WHOLE: dict[str, Any] = {
    "session_id": "s",
    "user_id": "u",
    "summary": "so far",
    "context": [
        {
            "id": "m",
            "name": "support",
            "role": "assistant",
            "content": [
                {"type": "text", "text": "hello"},
                {"type": "thinking", "thinking": "hm"},
                {"type": "data", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}, "name": None},
                {"type": "tool_use", "id": "c", "name": "pay", "input": {"deep": [{"a": 1}]}, "state": "finished"},
                {
                    "type": "tool_result",
                    "id": "c",
                    "name": "pay",
                    "output": [{"type": "text", "text": "paid"}],
                    "state": "success",
                    "metadata": {"n": 1},
                },
            ],
            "metadata": {"list": [1, [2]]},
            "timestamp": "2026-01-01T00:00:00+00:00",
            "usage": {"input_tokens": 1, "output_tokens": 2},
        }
    ],
    "reply_id": "r",
    "cur_iter": 3,
    "shutdown_interrupted": True,
    "permission_context": {
        "mode": "explore",
        "working_directories": {"home": {"path": "/home", "source": None}},
        "allow_rules": {
            "pay": [{"tool_name": "pay", "rule_content": "A*", "behavior": "allow", "source": "user"}],
        },
        "deny_rules": {"pay": [{"tool_name": "pay", "rule_content": None, "behavior": "deny", "source": None}]},
        "ask_rules": {},
    },
    "tool_context": {
        "max_cache_files": 7,
        "max_cache_bytes": 10_001,
        "activated_groups": ["web"],
        "spawn_registry": {"child": {"id": [1]}},
    },
    "tasks_context": {
        "tasks": [
            {
                "subject": "look",
                "description": "",
                "metadata": {"k": [1]},
                "created_at": None,
                "state": "in_progress",
                "id": "t",
                "owner": None,
                "blocks": ["x"],
                "blocked_by": [],
            }
        ],
        "requirements": [
            {
                "id": "q",
                "kind": "CONSTRAINT",
                "text": "no more than 5",
                "proposedSourceRef": "turn:1",
                "status": "CONFIRMED",
                "decision": {"authority": "USER", "sourceRef": "turn:2"},
            }
        ],
        "revision": 4,
        "scope": {"taskId": "T", "objective": "refund", "sourceRef": None},
        "contractVersion": 2,
        "subjectVersion": "v1",
        "verifications": [
            {
                "id": "v",
                "requirementId": "q",
                "actionId": None,
                "verifierId": "ci",
                "outcome": "PASSED",
                "reason": None,
                "binding": {"taskId": "T", "contractVersion": 2, "subjectVersion": "v1"},
                "recordedAt": None,
            }
        ],
    },
    "plan_mode_context": {"plan_active": True, "current_plan_file": "plan.md"},
    "agent_id": "support",
    "revision": 9,
    "schema_version": 1,
}
"""A state with something in every field of the tables, as it stands on the wire."""


@settings(max_examples=60)
@given(STATES)
def test_any_state_goes_to_json_and_back_unchanged(state: AgentState) -> None:
    """B1, B77: the round trip is the identity, byte by byte."""
    text = state.to_json()
    again = AgentState.from_json(text)
    assert again == state
    assert again.to_json() == text
    assert AgentState.from_json(text.encode()) == state
    assert hash(again) == hash(state)
    assert list(json.loads(text)) == KEYS


def test_the_json_of_a_state_is_the_form_of_the_field_tables_to_the_letter() -> None:
    """B1: names, camelCase where it belongs, order, and nothing else."""
    state = AgentState.from_json(json.dumps(WHOLE))
    assert json.loads(state.to_json()) == WHOLE
    assert json.dumps(json.loads(state.to_json())) == json.dumps(WHOLE)
    assert list(json.loads(state.to_json())) == KEYS
    for path, keys in NESTED_KEYS.items():
        found: Any = json.loads(state.to_json())
        for part in path:
            found = found[part]
        assert list(found) == keys, path


def test_a_state_of_a_session_id_alone_has_the_defaults_of_the_field_tables() -> None:
    """B1: nothing but `session_id` must be there."""
    state = AgentState.from_json('{"session_id": "s"}')
    assert json.loads(state.to_json()) == {
        "session_id": "s",
        "user_id": None,
        "summary": "",
        "context": [],
        "reply_id": "",
        "cur_iter": 0,
        "shutdown_interrupted": False,
        "permission_context": {
            "mode": "default",
            "working_directories": {},
            "allow_rules": {},
            "deny_rules": {},
            "ask_rules": {},
        },
        "tool_context": {
            "max_cache_files": 100,
            "max_cache_bytes": 25_000,
            "activated_groups": [],
            "spawn_registry": {},
        },
        "tasks_context": {
            "tasks": [],
            "requirements": [],
            "revision": 0,
            "scope": None,
            "contractVersion": 0,
            "subjectVersion": None,
            "verifications": [],
        },
        "plan_mode_context": {"plan_active": False, "current_plan_file": None},
        "agent_id": "",
        "revision": 0,
        "schema_version": SCHEMA_VERSION,
    }


def test_a_plan_is_read_and_written_behind_agentscopes_fields() -> None:
    """B1, B50: there is no such field without a plan."""
    data = {**WHOLE, "plan_mode_context": {"plan_active": True, "current_plan_file": "plan.md", "plan": "1. look"}}
    state = AgentState.from_json(json.dumps(data))
    assert state.plan_mode_context.plan == "1. look"
    assert json.dumps(json.loads(state.to_json())) == json.dumps(data)


def test_camel_case_fields_are_read_under_their_python_names_too_and_written_in_camel_case() -> None:
    """B1: Python callers use Python's names."""
    scope = Scope.model_validate({"task_id": "T", "objective": "refund", "source_ref": "turn:1"})
    assert scope == Scope.model_validate({"taskId": "T", "objective": "refund", "sourceRef": "turn:1"})
    assert json.loads(scope.model_dump_json()) == {"taskId": "T", "objective": "refund", "sourceRef": "turn:1"}
    context = TasksContext.model_validate({"contract_version": 3, "subject_version": "v"})
    assert context == TasksContext.model_validate({"contractVersion": 3, "subjectVersion": "v"})
    verification = WHOLE["tasks_context"]["verifications"][0]
    assert Verification.model_validate(verification).model_dump(mode="json") == verification


def parts(value: object) -> Iterator[object]:
    """Yield everything that can be reached from a value."""
    yield value
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from parts(getattr(value, name))
    elif isinstance(value, Mapping):
        for item in cast("Mapping[str, object]", value).values():
            yield from parts(item)
    elif isinstance(value, list | tuple | set):
        for item in cast("tuple[object, ...]", value):
            yield from parts(item)


@settings(max_examples=30)
@given(STATES | st.just(AgentState.from_json(json.dumps(WHOLE))))
def test_nothing_that_can_be_reached_from_a_state_can_be_changed(state: AgentState) -> None:
    """B2: each list is a tuple, each mapping is frozen, each model refuses assignment."""
    before = state.to_json()
    for part in parts(state):
        assert not isinstance(part, list | set | bytearray)
        if isinstance(part, dict):
            assert isinstance(part, FrozenMap)
            with pytest.raises(TypeError):
                cast("dict[str, object]", part)["new"] = 1
        if isinstance(part, BaseModel):
            for name in type(part).model_fields:
                with pytest.raises(ValidationError):
                    setattr(part, name, None)
        hash(cast("object", part))
    assert state.to_json() == before


def test_a_state_keeps_no_hold_of_the_lists_it_was_made_of() -> None:
    """B2: what the caller does to their own lists later is not the state's business."""
    data = json.loads(json.dumps(WHOLE))
    state = AgentState.model_validate(data)
    data["context"][0]["content"][3]["input"]["deep"][0]["a"] = 2
    data["tool_context"]["activated_groups"].append("more")
    data["tasks_context"]["tasks"].clear()
    assert json.loads(state.to_json()) == WHOLE


@pytest.mark.parametrize("version", [0, 1, -1])
def test_a_state_of_an_older_version_is_read_and_written_in_the_present_one(version: int) -> None:
    """B3: unknown fields of old times are ignored; no version at all means the first."""
    state = AgentState.from_json(json.dumps({"session_id": "s", "schema_version": version, "gone": [1]}))
    assert state == AgentState(session_id="s")
    assert json.loads(state.to_json())["schema_version"] == SCHEMA_VERSION


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 99, "2", 2.0])
def test_a_state_of_a_newer_version_is_refused_and_the_words_say_so(version: object) -> None:
    """B3: also when its other fields have forms that nobody knows yet."""
    for others in ({}, {"context": "in another form", "session_id": 5}):
        with pytest.raises(InvalidCommand, match=r"schema version|context"):
            AgentState.from_json(json.dumps({"session_id": "s", "schema_version": version, **others}))
    with pytest.raises(InvalidCommand, match=r"schema version 2.*upgrade"):
        AgentState.from_json('{"session_id": "s", "schema_version": 2, "context": "in another form"}')


SECRET = "hunter2 is the password"  # noqa: S105  # of nothing


@pytest.mark.parametrize(
    "data",
    [
        "",
        "null",
        "[]",
        f'"{SECRET}"',
        SECRET,
        "{}",
        '{"session_id": null}',
        '{"session_id": 5}',
        f'{{"session_id": ["{SECRET}"]}}',
        f'{{"session_id": "s", "cur_iter": "{SECRET}"}}',
        f'{{"session_id": "s", "revision": -1, "summary": ["{SECRET}"]}}',
        f'{{"session_id": "s", "context": "{SECRET}"}}',
        f'{{"session_id": "s", "context": [{{"id": "1", "role": "{SECRET}"}}]}}',
        f'{{"session_id": "s", "context": [{{"id": "1", "role": "user", "content": [{{"type": "{SECRET}"}}]}}]}}',
        '{"session_id": "s", "context": [{"id": "1", "role": "user", "content": [{"type": "text"}]}]}',
        '{"session_id": "s", "tool_context": {"max_cache_files": 1}}',
        '{"session_id": "s", "tool_context": {"max_cache_bytes": 10000}}',
        f'{{"session_id": "s", "permission_context": {{"mode": "{SECRET}"}}}}',
        f'{{"session_id": "s", "permission_context": {{"allow_rules": {{"{SECRET}": 5}}}}}}',
        '{"session_id": "s", "revision": NaN}',
        '{"session_id": "s", "session_id": "t"}',
        b"\xff",
    ],
)
def test_what_is_no_state_is_refused_in_words_that_do_not_repeat_it(data: str | bytes) -> None:
    """B3, B16: a typed error; what people wrote into the snapshot is not in it."""
    with pytest.raises(InvalidCommand, match="not an AgentState") as caught:
        AgentState.from_json(data)
    assert "hunter2" not in str(caught.value)


@given(ANY_TEXT | st.binary(max_size=20))
def test_any_input_is_a_state_or_a_typed_refusal(data: str | bytes) -> None:
    """B3: reading a snapshot from anywhere raises nothing else."""
    with pytest.raises(InvalidCommand):
        AgentState.from_json(data)


def test_a_missing_summary_reads_as_none_and_null_as_the_same() -> None:
    """B1: writers that have no summary write null."""
    assert AgentState.from_json('{"session_id": "s", "summary": null}').summary == ""


def test_bounds_of_the_field_tables_hold() -> None:
    """B52: 64 requirements of up to 2,000 characters."""
    one = {"id": "q", "kind": "CONSTRAINT", "text": "x" * 2000}
    assert len(TasksContext.model_validate({"requirements": [one] * MAX_REQUIREMENTS}).requirements) == 64
    with pytest.raises(ValidationError):
        TasksContext.model_validate({"requirements": [one] * 65})
    with pytest.raises(ValidationError):
        Requirement.model_validate({**one, "text": "x" * 2001})
    assert RequirementDecision.model_validate({"authority": "CALLER"}).source_ref is None


def test_parts_have_the_defaults_of_a_whole_state() -> None:
    """B1: a part made alone is the part of a fresh state."""
    state = AgentState(session_id="s")
    assert state.permission_context == PermissionContext() == PermissionContext(mode=PermissionMode.DEFAULT)
    assert state.tool_context == ToolContextState()
    assert state.tasks_context == TasksContext()
    assert state.plan_mode_context == PlanModeContext()
    assert Message.model_validate({"id": "1", "role": "user"}).content == ()
