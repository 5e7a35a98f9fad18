"""Typed changes of a session's state, as trusted callers make them: `SessionHandle.update_state` takes them.

Each may be made by position, in the order of its fields; `change` names its kind in JSON. They are applied all or not
at all, and none of them reaches what the session is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY  # noqa: TC003  # dataclasses look for it in the module
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypeVar, assert_never, cast

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

from perdure.errors import InvalidCommand, StaleRevision
from perdure.messages import Message, flaws
from perdure.operations import derived_id
from perdure.permissions import PermissionMode, PermissionRule, with_rule, without_rule
from perdure.plan import enter, leave
from perdure.tasking import (
    MAX_REFERENCE,
    begin_task,
    decide_requirement,
    invalidate_subject,
    propose_requirement,
    record_verification,
    set_subject_version,
)
from perdure.tasks import RequirementDecision, RequirementKind, RequirementStatus, Scope, Task, Verification
from perdure.todos import replace_tasks
from perdure.toolnames import MAX_INSIDE
from perdure.values import Frozen, FrozenDict, Text, freeze_record

if TYPE_CHECKING:
    from perdure.state import AgentState
    from perdure.tasks import TasksContext

MAX_CHANGES = 100
"""Changes that are made at once."""

MAX_GROUPS = 1000
"""Tool groups that are on at once."""

_STRICT = ConfigDict(extra="forbid", hide_input_in_errors=True)

T = TypeVar("T")

if TYPE_CHECKING:
    Several: TypeAlias = Sequence[T]
else:
    # Any sequence is taken, and kept as a tuple.
    Several = tuple[T, ...]


def _exactly(model: type[Frozen]) -> BeforeValidator:
    """Refuse fields that a model would read over: with its content misspelt, a rule would cover every call."""
    known = {name for field, info in model.model_fields.items() for name in (field, info.alias) if name is not None}

    def check(value: object) -> object:
        if isinstance(value, Mapping) and not known.issuperset(cast("Mapping[object, object]", value)):
            msg = f"has a field that is not known; there are {', '.join(model.model_fields)}"
            raise ValueError(msg)
        return cast("object", value)

    return BeforeValidator(check)


_Rule: TypeAlias = Annotated[PermissionRule, _exactly(PermissionRule)]
_Scope: TypeAlias = Annotated[Scope, _exactly(Scope)]
_Task: TypeAlias = Annotated[Task, _exactly(Task)]
_Decision: TypeAlias = Annotated[RequirementDecision, _exactly(RequirementDecision)]
_Report: TypeAlias = Annotated[Verification, _exactly(Verification)]


@dataclass(frozen=True, config=_STRICT)
class SetPermissionMode:
    """Set how calls are treated that no deny or ask rule covers."""

    mode: PermissionMode
    _: KW_ONLY
    change: Literal["set_permission_mode"] = "set_permission_mode"


@dataclass(frozen=True, config=_STRICT)
class AddRule:
    """Add a permission rule to the list that its behavior names."""

    rule: _Rule
    _: KW_ONLY
    change: Literal["add_rule"] = "add_rule"


@dataclass(frozen=True, config=_STRICT)
class RemoveRule:
    """Take a permission rule away, whatever its source."""

    rule: _Rule
    _: KW_ONLY
    change: Literal["remove_rule"] = "remove_rule"


@dataclass(frozen=True, config=_STRICT)
class SetContext:
    """Put other messages in the place of the context."""

    messages: Several[Message]
    _: KW_ONLY
    change: Literal["set_context"] = "set_context"


@dataclass(frozen=True, config=_STRICT)
class SetSummary:
    """Put another text in the place of the summary."""

    text: Text
    _: KW_ONLY
    change: Literal["set_summary"] = "set_summary"


@dataclass(frozen=True, config=_STRICT)
class SetActivatedGroups:
    """Say which tool groups are on: exactly these."""

    names: Several[Text]
    _: KW_ONLY
    change: Literal["set_activated_groups"] = "set_activated_groups"


@dataclass(frozen=True, config=_STRICT)
class SetPlanMode:
    """Switch plan mode."""

    active: bool
    _: KW_ONLY
    change: Literal["set_plan_mode"] = "set_plan_mode"


@dataclass(frozen=True, config=_STRICT)
class BeginTask:
    """Begin a task, with nothing of the one before."""

    scope: _Scope
    _: KW_ONLY
    change: Literal["begin_task"] = "begin_task"


@dataclass(frozen=True, config=_STRICT)
class ReplaceTasks:
    """Put other todos in the place of the list."""

    tasks: Several[_Task]
    _: KW_ONLY
    change: Literal["replace_tasks"] = "replace_tasks"


@dataclass(frozen=True, config=_STRICT)
class ProposeRequirement:
    """Add a candidate for a requirement."""

    kind: RequirementKind
    text: Text
    source: Text | None = None
    _: KW_ONLY
    change: Literal["propose_requirement"] = "propose_requirement"


@dataclass(frozen=True, config=_STRICT)
class DecideRequirement:
    """Confirm or reject a requirement."""

    id: Text
    status: RequirementStatus
    decision: _Decision
    _: KW_ONLY
    change: Literal["decide_requirement"] = "decide_requirement"


@dataclass(frozen=True, config=_STRICT)
class SetSubjectVersion:
    """Say which version of the thing the task is about is the present one."""

    v: Text
    _: KW_ONLY
    change: Literal["set_subject_version"] = "set_subject_version"


@dataclass(frozen=True, config=_STRICT)
class InvalidateSubject:
    """Say that no version of the subject is the present one."""

    _: KW_ONLY
    change: Literal["invalidate_subject"] = "invalidate_subject"


@dataclass(frozen=True, config=_STRICT)
class RecordVerification:
    """Record what a verifier found."""

    report: _Report
    _: KW_ONLY
    change: Literal["record_verification"] = "record_verification"


ContractChange: TypeAlias = (
    BeginTask
    | ReplaceTasks
    | ProposeRequirement
    | DecideRequirement
    | SetSubjectVersion
    | InvalidateSubject
    | RecordVerification
)
PermissionChange: TypeAlias = SetPermissionMode | AddRule | RemoveRule
AnyChange: TypeAlias = PermissionChange | SetContext | SetSummary | SetActivatedGroups | SetPlanMode | ContractChange
Change: TypeAlias = Annotated[AnyChange, Field(discriminator="change")]

_CHANGES: TypeAdapter[AnyChange] = TypeAdapter(Change)


def change_json(change: AnyChange) -> FrozenDict:
    """Return a change as frozen JSON."""
    return freeze_record(_CHANGES.dump_python(change, mode="json"))


def touches_context(changes: Sequence[AnyChange]) -> bool:
    """Tell whether these change what the model has been told so far."""
    return any(isinstance(change, SetContext | SetSummary) for change in changes)


def checked(changes: Sequence[AnyChange]) -> bool:
    """Tell whether these may only be made to the state that they are meant for. A proposal may be made to any."""
    return not all(isinstance(change, ProposeRequirement) for change in changes)


def apply_changes(state: AgentState, changes: Sequence[AnyChange]) -> AgentState:
    """Return the state after all of these changes, but for its revision.

    Raises:
        InvalidCommand: one of them is not possible; the words say which.
        StaleRevision: a verification is of another task, contract or subject.
    """
    for number, change in enumerate(changes, 1):
        try:
            state = _applied(state, change)
        except (InvalidCommand, StaleRevision) as error:
            msg = f"change {number} of {len(changes)}, {change.change}: {error}"
            raise type(error)(msg) from None
    return state


def _applied(state: AgentState, change: AnyChange) -> AgentState:
    match change:
        case SetPermissionMode() | AddRule() | RemoveRule():
            return _with_permissions(state, change)
        case SetContext():
            return state.model_copy(update={"context": _checked_messages(change.messages)})
        case SetSummary():
            return state.model_copy(update={"summary": change.text})
        case SetActivatedGroups():
            tools = state.tool_context.model_copy(update={"activated_groups": _checked_names(change.names)})
            return state.model_copy(update={"tool_context": tools})
        case SetPlanMode():
            switch = enter if change.active else leave
            return state.model_copy(update={"plan_mode_context": switch(state.plan_mode_context)})
        case _:
            return state.model_copy(update={"tasks_context": _with_contract(state, change)})


def _with_permissions(state: AgentState, change: PermissionChange) -> AgentState:
    permissions = state.permission_context
    try:
        match change:
            case SetPermissionMode():
                permissions = permissions.model_copy(update={"mode": change.mode})
            case AddRule():
                permissions = with_rule(permissions, _checked_rule(change.rule))
            case RemoveRule():
                permissions = without_rule(permissions, change.rule)
            case _:  # pragma: no cover
                assert_never(change)
    except ValueError as error:
        raise InvalidCommand(str(error)) from None
    return state.model_copy(update={"permission_context": permissions})


def _checked_rule(rule: PermissionRule) -> PermissionRule:
    if not rule.tool_name.strip():
        msg = "a rule names a tool; this one is blank"
        raise InvalidCommand(msg)
    sizes = {"tool_name": MAX_INSIDE, "source": MAX_REFERENCE}
    for name, limit in sizes.items():
        if len(getattr(rule, name) or "") > limit:
            msg = f"a rule's {name} has at most {limit} characters"
            raise InvalidCommand(msg)
    return rule


def _checked_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    if any(flaws(messages)):
        msg = "no model would take these messages: each tool call needs one result, right behind the call's message"
        raise InvalidCommand(msg)
    if len({message.id for message in messages}) != len(messages):
        msg = "two messages have the same id; give each its own"
        raise InvalidCommand(msg)
    return tuple(messages)


def _checked_names(names: Sequence[str]) -> tuple[str, ...]:
    if len(set(names)) != len(names) or not all(name.strip() for name in names):
        msg = "one name of a tool group is blank, or stands twice; name each group once"
        raise InvalidCommand(msg)
    if len(names) > MAX_GROUPS or max(map(len, names), default=0) > MAX_INSIDE:
        msg = f"{MAX_GROUPS} tool groups, each with a name of {MAX_INSIDE} characters, are the most"
        raise InvalidCommand(msg)
    return tuple(names)


def _with_contract(state: AgentState, change: ContractChange) -> TasksContext:
    tasks = state.tasks_context
    match change:
        case BeginTask():
            return begin_task(tasks, change.scope)
        case ReplaceTasks():
            return replace_tasks(tasks, change.tasks)
        case ProposeRequirement():
            session = (state.agent_id, state.user_id or "", state.session_id)
            place = (str(tasks.contract_version), str(len(tasks.requirements)))
            new_id = derived_id("requirement", *session, *place, change.kind, change.text, change.source or "")
            return propose_requirement(tasks, change.kind, change.text, change.source, new_id)
        case DecideRequirement():
            return decide_requirement(tasks, change.id, change.status, change.decision)
        case SetSubjectVersion():
            return set_subject_version(tasks, change.v)
        case InvalidateSubject():
            return invalidate_subject(tasks)
        case RecordVerification():
            return record_verification(tasks, change.report)
        case _:  # pragma: no cover
            assert_never(change)
