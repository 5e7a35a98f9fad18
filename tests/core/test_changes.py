"""Typed changes: how they are made and read, and what they do to a state."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import TypeAdapter, ValidationError

from perdure.changes import (
    MAX_CHANGES,
    MAX_GROUPS,
    AddRule,
    AnyChange,
    BeginTask,
    Change,
    DecideRequirement,
    InvalidateSubject,
    ProposeRequirement,
    RecordVerification,
    RemoveRule,
    ReplaceTasks,
    SetActivatedGroups,
    SetContext,
    SetPermissionMode,
    SetPlanMode,
    SetSubjectVersion,
    SetSummary,
    apply_changes,
    change_json,
    checked,
    touches_context,
)
from perdure.commands import UPDATE_STATE, UpdateState, read_command
from perdure.errors import InvalidCommand, PerdureError, StaleRevision
from perdure.messages import Message, Role, ToolResultBlock, ToolUseBlock
from perdure.permissions import MAX_CONTENT, PermissionBehavior, PermissionMode, PermissionRule
from perdure.state import AgentState
from perdure.tasking import begin_task, binding
from perdure.tasks import (
    Authority,
    RequirementDecision,
    RequirementKind,
    RequirementStatus,
    Scope,
    Task,
    Verification,
    VerificationOutcome,
)
from tests.support.strategies import CHANGES, STATES

if TYPE_CHECKING:
    from collections.abc import Mapping

STATE = AgentState(session_id="s", user_id="u", agent_id="a", revision=4, summary="so far")
RULE = PermissionRule(tool_name="pay", rule_content="A*", behavior=PermissionBehavior.ALLOW, source="alice")
SCOPE = Scope(taskId="T", objective="refund")
CRITERION = RequirementKind.ACCEPTANCE_CRITERION
BY_ALICE = RequirementDecision(authority=Authority.USER)
HELLO = Message(id="m", role=Role.USER, content="hello")
TODO = Task(id="t", subject="look")
REPORT = Verification(
    id="v",
    requirementId="q",
    outcome=VerificationOutcome.PASSED,
    binding=binding(begin_task(STATE.tasks_context, SCOPE)),
)
SECRET = "hunter2"  # noqa: S105  # of nothing

MADE: list[tuple[AnyChange, AnyChange, dict[str, Any]]] = [
    (
        SetPermissionMode(PermissionMode.EXPLORE),
        SetPermissionMode(mode=PermissionMode.EXPLORE),
        {"change": "set_permission_mode", "mode": "explore"},
    ),
    (AddRule(RULE), AddRule(rule=RULE), {"change": "add_rule", "rule": RULE.model_dump(mode="json")}),
    (RemoveRule(RULE), RemoveRule(rule=RULE), {"change": "remove_rule", "rule": RULE.model_dump(mode="json")}),
    (
        SetContext([HELLO]),
        SetContext(messages=(HELLO,)),
        {"change": "set_context", "messages": [HELLO.model_dump(mode="json")]},
    ),
    (SetSummary("x"), SetSummary(text="x"), {"change": "set_summary", "text": "x"}),
    (
        SetActivatedGroups(["web"]),
        SetActivatedGroups(names=("web",)),
        {"change": "set_activated_groups", "names": ["web"]},
    ),
    (SetPlanMode(True), SetPlanMode(active=True), {"change": "set_plan_mode", "active": True}),
    (
        BeginTask(SCOPE),
        BeginTask(scope=SCOPE),
        {"change": "begin_task", "scope": {"taskId": "T", "objective": "refund", "sourceRef": None}},
    ),
    (
        ReplaceTasks([TODO]),
        ReplaceTasks(tasks=(TODO,)),
        {"change": "replace_tasks", "tasks": [TODO.model_dump(mode="json")]},
    ),
    (
        ProposeRequirement(CRITERION, "paid", "turn:1"),
        ProposeRequirement(kind=CRITERION, text="paid", source="turn:1"),
        {"change": "propose_requirement", "kind": "ACCEPTANCE_CRITERION", "text": "paid", "source": "turn:1"},
    ),
    (
        DecideRequirement("q", RequirementStatus.CONFIRMED, BY_ALICE),
        DecideRequirement(id="q", status=RequirementStatus.CONFIRMED, decision=BY_ALICE),
        {
            "change": "decide_requirement",
            "id": "q",
            "status": "CONFIRMED",
            "decision": {"authority": "USER", "sourceRef": None},
        },
    ),
    (SetSubjectVersion("v1"), SetSubjectVersion(v="v1"), {"change": "set_subject_version", "v": "v1"}),
    (InvalidateSubject(), InvalidateSubject(), {"change": "invalidate_subject"}),
    (
        RecordVerification(REPORT),
        RecordVerification(report=REPORT),
        {"change": "record_verification", "report": REPORT.model_dump(mode="json")},
    ),
]
ONE_OF_EACH = [by_position for by_position, _, _ in MADE]

ANY: TypeAdapter[AnyChange] = TypeAdapter(Change)


# ---- form -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("by_position", "by_name", "data"), MADE, ids=[data["change"] for _, _, data in MADE])
def test_a_change_is_made_by_position_and_by_name_and_has_one_form_in_json(
    by_position: AnyChange, by_name: AnyChange, data: dict[str, Any]
) -> None:
    """B6: the same value each way, that can be kept in a set."""
    assert by_position == by_name == ANY.validate_python(data)
    assert json.loads(ANY.dump_json(by_position)) == data
    assert change_json(by_position)["change"] == data["change"]
    assert len({by_position, by_name}) == 1


def test_there_is_one_kind_of_each_and_all_of_them_are_tried_here() -> None:
    """B6: the kind is the snake_case of the class's name."""
    kinds = get_args(AnyChange)
    assert {type(change) for change in ONE_OF_EACH} == set(kinds)
    for change in ONE_OF_EACH:
        name = type(change).__name__
        assert change.change == "".join(f"_{c.lower()}" if c.isupper() else c for c in name).removeprefix("_")


@given(CHANGES)
def test_any_change_goes_to_json_and_back_also_within_a_command(change: AnyChange) -> None:
    """B6, B77."""
    assert ANY.validate_json(ANY.dump_json(change)) == change
    data = json.dumps({"changes": [json.loads(ANY.dump_json(change))], "expected_revision": 1, "reason": "because"})
    command = read_command(UPDATE_STATE, data)
    assert isinstance(command, UpdateState)
    assert command.changes == (change,)


@given(CHANGES, st.sampled_from(["change", "rule", "v", "new"]))
def test_a_change_can_not_be_changed(change: AnyChange, name: str) -> None:
    """B2."""
    with pytest.raises(AttributeError):
        setattr(change, name, 1)


BAD: list[Mapping[str, Any]] = [
    {"change": "set_user_id", "user_id": "bob"},
    {"change": "set_revision", "revision": 1},
    {"mode": "explore"},
    {"change": "set_permission_mode", "mode": SECRET},
    {"change": "set_summary", "text": "x", SECRET + "!": 1},
    {"change": "set_summary"},
    {"change": "add_rule", "rule": {"tool_name": "pay", "behavior": "allow", "rule_contents": SECRET}},
    {"change": "add_rule", "rule": SECRET},
    {"change": "begin_task", "scope": {"taskId": "T", "objective": "x", "source": SECRET}},
    {"change": "replace_tasks", "tasks": [{"id": "t", "subject": "x", "status": SECRET}]},
    {"change": "decide_requirement", "id": "q", "status": "CONFIRMED", "decision": {"authority": SECRET}},
    {"change": "decide_requirement", "id": "q", "status": "CONFIRMED", "decision": {"authority": "USER", "by": SECRET}},
    {"change": "record_verification", "report": {**REPORT.model_dump(mode="json"), "requirement": SECRET}},
    {"change": "set_activated_groups", "names": SECRET},
]


@pytest.mark.parametrize("data", BAD)
def test_what_is_no_change_is_refused_in_words_that_do_not_repeat_it(data: Mapping[str, Any]) -> None:
    """B6: a misspelt field too, also within a rule, which would cover more than was meant; and identity fields."""
    command = {"changes": [data], "expected_revision": 1, "reason": "because"}
    with pytest.raises(InvalidCommand, match=r"changes\.0") as caught:
        read_command(UPDATE_STATE, json.dumps(command))
    assert SECRET not in str(caught.value)
    with pytest.raises(ValidationError):
        ANY.validate_python(data)


def test_a_change_that_is_made_wrong_does_not_repeat_what_was_given() -> None:
    """B6: in a log it would be read by others."""
    with pytest.raises(ValidationError) as caught:
        SetPermissionMode(SECRET)  # pyright: ignore[reportArgumentType]  # a caller without a type checker
    assert SECRET not in str(caught.value)


def test_a_hundred_changes_are_made_at_once_and_not_one_more_or_none() -> None:
    """B6."""
    for many in (0, MAX_CHANGES + 1):
        command = {"changes": [{"change": "invalidate_subject"}] * many, "expected_revision": 1, "reason": "because"}
        with pytest.raises(InvalidCommand, match=r"update_state: changes: .*(100|1 item)"):
            read_command(UPDATE_STATE, json.dumps(command))
    state = apply_changes(STATE, [InvalidateSubject()] * MAX_CHANGES)
    assert state.tasks_context.contract_version == 100


# ---- what they do -----------------------------------------------------------------------------------------------


def test_each_change_does_what_its_name_says() -> None:
    """B6: one after another, each on what the one before has left."""
    state = apply_changes(
        STATE,
        [
            SetPermissionMode(PermissionMode.EXPLORE),
            AddRule(RULE),
            SetContext([HELLO]),
            SetSummary("new"),
            SetActivatedGroups(["web", "mail"]),
            SetPlanMode(True),
            BeginTask(SCOPE),
            ReplaceTasks([TODO]),
            SetSubjectVersion("v1"),
        ],
    )
    assert state.permission_context.mode is PermissionMode.EXPLORE
    assert state.permission_context.allow_rules == {"pay": (RULE,)}
    assert (state.context, state.summary) == ((HELLO,), "new")
    assert state.tool_context.activated_groups == ("web", "mail")
    assert state.plan_mode_context.plan_active
    assert (state.tasks_context.scope, state.tasks_context.tasks) == (SCOPE, (TODO,))
    assert state.tasks_context.subject_version == "v1"
    back = apply_changes(state, [RemoveRule(RULE), SetActivatedGroups([]), SetPlanMode(False), InvalidateSubject()])
    assert back.permission_context.allow_rules == {}
    assert back.tool_context.activated_groups == ()
    assert not back.plan_mode_context.plan_active
    assert back.tasks_context.subject_version is None


def confirmed(state: AgentState) -> AgentState:
    """Propose and confirm a criterion."""
    state = apply_changes(state, [BeginTask(SCOPE), ProposeRequirement(CRITERION, "paid")])
    (one,) = state.tasks_context.requirements
    return apply_changes(state, [DecideRequirement(one.id, RequirementStatus.CONFIRMED, BY_ALICE)])


def test_a_requirement_is_proposed_decided_and_verified() -> None:
    """B52, B54: a report that is bound to what was there before is stale."""
    state = confirmed(STATE)
    (one,) = state.tasks_context.requirements
    report = REPORT.model_copy(update={"requirement_id": one.id, "binding": binding(state.tasks_context)})
    verified = apply_changes(state, [RecordVerification(report)])
    assert verified.tasks_context.verifications == (report,)
    with pytest.raises(StaleRevision, match="change 2 of 2, record_verification: "):
        apply_changes(state, [SetSubjectVersion("v1"), RecordVerification(report)])


def test_the_id_of_a_requirement_is_made_of_the_session_and_of_what_is_proposed() -> None:
    """B52: the same for each replay, another in every other session and after a task was begun again."""

    def proposed(state: AgentState, *changes: AnyChange, text: str = "paid") -> str:
        return apply_changes(state, [*changes, ProposeRequirement(CRITERION, text)]).tasks_context.requirements[-1].id

    ids = [
        proposed(STATE),
        proposed(STATE, text="other"),
        proposed(STATE, BeginTask(SCOPE)),
        proposed(STATE.model_copy(update={"user_id": None})),
        proposed(STATE.model_copy(update={"session_id": "t"})),
        proposed(STATE.model_copy(update={"agent_id": "b"})),
    ]
    assert proposed(STATE) == ids[0]
    assert len(set(ids)) == len(ids)


PARTS = {"permission_context", "tool_context", "tasks_context", "plan_mode_context"}


def attempt(state: AgentState, *changes: AnyChange) -> AgentState | PerdureError:
    """Return the state after the changes, or their refusal; nothing else may come of them."""
    try:
        return apply_changes(state, changes)
    except (InvalidCommand, StaleRevision) as error:
        return error


@given(STATES, CHANGES)
def test_a_change_of_any_state_is_made_or_refused_and_leaves_alone_what_it_does_not_name(
    state: AgentState, change: AnyChange
) -> None:
    """B6: identity and revision are nobody's to change here; the result is a state that can be kept."""
    before = state.to_json()
    after = attempt(state, change)
    assert state.to_json() == before
    if isinstance(after, PerdureError):
        assert len(str(after)) < 400
        return
    assert AgentState.from_json(after.to_json()) == after
    changed = {name for name in AgentState.model_fields if getattr(after, name) != getattr(state, name)}
    assert len(changed) <= 1
    assert changed <= {"context", "summary"} if touches_context([change]) else changed <= PARTS


@settings(max_examples=50)
@given(STATES, st.lists(CHANGES, max_size=4))
def test_changes_together_are_the_changes_one_by_one_or_nothing(state: AgentState, changes: list[AnyChange]) -> None:
    """B6: and the words of a refusal say which one it was."""
    expected: AgentState | PerdureError = state
    for number, change in enumerate(changes, 1):
        expected = attempt(expected, change)
        if isinstance(expected, PerdureError):
            with pytest.raises(type(expected), match=f"^change {number} of {len(changes)}, {change.change}: "):
                apply_changes(state, changes)
            return
    assert apply_changes(state, changes) == expected


def call(name: str) -> Message:
    return Message(id=f"m-{name}", role=Role.ASSISTANT, content=[ToolUseBlock(id=name, name="pay")])


def result(name: str) -> Message:
    return Message(id=f"r-{name}", role=Role.TOOL, content=[ToolResultBlock(id=name, name="pay")])


def rule(**fields: object) -> PermissionRule:
    return PermissionRule.model_validate({"tool_name": "pay", "behavior": "deny", **fields})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (SetContext([call(SECRET)]), "each tool call needs one result"),
        (SetContext([result(SECRET)]), "each tool call needs one result"),
        (SetContext([call("a"), HELLO, result("a")]), "each tool call needs one result"),
        (SetContext([HELLO, HELLO]), "the same id"),
        (SetActivatedGroups([SECRET, SECRET]), "stands twice"),
        (SetActivatedGroups(["web", " "]), "blank"),
        (SetActivatedGroups([SECRET * 100]), "are the most"),
        (SetActivatedGroups([str(n) for n in range(MAX_GROUPS + 1)]), "are the most"),
        (AddRule(rule(behavior="passthrough", rule_content=SECRET)), "passthrough"),
        (AddRule(rule(tool_name="  ")), "names a tool"),
        (AddRule(rule(tool_name=SECRET * 100)), "tool_name has at most"),
        (AddRule(rule(rule_content=SECRET * MAX_CONTENT)), "at most 2000"),
        (AddRule(rule(source=SECRET * 1000)), "source has at most"),
        (RemoveRule(rule(rule_content=SECRET)), "no such rule"),
        (SetSubjectVersion(SECRET), "begin one"),
        (ProposeRequirement(CRITERION, SECRET * 1000), "are the most"),
        (DecideRequirement(SECRET, RequirementStatus.CONFIRMED, BY_ALICE), "no requirement"),
    ],
)
def test_what_is_not_possible_is_refused_in_words_that_say_which_and_do_not_repeat_it(
    change: AnyChange, words: str
) -> None:
    """B6, B52: and the change before it is not made either."""
    with pytest.raises(InvalidCommand, match=f"^change 2 of 2, {change.change}: .*{words}") as caught:
        apply_changes(STATE, [SetSummary("made"), change])
    assert SECRET not in str(caught.value)


def test_a_context_that_is_well_formed_is_taken_as_it_is() -> None:
    """B6: calls with their results right behind them, and nothing at all."""
    messages = (HELLO, call("a"), result("a"))
    assert apply_changes(STATE, [SetContext(messages)]).context == messages
    assert apply_changes(STATE, [SetContext(())]).context == ()


def test_only_a_proposal_may_be_made_to_any_revision() -> None:
    """B52: together with anything else it is checked too."""
    proposal = ProposeRequirement(CRITERION, "paid")
    assert not checked([proposal, proposal])
    for change in ONE_OF_EACH:
        assert checked([change]) == (type(change) is not ProposeRequirement)
        assert checked([proposal, change]) == checked([change])


def test_only_messages_and_summary_are_what_the_model_was_told() -> None:
    """B6: these are refused while something is outstanding."""
    for change in ONE_OF_EACH:
        assert touches_context([InvalidateSubject(), change]) == isinstance(change, SetContext | SetSummary)
