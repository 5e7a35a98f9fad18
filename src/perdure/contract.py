"""Names and payloads on the wire between a session's workflow, its activities and its clients.

Each name exists once, here. Renaming one strands the sessions that run: they would ask for what nobody serves.
Commands have their names in `commands`, errors in `errors`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from pydantic import Field

from perdure.judging import Opinion
from perdure.messages import Message, ToolResultBlock, Usage
from perdure.models import Purpose
from perdure.operations import Effect
from perdure.permissions import PermissionContext, PermissionRule
from perdure.results import TranscriptEntry
from perdure.state import AgentState
from perdure.values import EMPTY, Frozen, FrozenMap, JsonObject, JsonRecord, JsonValue, Text

WORKFLOW_TYPE = "AgentSession"
TASK_QUEUE = "perdure"
MODEL_ACTIVITY = "perdure.model"
INQUIRY_ACTIVITY = "perdure.reconcile"
ARCHIVE_ACTIVITY = "perdure.archive"
RESTORE_ACTIVITY = "perdure.restore"

AGENT_STATE = "agent_state"
SESSION_VIEW = "session_view"
TURN = "turn"
CONTEXT_PAGE = "context_page"
TRANSCRIPT_PAGE = "transcript_page"
OPERATIONS = "operations"
CHECKPOINT = "checkpoint"

NOT_OPEN_YET = "the session is being opened, with what the archive has of it; ask again"
"""What queries are answered meanwhile. It takes a moment, or as long as the archive is down."""

ATTRIBUTE_AGENT = "PerdureAgent"
ATTRIBUTE_USER = "PerdureUser"
ATTRIBUTE_SESSION = "PerdureSession"
ATTRIBUTE_STATUS = "PerdureStatus"
SEARCH_ATTRIBUTES = (ATTRIBUTE_AGENT, ATTRIBUTE_USER, ATTRIBUTE_SESSION, ATTRIBUTE_STATUS)
"""All of type Keyword."""

SLICE = 250_000
"""Characters of a checkpoint that travel at once: at most 1 MB, in whatever language."""

PAGE_BYTES = 1_000_000
"""A page of context or transcript stays below this, unless one entry alone is larger. Temporal warns at 512 KB and
refuses an answer above 4 MB."""


MAX_INLINE_BYTES = 1_900_000
"""The most that a payload may weigh where nothing is stored outside of history. Temporal refuses one above 2 MB, and
what can't be accepted or completed is tried again, for ever."""


UNAVAILABLE = b"perdure/unavailable"
"""Encoding of what stands in for a payload that can't be retrieved. Nothing reads it, so validation refuses it."""

RETRIEVED = "perdure/retrieved"
"""Metadata of a payload that was stored outside: what stood in its place was small."""


class Mark(Frozen):
    """A place in a context: how many messages, and the digest of everything up to there."""

    position: int
    digest: str


AfterStop: TypeAlias = Literal["continue", "park"]
"""Whether the queue goes on after a turn that was interrupted or has failed, or waits until that one is resumed or
cancelled."""


class Renewal(Frozen):
    """When a session begins a new run, which carries all of it and leaves its history behind; by the worker's settings.

    A worker that has not got a session in memory replays the history of its run, so that this bounds what waking costs.
    """

    events: int = 2_000
    """Between two steps, from so many events on. Temporal ends a workflow at 51,200, and tells to renew at 4,096."""
    size: int = 8 * 1024 * 1024
    """The same, in bytes of history. Temporal ends a workflow at 50 MB."""
    idle_events: int = 250
    """When the session falls idle, from so many events on: some twenty turns, which a worker replays in a moment."""
    idle_factor: int = 4
    """But not before the history is so many times as large as what would be carried: a new run has that in its history
    once more, which must stay small beside the rest."""
    idle_most: int = 500
    """When the session falls idle, from so many events on in any case."""


class Limits(Frozen):
    """What an agent's definition says about turns and queue; it comes with whatever a model call ends with."""

    max_steps: int = 32
    queue_limit: int = 100
    turn_timeout_seconds: float | None = None
    after_interrupt: AfterStop = "continue"
    after_failure: AfterStop = "continue"
    approval_timeout_seconds: float | None = None
    approval_reminder_seconds: float | None = None
    compact_over: int | None = None
    show_requirements: bool = False
    show_verifications: bool = False
    carry_bytes: int | None = MAX_INLINE_BYTES
    """How large a session may be to continue as a new run; None where large payloads are stored outside."""
    renewal: Renewal = Field(default_factory=Renewal)


class ModelCall(Frozen):
    """Input of the model activity. The context is `head`; `delta` follows the messages at `base`.

    `delta` is None when it is too large to be worth sending: the worker reads it from the session instead. `purpose`
    `summary` asks for a summary of the whole of it. `projections` are told to the model beside the context.
    `activated_groups` is None as long as the session takes the agent's own; with `defaults_wanted` the answer is to
    bring them along.
    """

    purpose: Purpose = Purpose.ANSWER
    agent_id: str
    session_id: str
    user_id: str | None = None
    turn_id: str
    run_id: str
    step: int
    operation_id: str
    attributes: FrozenMap[Text] = Field(default_factory=FrozenMap)
    base: Mark
    head: Mark
    delta: tuple[Message, ...] | None = ()
    activated_groups: tuple[str, ...] | None = None
    projections: tuple[Text, ...] = ()
    defaults_wanted: bool = False
    clock_from: datetime | None = None
    """When the run's time began, on the server's clock: the agent may say how long it may take."""


class CallPlan(Frozen):
    """What a session must know of a tool call to carry it out: all that is left of the tool's definition.

    `subject` and `opinion` are what permissions are decided by. An `external` call is carried out by somebody outside,
    a `builtin` one by the session itself, which knows the agent's `meta_groups` from here. A `reconcilable` one has a
    tool that can tell what became of it.
    """

    call_id: str
    tool: str
    arguments: JsonObject = EMPTY
    effect: Effect = Effect.ONCE
    timeout_seconds: float = 60
    heartbeat_seconds: float = 30
    attempts: int = 1
    task_queue: str | None = None
    subject: Text | None = None
    opinion: Opinion | None = None
    external: bool = False
    builtin: bool = False
    meta_groups: tuple[str, ...] = ()
    reconcilable: bool = False
    summary: Text = ""
    refusal: Text | None = None


class Defaults(Frozen):
    """What an agent's definition says of a new session."""

    permissions: PermissionContext = Field(default_factory=PermissionContext)
    activated_groups: tuple[str, ...] = ()


class ModelAnswer(Frozen):
    """Result of the model activity: the assistant's message, and how to carry out each of its calls.

    `partial` marks what was streamed before the call was cancelled.
    """

    message: Message
    plans: tuple[CallPlan, ...] = ()
    limits: Limits = Field(default_factory=Limits)
    usage: Usage = Field(default_factory=Usage)
    partial: bool = False
    defaults: Defaults | None = None


class ToolInvocation(Frozen):
    """Input of a tool's activity, whose type is the tool's name.

    A person may have `edited` the arguments: then they are checked again, `deny_rules` among the rest.
    """

    agent_id: str
    session_id: str
    user_id: str | None = None
    turn_id: str
    run_id: str
    step: int
    index: int
    operation_id: str
    call_id: str
    tool: str
    arguments: JsonObject = EMPTY
    effect: Effect = Effect.ONCE
    attempts: int = 1
    attributes: FrozenMap[Text] = Field(default_factory=FrozenMap)
    edited: bool = False
    deny_rules: tuple[PermissionRule, ...] = ()


class Inquiry(Frozen):
    """Input of the activity that asks a tool what became of one of its calls, named by `invocation`.

    `over_by` is when the lost attempt has surely ended: before that, what has not happened may still happen.
    """

    invocation: ToolInvocation
    over_by: datetime | None = None


class Finding(Frozen):
    """What a tool has found out about one of its calls: the answer to an inquiry."""

    outcome: Literal["happened", "did_not_happen", "unknown"]
    result: ToolResultBlock | None = None
    why: Text = ""


class ToolAnswer(Frozen):
    """Result of a tool's activity: a definite result, good or bad."""

    result: ToolResultBlock


Setting: TypeAlias = Literal["permissions", "groups"]
"""What an agent's definition says of a new session, where nobody has said otherwise."""


class SessionStart(Frozen):
    """The workflow's input; every field may be missing, so that `{}` starts a session.

    `carried` is a whole session from the run before, and `ways` names what this run does in a newer way from its start.
    `seed` is the state that a new session begins with, and `permissions` its permissions, in place of its agent's.
    `unset` are the settings that the seed does not decide, which the agent's definition gives with the first turn.
    `existed` says that Temporal knows of an earlier run: the archive must be asked before this one begins.
    """

    carried: JsonRecord | None = None
    ways: tuple[Text, ...] = ()
    seed: AgentState | None = None
    permissions: PermissionContext | None = None
    existed: bool = False
    unset: tuple[Setting, ...] | None = None


class PageRequest(Frozen):
    """Which page: what follows position `after` (messages) or sequence number `after` (transcript)."""

    after: int = Field(default=0, ge=0)
    digest: str | None = None
    limit: int = Field(default=10_000, ge=1)


class ContextPage(Frozen):
    """Part of a context. `start` is where it begins: 0 when the asked digest was not the session's own."""

    start: int
    summary: Text = ""
    messages: tuple[Message, ...] = ()
    head: Mark


class TranscriptPage(Frozen):
    """Part of a transcript, as far as the session still has it.

    `last` is the newest sequence number there is. Entries up to `archived` are in the archive, from where they are read
    when the session has let go of them: when the first of `entries` does not follow what was asked for.
    """

    entries: tuple[TranscriptEntry, ...] = ()
    last: int = 0
    archived: int = 0


class ArchiveCall(Frozen):
    """Input of the activity that brings entries behind `after`, up to `upto`, to the archive: it reads them itself.

    With `checkpoint` the session is closed, and the whole of it is kept too.
    """

    after: int
    upto: int
    checkpoint: bool = False


class ArchiveAnswer(Frozen):
    """The archive has all entries up to `upto`; `kept` is False where there is no archive."""

    upto: int
    kept: bool = True


class Slice(Frozen):
    """Which part of a long text: what follows the first `after` characters."""

    after: int = Field(default=0, ge=0)


class CheckpointSlice(Frozen):
    """Part of a closed session as JSON, of `total` characters; `seq` is its last entry."""

    text: Text = ""
    total: int = 0
    seq: int = 0


class Restored(Frozen):
    """Part of what the archive has of a session that was closed: its checkpoint, if there is one, in slices.

    `last_seq` is the last entry that the archive has of the session.
    """

    checkpoint: CheckpointSlice | None = None
    last_seq: int = 0


class TurnRequest(Frozen):
    """Which turn."""

    turn_id: str


class StateRequest(Frozen):
    """Whether the messages are wanted too; without them a state is small, whatever was said."""

    context: bool = True


class WantedOperations(Frozen):
    """The operations that are to run: what is not among them, or not any more, must not be begun."""

    operation_ids: tuple[str, ...] = ()


class Closed(Frozen):
    """The workflow's result."""

    status: Literal["closed"] = "closed"
    reason: Text | None = None
    turns: int = 0
    data: JsonValue = None


ERROR_UNCERTAIN = "OperationUncertain"
"""Failure type of a tool whose effect may have happened."""

NOT_OVER = "not over"
"""Detail of an uncertain failure whose attempt may still be under way, since nobody could stop it."""

ERROR_NOT_STARTED = "NotStarted"
"""Failure type of a tool call that ended before the tool was begun. Whatever else a `once` call fails with leaves open
what has happened: its definite errors are results."""

ERROR_UNWANTED = "Unwanted"
"""Failure type of an operation that a worker took up after the session had given it up. It was not begun."""

TURN_TIMEOUT = "turn_timeout"
"""Error type of a turn that took longer than its agent allows."""

ERROR_UNKNOWN_AGENT = "UnknownAgent"
"""Failure type of a model call that reached a worker without the session's agent."""

ERROR_MODEL = "ModelError"
"""Failure type of a model call that its provider refused or failed."""
