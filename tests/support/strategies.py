"""Hypothesis strategies for the values of the core: any that the rules allow, ugly ones included."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from perdure.changes import (
    AddRule,
    AnyChange,
    BeginTask,
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
)
from perdure.judging import CallFacts, Opinion
from perdure.messages import (
    Base64Source,
    Block,
    CallState,
    DataBlock,
    Message,
    ResultState,
    Role,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
    Usage,
)
from perdure.operations import Effect
from perdure.permissions import (
    REMEMBERED,
    PermissionBehavior,
    PermissionContext,
    PermissionMode,
    PermissionRule,
    WorkingDirectory,
)
from perdure.plan import PlanModeContext
from perdure.state import AgentState
from perdure.tasks import (
    Authority,
    Binding,
    Requirement,
    RequirementDecision,
    RequirementKind,
    RequirementStatus,
    Scope,
    Task,
    TasksContext,
    TaskState,
    Verification,
    VerificationOutcome,
)
from perdure.toolgroups import ToolContextState
from perdure.values import FrozenMap, freeze_object

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=20) | st.sampled_from(
    [
        "",
        " ",
        "\0",
        "\ud800",
        "\udc00\ud800",
        "a\ud83d",
        "\U0001f600",
        "é",
        "e\u0301",
        "\ufeff",
        "\u2028",
        '"\\',
        "~",
        "%61",
    ]
)
"""Text as it may come from anywhere: lone surrogates, NUL, combining marks, nothing at all."""

NAMES = st.text(alphabet=st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=30)
"""Text that may name something: valid Unicode without NUL. It may still be blank."""

JSON_LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT


def json_values(*, leaves: st.SearchStrategy[Any] = JSON_LEAVES, max_leaves: int = 6) -> st.SearchStrategy[Any]:
    """Return JSON as `json.loads` gives it."""
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
        max_leaves=max_leaves,
    )


JSON_OBJECTS = st.dictionaries(ANY_TEXT, json_values(max_leaves=4), max_size=2)

FROZEN_OBJECTS = JSON_OBJECTS.map(freeze_object)

USAGES = st.builds(Usage, st.integers(0, 10_000), st.integers(0, 10_000))

TEXT_BLOCKS = st.builds(TextBlock, ANY_TEXT)

DATA_BLOCKS = st.builds(
    DataBlock,
    source=st.builds(URLSource, url=ANY_TEXT, media_type=st.none() | ANY_TEXT)
    | st.builds(Base64Source, media_type=ANY_TEXT, data=ANY_TEXT),
    name=st.none() | ANY_TEXT,
)

OUTPUTS = st.lists(TEXT_BLOCKS | DATA_BLOCKS, max_size=2).map(tuple)

BLOCKS: st.SearchStrategy[Block] = st.one_of(
    TEXT_BLOCKS,
    st.builds(ThinkingBlock, ANY_TEXT),
    DATA_BLOCKS,
    st.builds(ToolUseBlock, id=ANY_TEXT, name=ANY_TEXT, input=FROZEN_OBJECTS, state=st.sampled_from(CallState)),
    st.builds(
        ToolResultBlock,
        id=ANY_TEXT,
        name=ANY_TEXT,
        output=OUTPUTS,
        state=st.sampled_from(ResultState),
        metadata=FROZEN_OBJECTS,
    ),
)

MESSAGES = st.builds(
    Message,
    id=ANY_TEXT,
    name=st.none() | ANY_TEXT,
    role=st.sampled_from(Role),
    content=st.lists(BLOCKS, max_size=3).map(tuple),
    metadata=FROZEN_OBJECTS,
    timestamp=st.none() | ANY_TEXT,
    usage=st.none() | USAGES,
)

CONTEXTS = st.lists(MESSAGES, max_size=3).map(tuple)

RULES = st.builds(
    PermissionRule,
    tool_name=ANY_TEXT,
    rule_content=st.none() | ANY_TEXT,
    behavior=st.sampled_from(PermissionBehavior),
    source=st.none() | ANY_TEXT,
)

RULE_MAPS = st.dictionaries(NAMES, st.lists(RULES, max_size=2).map(tuple), max_size=2).map(FrozenMap)

PERMISSIONS = st.builds(
    PermissionContext,
    mode=st.sampled_from(PermissionMode),
    working_directories=st.dictionaries(
        NAMES, st.builds(WorkingDirectory, path=ANY_TEXT, source=st.none() | ANY_TEXT), max_size=2
    ).map(FrozenMap),
    allow_rules=RULE_MAPS,
    deny_rules=RULE_MAPS,
    ask_rules=RULE_MAPS,
)

SUBJECTS = st.text(alphabet="ab*?[]!-\\\n", max_size=4) | ANY_TEXT
"""Subjects and globs that often have to do with one another."""

TOOL_NAMES = st.sampled_from(["pay", "look"])

MEETING_RULES = st.builds(
    PermissionRule,
    tool_name=TOOL_NAMES,
    rule_content=st.none() | SUBJECTS,
    behavior=st.sampled_from(PermissionBehavior),
    source=st.sampled_from([None, "policy", REMEMBERED]),
)


def _by_tool(rules: list[PermissionRule]) -> FrozenMap[tuple[PermissionRule, ...]]:
    return FrozenMap(
        {name: tuple(rule for rule in rules if rule.tool_name == name) for name in {rule.tool_name for rule in rules}}
    )


MEETING_RULE_MAPS = st.lists(MEETING_RULES, max_size=2).map(_by_tool)

MEETING_PERMISSIONS = st.builds(
    PermissionContext,
    mode=st.sampled_from(PermissionMode),
    working_directories=st.dictionaries(TOOL_NAMES, st.builds(WorkingDirectory, path=ANY_TEXT)).map(FrozenMap),
    allow_rules=MEETING_RULE_MAPS,
    deny_rules=MEETING_RULE_MAPS,
    ask_rules=MEETING_RULE_MAPS,
)
"""Permissions whose rules often cover one of `CALL_FACTS`."""

OPINIONS = st.builds(Opinion, behavior=st.sampled_from(["allow", "deny", "ask"]), reason=ANY_TEXT, safety=st.booleans())

CALL_FACTS = st.builds(
    CallFacts,
    tool=TOOL_NAMES,
    effect=st.sampled_from(Effect),
    subject=st.none() | SUBJECTS,
    opinion=st.none() | OPINIONS,
)

TOOL_CONTEXTS = st.builds(
    ToolContextState,
    max_cache_files=st.integers(2, 1000),
    max_cache_bytes=st.integers(10_001, 10**9),
    activated_groups=st.lists(ANY_TEXT, max_size=2).map(tuple),
    spawn_registry=JSON_OBJECTS.map(freeze_object),
)

TASKS = st.builds(
    Task,
    subject=ANY_TEXT,
    description=ANY_TEXT,
    metadata=FROZEN_OBJECTS,
    created_at=st.none() | ANY_TEXT,
    state=st.sampled_from(TaskState),
    id=ANY_TEXT,
    owner=st.none() | ANY_TEXT,
    blocks=st.lists(ANY_TEXT, max_size=2).map(tuple),
    blocked_by=st.lists(ANY_TEXT, max_size=2).map(tuple),
)

DECISIONS = st.builds(RequirementDecision, authority=st.sampled_from(Authority), source_ref=st.none() | ANY_TEXT)

REQUIREMENTS = st.builds(
    Requirement,
    id=ANY_TEXT,
    kind=st.sampled_from(RequirementKind),
    text=ANY_TEXT,
    proposed_source_ref=st.none() | ANY_TEXT,
    status=st.sampled_from(RequirementStatus),
    decision=st.none() | DECISIONS,
)

BINDINGS = st.builds(
    Binding,
    task_id=st.none() | ANY_TEXT,
    contract_version=st.integers(0, 99),
    subject_version=st.none() | ANY_TEXT,
)

VERIFICATIONS = st.builds(
    Verification,
    id=ANY_TEXT,
    requirement_id=ANY_TEXT,
    action_id=st.none() | ANY_TEXT,
    verifier_id=st.none() | ANY_TEXT,
    outcome=st.sampled_from(VerificationOutcome),
    reason=st.none() | ANY_TEXT,
    binding=BINDINGS,
    recorded_at=st.none() | ANY_TEXT,
)

SCOPES = st.builds(Scope, task_id=ANY_TEXT, objective=ANY_TEXT, source_ref=st.none() | ANY_TEXT)

TASKS_CONTEXTS = st.builds(
    TasksContext,
    tasks=st.lists(TASKS, max_size=2).map(tuple),
    requirements=st.lists(REQUIREMENTS, max_size=2).map(tuple),
    revision=st.integers(0, 99),
    scope=st.none() | SCOPES,
    contract_version=st.integers(0, 99),
    subject_version=st.none() | ANY_TEXT,
    verifications=st.lists(VERIFICATIONS, max_size=2).map(tuple),
)

PLANS = st.builds(
    PlanModeContext,
    plan_active=st.booleans(),
    current_plan_file=st.none() | ANY_TEXT,
    plan=st.none() | ANY_TEXT,
)

STATES = st.builds(
    AgentState,
    session_id=ANY_TEXT,
    user_id=st.none() | ANY_TEXT,
    summary=ANY_TEXT,
    context=CONTEXTS,
    reply_id=ANY_TEXT,
    cur_iter=st.integers(0, 99),
    shutdown_interrupted=st.booleans(),
    permission_context=PERMISSIONS,
    tool_context=TOOL_CONTEXTS,
    tasks_context=TASKS_CONTEXTS,
    plan_mode_context=PLANS,
    agent_id=ANY_TEXT,
    revision=st.integers(0, 10**6),
)

CHANGES: st.SearchStrategy[AnyChange] = st.one_of(
    st.builds(SetPermissionMode, st.sampled_from(PermissionMode)),
    st.builds(AddRule, RULES),
    st.builds(RemoveRule, RULES),
    st.builds(SetContext, CONTEXTS),
    st.builds(SetSummary, ANY_TEXT),
    st.builds(SetActivatedGroups, st.lists(ANY_TEXT, max_size=2)),
    st.builds(SetPlanMode, st.booleans()),
    st.builds(BeginTask, SCOPES),
    st.builds(ReplaceTasks, st.lists(TASKS, max_size=2)),
    st.builds(ProposeRequirement, st.sampled_from(RequirementKind), ANY_TEXT, st.none() | ANY_TEXT),
    st.builds(DecideRequirement, ANY_TEXT, st.sampled_from(RequirementStatus), DECISIONS),
    st.builds(SetSubjectVersion, ANY_TEXT),
    st.builds(InvalidateSubject),
    st.builds(RecordVerification, VERIFICATIONS),
)
"""Changes of a state, possible or not."""
