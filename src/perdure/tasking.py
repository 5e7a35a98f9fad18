"""How todos and the contract of a task change. Each function returns the tasks after, or refuses and changes nothing.

What is checked, what is verified and what is done are never inferred from each other: a requirement is confirmed by
`decide_requirement` alone, and verified by `record_verification` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from perdure.errors import InvalidCommand, StaleRevision
from perdure.tasks import (
    MAX_REQUIREMENTS,
    Binding,
    Requirement,
    RequirementKind,
    RequirementStatus,
    Task,
    TasksContext,
    TaskState,
)
from perdure.values import Frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.tasks import RequirementDecision, Scope, Verification

M = TypeVar("M", bound=Frozen)


def _with(model: M, /, **fields: object) -> M:
    return model.model_copy(update=fields)


def _revised(tasks: TasksContext, /, **fields: object) -> TasksContext:
    return _with(tasks, revision=tasks.revision + 1, **fields)


def _renegotiated(tasks: TasksContext, /, **fields: object) -> TasksContext:
    """A change of the contract: what was verified before was verified of another one."""
    return _revised(tasks, contract_version=tasks.contract_version + 1, **fields)


def begin_task(tasks: TasksContext, scope: Scope) -> TasksContext:
    """Begin a task, with nothing of the one before. The same scope again changes nothing.

    Raises:
        InvalidCommand: the task has been begun with another objective.
    """
    if tasks.scope == scope:
        return tasks
    if tasks.scope is not None and tasks.scope.task_id == scope.task_id:
        msg = f"task {scope.task_id!r} has another objective already; begin another task under an id of its own"
        raise InvalidCommand(msg)
    return _renegotiated(tasks, scope=scope, tasks=(), requirements=(), verifications=(), subject_version=None)


def replace_tasks(tasks: TasksContext, todos: Sequence[Task]) -> TasksContext:
    """Put other todos in the place of the list.

    Raises:
        InvalidCommand: one is blank, two are in progress, or an id stands twice.
    """
    _check_todos(todos)
    return _revised(tasks, tasks=tuple(todos))


def _check_todos(todos: Sequence[Task]) -> None:
    if any(not todo.subject.strip() for todo in todos):
        msg = "a todo must say what is to be done: one is blank"
        raise InvalidCommand(msg)
    if sum(todo.state is TaskState.IN_PROGRESS for todo in todos) > 1:
        msg = "one todo may be in progress at a time; leave the others pending"
        raise InvalidCommand(msg)
    if len({todo.id for todo in todos}) != len(todos):
        msg = "two todos have the same id; give each its own"
        raise InvalidCommand(msg)


def propose_requirement(
    tasks: TasksContext, kind: RequirementKind, text: str, source: str | None, requirement_id: str
) -> TasksContext:
    """Add a candidate. The same kind, text and source again changes nothing.

    Raises:
        InvalidCommand: it is blank, or there are as many as there may be.
    """
    if not text.strip():
        msg = "a requirement must say something: it is blank"
        raise InvalidCommand(msg)
    proposed = (kind, text, source)
    if any((one.kind, one.text, one.proposed_source_ref) == proposed for one in tasks.requirements):
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
        InvalidCommand: there is no such requirement, or the status is no decision.
    """
    if status is RequirementStatus.CANDIDATE:
        msg = "a requirement is decided as CONFIRMED or REJECTED; CANDIDATE is what it was before"
        raise InvalidCommand(msg)
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
        InvalidCommand: no task was begun, or the version is blank.
    """
    if not version.strip():
        msg = "the version is blank; invalidate the subject if there is none"
        raise InvalidCommand(msg)
    if tasks.scope is None:
        msg = "no task was begun; begin one before its subject has a version"
        raise InvalidCommand(msg)
    return tasks if tasks.subject_version == version else _renegotiated(tasks, subject_version=version)


def invalidate_subject(tasks: TasksContext) -> TasksContext:
    """Say that no version of the subject is the present one."""
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
        InvalidCommand: the requirement is no confirmed acceptance criterion.
    """
    if report.binding != binding(tasks):
        msg = f"the verification is bound to something else than the present {binding(tasks)!r}; verify that"
        raise StaleRevision(msg)
    one = _requirement(tasks, report.requirement_id)
    if (one.kind, one.status) != (RequirementKind.ACCEPTANCE_CRITERION, RequirementStatus.CONFIRMED):
        msg = "only a confirmed acceptance criterion is verified; this one is " + f"{one.status.value} {one.kind.value}"
        raise InvalidCommand(msg)
    others = tuple(each for each in tasks.verifications if each.requirement_id != report.requirement_id)
    return _revised(tasks, verifications=(*others, report))
