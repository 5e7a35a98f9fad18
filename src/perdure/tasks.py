"""The session's todos and the contract of its task, as they stand in the state's JSON.

Todos, requirements, verification results and the completion of the whole task are four different things; none is
ever derived from another, from the user's text or from a tool's text.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from perdure.values import EMPTY, Frozen, JsonObject, Text, by_position

MAX_REQUIREMENTS = 64
"""A contract with more is not one that anybody has read."""

MAX_REQUIREMENT_TEXT = 2000
"""Characters of one requirement."""


class TaskState(StrEnum):
    """How far a todo is."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class Task(Frozen):
    """One todo."""

    subject: Text
    description: Text = ""
    metadata: JsonObject = EMPTY
    created_at: Text | None = None
    state: TaskState = TaskState.PENDING
    id: Text
    owner: Text | None = None
    blocks: tuple[Text, ...] = ()
    blocked_by: tuple[Text, ...] = ()


class Scope(Frozen):
    """What the whole task is, and where that stands written."""

    task_id: Text = Field(alias="taskId")
    objective: Text
    source_ref: Text | None = Field(default=None, alias="sourceRef")


class RequirementKind(StrEnum):
    """What sort of requirement it is."""

    CONSTRAINT = "CONSTRAINT"
    ACCEPTANCE_CRITERION = "ACCEPTANCE_CRITERION"


class RequirementStatus(StrEnum):
    """What somebody with authority decided of it."""

    CANDIDATE = "CANDIDATE"
    CONFIRMED = "CONFIRMED"
    REJECTED = "REJECTED"


class Authority(StrEnum):
    """On whose authority a requirement was decided."""

    USER = "USER"
    CALLER = "CALLER"


class RequirementDecision(Frozen):
    """Who decided, and where that stands written."""

    authority: Authority
    source_ref: Text | None = Field(default=None, alias="sourceRef")

    if TYPE_CHECKING:

        def __init__(self, authority: Authority | str, source_ref: str | None = None) -> None:  # noqa: D107  # what a type checker should know
            ...
    else:

        def __init__(self, *given: object, **data: object) -> None:
            """Decide; the fields may be given by position, in their order."""
            super().__init__(**by_position(type(self), given), **data)


class Requirement(Frozen):
    """Something that the task's result must respect or show."""

    id: Text
    kind: RequirementKind
    text: Annotated[Text, Field(max_length=MAX_REQUIREMENT_TEXT)]
    proposed_source_ref: Text | None = Field(default=None, alias="proposedSourceRef")
    status: RequirementStatus = RequirementStatus.CANDIDATE
    decision: RequirementDecision | None = None


class VerificationOutcome(StrEnum):
    """What a verifier found."""

    PASSED = "PASSED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    ERROR = "ERROR"


class Binding(Frozen):
    """What a verification was made of: a task, its contract and its subject, each in a version."""

    task_id: Text | None = Field(default=None, alias="taskId")
    contract_version: int = Field(default=0, alias="contractVersion")
    subject_version: Text | None = Field(default=None, alias="subjectVersion")


class Verification(Frozen):
    """One finding on one requirement."""

    id: Text
    requirement_id: Text = Field(alias="requirementId")
    action_id: Text | None = Field(default=None, alias="actionId")
    verifier_id: Text | None = Field(default=None, alias="verifierId")
    outcome: VerificationOutcome
    reason: Text | None = None
    binding: Binding
    recorded_at: Text | None = Field(default=None, alias="recordedAt")


class TasksContext(Frozen):
    """The session's todos and the contract of its task."""

    tasks: tuple[Task, ...] = ()
    requirements: Annotated[tuple[Requirement, ...], Field(max_length=MAX_REQUIREMENTS)] = ()
    revision: int = 0
    scope: Scope | None = None
    contract_version: int = Field(default=0, alias="contractVersion")
    subject_version: Text | None = Field(default=None, alias="subjectVersion")
    verifications: tuple[Verification, ...] = ()
