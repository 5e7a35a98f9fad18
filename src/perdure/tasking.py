"""How the contract of a task changes. Each function returns the tasks after, or refuses and changes nothing.

What is checked, what is verified and what is done are never inferred from each other: a requirement is confirmed by
`decide_requirement` alone, and verified by `record_verification` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from perdure.errors import InvalidCommand, StaleRevision
from perdure.tasks import (
    MAX_REQUIREMENT_TEXT,
    MAX_REQUIREMENTS,
    Binding,
    Requirement,
    RequirementKind,
    RequirementStatus,
    TasksContext,
)
from perdure.values import Frozen, json_bytes

if TYPE_CHECKING:
    from perdure.tasks import RequirementDecision, Scope, Verification

MAX_REFERENCE = 2000
"""Characters of what names something elsewhere: a source, a version."""

MAX_RECORD_BYTES = 16 * 1024
"""A scope, a todo, a decision or a report as JSON. The contract is read whole, and travels with the session."""

M = TypeVar("M", bound=Frozen)


def _with(model: M, /, **fields: object) -> M:
    return model.model_copy(update=fields)


def revised(tasks: TasksContext, /, **fields: object) -> TasksContext:
    """Return the tasks with some fields changed, one revision on."""
    return _with(tasks, revision=tasks.revision + 1, **fields)


def _renegotiated(tasks: TasksContext, /, **fields: object) -> TasksContext:
    """A change of the contract: what was verified before was verified of another one."""
    return revised(tasks, contract_version=tasks.contract_version + 1, **fields)


def check_size(what: str, record: Frozen) -> None:
    """Refuse a record that is too large.

    Raises:
        InvalidCommand: it has more than `MAX_RECORD_BYTES` as JSON.
    """
    if json_bytes(record) > MAX_RECORD_BYTES:
        msg = f"{what} has more than {MAX_RECORD_BYTES} bytes; keep long text elsewhere and say where it is"
        raise InvalidCommand(msg)


def check_said(what: str, text: str, limit: int) -> None:
    """Refuse a text that says nothing, or too much. The words never repeat it.

    Raises:
        InvalidCommand: it is blank, or has more than `limit` characters.
    """
    if not text.strip():
        msg = f"{what} is blank; give it words"
        raise InvalidCommand(msg)
    if len(text) > limit:
        msg = f"{what} has {len(text)} characters; {limit} are the most"
        raise InvalidCommand(msg)


def begin_task(tasks: TasksContext, scope: Scope) -> TasksContext:
    """Begin a task, with nothing of the one before. The same scope again changes nothing.

    Raises:
        InvalidCommand: the scope is blank or too large, or its task was begun with another objective or source.
    """
    if tasks.scope == scope:
        return tasks
    check_said("the task's id", scope.task_id, MAX_REFERENCE)
    check_size("the scope", scope)
    check_said("the task's objective", scope.objective, MAX_RECORD_BYTES)
    if tasks.scope is not None and tasks.scope.task_id == scope.task_id:
        msg = "the task was begun with another objective or source; begin a new one under an id of its own"
        raise InvalidCommand(msg)
    return _renegotiated(tasks, scope=scope, tasks=(), requirements=(), verifications=(), subject_version=None)


def propose_requirement(
    tasks: TasksContext, kind: RequirementKind, text: str, source: str | None, requirement_id: str
) -> TasksContext:
    """Add a candidate. The same kind, text and source again changes nothing; a blank source is none.

    Raises:
        InvalidCommand: it is blank or too long, or there are as many as there may be.
    """
    source = source if source is not None and source.strip() else None
    check_said("the requirement", text, MAX_REQUIREMENT_TEXT)
    if source is not None:
        check_said("the source", source, MAX_REFERENCE)
    if any((one.kind, one.text, one.proposed_source_ref) == (kind, text, source) for one in tasks.requirements):
        return tasks
    if len(tasks.requirements) >= MAX_REQUIREMENTS:
        msg = f"there are {MAX_REQUIREMENTS} requirements, which is the most; begin a task of its own for the rest"
        raise InvalidCommand(msg)
    one = Requirement(id=requirement_id, kind=kind, text=text, proposedSourceRef=source)
    return _with(tasks, requirements=(*tasks.requirements, one))


def decide_requirement(
    tasks: TasksContext, requirement_id: str, status: RequirementStatus, decision: RequirementDecision
) -> TasksContext:
    """Confirm or reject a requirement. Deciding the same again changes nothing.

    Raises:
        InvalidCommand: there is no such requirement, the status is no decision, or the decision is too large.
    """
    if status is RequirementStatus.CANDIDATE:
        msg = "a requirement is decided as CONFIRMED or REJECTED; CANDIDATE is what it was before"
        raise InvalidCommand(msg)
    check_size("the decision", decision)
    one = _requirement(tasks, requirement_id)
    if (one.status, one.decision) == (status, decision):
        return tasks
    decided = _with(one, status=status, decision=decision)
    return _renegotiated(tasks, requirements=tuple(decided if each is one else each for each in tasks.requirements))


def _requirement(tasks: TasksContext, requirement_id: str) -> Requirement:
    found = next((one for one in tasks.requirements if one.id == requirement_id), None)
    if found is None:
        msg = f"there is no requirement of this id among the {len(tasks.requirements)}; the state lists them"
        raise InvalidCommand(msg)
    return found


def set_subject_version(tasks: TasksContext, version: str) -> TasksContext:
    """Say which version of the thing the task is about is the present one. The same again changes nothing.

    Raises:
        InvalidCommand: no task was begun, or the version is blank or too long.
    """
    if not version.strip():
        msg = "the version is blank; invalidate the subject if there is none"
        raise InvalidCommand(msg)
    check_said("the version", version, MAX_REFERENCE)
    if tasks.scope is None:
        msg = "no task was begun; begin one before its subject has a version"
        raise InvalidCommand(msg)
    return tasks if tasks.subject_version == version else _renegotiated(tasks, subject_version=version)


def invalidate_subject(tasks: TasksContext) -> TasksContext:
    """Say that no version of the subject is the present one. Whatever was verified is stale then, each time."""
    return _renegotiated(tasks, subject_version=None)


def binding(tasks: TasksContext) -> Binding:
    """Return what a verification must be bound to in order to count now."""
    return Binding(
        taskId=None if tasks.scope is None else tasks.scope.task_id,
        contractVersion=tasks.contract_version,
        subjectVersion=tasks.subject_version,
    )


def is_current(tasks: TasksContext, verification: Verification) -> bool:
    """Tell whether a verification is of the present task, contract and subject. A stale one says nothing of them."""
    return verification.binding == binding(tasks)


def record_verification(tasks: TasksContext, report: Verification) -> TasksContext:
    """Record a finding; the newest one of a requirement counts.

    Raises:
        StaleRevision: it was made of another task, contract or subject.
        InvalidCommand: the requirement is no confirmed acceptance criterion, or the report is blank or too large.
    """
    if not is_current(tasks, report):
        msg = (
            f"the verification is bound to another task, contract or subject than the present ones (the contract is at "
            f"version {tasks.contract_version}); read the state and verify what stands there now"
        )
        raise StaleRevision(msg)
    check_said("the report's id", report.id, MAX_REFERENCE)
    check_size("the report", report)
    one = _requirement(tasks, report.requirement_id)
    if (one.kind, one.status) != (RequirementKind.ACCEPTANCE_CRITERION, RequirementStatus.CONFIRMED):
        msg = f"this is a {one.status.value} {one.kind.value}; only a CONFIRMED ACCEPTANCE_CRITERION can be verified"
        raise InvalidCommand(msg)
    others = tuple(each for each in tasks.verifications if each.requirement_id != report.requirement_id)
    return revised(tasks, verifications=(*others, report))
