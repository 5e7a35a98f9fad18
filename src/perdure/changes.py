"""Typed changes of a session's state, as trusted callers make them: `SessionHandle.update_state` takes them.

Each may be made by position, in the order of its fields. They are applied all or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, assert_never

from pydantic import ConfigDict, Field

from perdure.errors import InvalidCommand
from perdure.messages import Message, flaws
from perdure.operations import derived_id
from perdure.permissions import MAX_CONTENT, PermissionMode, PermissionRule, with_rule, without_rule
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
from perdure.values import Frozen, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.state import AgentState
    from perdure.tasks import TasksContext

MAX_CHANGES = 100
"""Changes that are made at once."""


class _Change(Frozen):
    model_config = ConfigDict(extra="forbid")

    def __init__(self, *values: object, **data: object) -> None:
        """Make a change, by position or by name."""
        names = [name for name in type(self).model_fields if name != "change"]
        if len(values) > len(names):
            msg = f"{type(self).__name__} takes {len(names)} values: {', '.join(names) or 'none'}"
            raise TypeError(msg)
        super().__init__(**dict(zip(names, values, strict=False)), **data)


class SetPermissionMode(_Change):
    """Set how calls are treated that no deny or ask rule covers."""

    change: Literal["set_permission_mode"] = "set_permission_mode"
    mode: PermissionMode


class AddRule(_Change):
    """Add a permission rule to the list that its behavior names."""

    change: Literal["add_rule"] = "add_rule"
    rule: PermissionRule


class RemoveRule(_Change):
    """Take a permission rule away, whatever its source."""

    change: Literal["remove_rule"] = "remove_rule"
    rule: PermissionRule


class SetContext(_Change):
    """Put other messages in the place of the context."""

    change: Literal["set_context"] = "set_context"
    messages: tuple[Message, ...]


class SetSummary(_Change):
    """Put another text in the place of the summary."""

    change: Literal["set_summary"] = "set_summary"
    text: Text


class SetActivatedGroups(_Change):
    """Say which tool groups are on: exactly these."""

    change: Literal["set_activated_groups"] = "set_activated_groups"
    names: Annotated[tuple[Text, ...], Field(max_length=1000)]


class SetPlanMode(_Change):
    """Switch plan mode."""

    change: Literal["set_plan_mode"] = "set_plan_mode"
    active: bool


class BeginTask(_Change):
    """Begin a task, with nothing of the one before."""

    change: Literal["begin_task"] = "begin_task"
    scope: Scope


class ReplaceTasks(_Change):
    """Put other todos in the place of the list."""

    change: Literal["replace_tasks"] = "replace_tasks"
    tasks: Annotated[tuple[Task, ...], Field(max_length=1000)]


class ProposeRequirement(_Change):
    """Add a candidate for a requirement."""

    change: Literal["propose_requirement"] = "propose_requirement"
    kind: RequirementKind
    text: Annotated[Text, Field(max_length=MAX_REQUIREMENT_TEXT)]
    source: Text | None = None


class DecideRequirement(_Change):
    """Confirm or reject a requirement."""

    change: Literal["decide_requirement"] = "decide_requirement"
    id: Text
    status: RequirementStatus
    decision: RequirementDecision


class SetSubjectVersion(_Change):
    """Say which version of the thing the task is about is the present one."""

    change: Literal["set_subject_version"] = "set_subject_version"
    v: Text


class InvalidateSubject(_Change):
    """Say that no version of the subject is the present one."""

    change: Literal["invalidate_subject"] = "invalidate_subject"


class RecordVerification(_Change):
    """Record what a verifier found."""

    change: Literal["record_verification"] = "record_verification"
    report: Verification


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
    if len(rule.rule_content or "") > MAX_CONTENT:
        msg = f"a rule's content has at most {MAX_CONTENT} characters"
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
