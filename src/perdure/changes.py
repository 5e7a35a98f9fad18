"""Typed changes of a session's state, as trusted callers make them: `SessionHandle.update_state` takes them.

Each may be made by position, in the order of its fields. They are applied all or not at all.
"""

from __future__ import annotations

from dataclasses import KW_ONLY  # noqa: TC003  # dataclasses look for it in the module
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, assert_never

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

from perdure.errors import InvalidCommand
from perdure.messages import Message, flaws
from perdure.operations import derived_id
from perdure.permissions import PermissionMode, PermissionRule, with_rule, without_rule
from perdure.tasking import (
    begin_task,
    decide_requirement,
    invalidate_subject,
    propose_requirement,
    record_verification,
    replace_tasks,
    set_subject_version,
)
from perdure.tasks import (
    MAX_REQUIREMENT_TEXT,
    RequirementDecision,
    RequirementKind,
    RequirementStatus,
    Scope,
    Task,
    Verification,
)
from perdure.values import FrozenDict, Text, freeze_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.state import AgentState
    from perdure.tasks import TasksContext

MAX_CHANGES = 100
"""Changes that are made at once."""


_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_STRICT)
class SetPermissionMode:
    """Set how calls are treated that no deny or ask rule covers."""

    mode: PermissionMode
    _: KW_ONLY
    change: Literal["set_permission_mode"] = "set_permission_mode"


@dataclass(frozen=True, config=_STRICT)
class AddRule:
    """Add a permission rule to the list that its behavior names."""

    rule: PermissionRule
    _: KW_ONLY
    change: Literal["add_rule"] = "add_rule"


@dataclass(frozen=True, config=_STRICT)
class RemoveRule:
    """Take a permission rule away, whatever its source."""

    rule: PermissionRule
    _: KW_ONLY
    change: Literal["remove_rule"] = "remove_rule"


@dataclass(frozen=True, config=_STRICT)
class SetContext:
    """Put other messages in the place of the context."""

    messages: tuple[Message, ...]
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

    names: Annotated[tuple[Text, ...], Field(max_length=1000)]
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

    scope: Scope
    _: KW_ONLY
    change: Literal["begin_task"] = "begin_task"


@dataclass(frozen=True, config=_STRICT)
class ReplaceTasks:
    """Put other todos in the place of the list."""

    tasks: Annotated[tuple[Task, ...], Field(max_length=1000)]
    _: KW_ONLY
    change: Literal["replace_tasks"] = "replace_tasks"


@dataclass(frozen=True, config=_STRICT)
class ProposeRequirement:
    """Add a candidate for a requirement."""

    kind: RequirementKind
    text: Annotated[Text, Field(max_length=MAX_REQUIREMENT_TEXT)]
    source: Text | None = None
    _: KW_ONLY
    change: Literal["propose_requirement"] = "propose_requirement"


@dataclass(frozen=True, config=_STRICT)
class DecideRequirement:
    """Confirm or reject a requirement."""

    id: Text
    status: RequirementStatus
    decision: RequirementDecision
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

    report: Verification
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
        InvalidCommand: one of them is not possible.
        StaleRevision: a verification is of another task, contract or subject.
    """
    for change in changes:
        state = _applied(state, change)
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
            plan = state.plan_mode_context.model_copy(update={"plan_active": change.active})
            return state.model_copy(update={"plan_mode_context": plan})
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
    return rule


def _checked_messages(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    flaw = next(flaws(messages), None)
    if flaw is not None:
        msg = f"no model would take these messages: {flaw}"
        raise InvalidCommand(msg)
    if len({message.id for message in messages}) != len(messages):
        msg = "two messages have the same id; give each its own"
        raise InvalidCommand(msg)
    return messages


def _checked_names(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names) or not all(name.strip() for name in names):
        msg = "the names of tool groups are different, and none is blank"
        raise InvalidCommand(msg)
    return names


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
