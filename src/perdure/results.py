"""What the outside is told: receipts, results and views. All immutable, all JSON."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field

from perdure.identity import SessionKey
from perdure.messages import Block, Usage
from perdure.operations import Effect
from perdure.permissions import PermissionRule
from perdure.values import EMPTY, Frozen, JsonObject, JsonRecord, Text


class TurnStatus(StrEnum):
    """Where a turn is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    SUSPENDED = "suspended"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"

    @property
    def settled(self) -> bool:
        """Whether nothing happens on this turn until somebody acts."""
        return self not in (TurnStatus.QUEUED, TurnStatus.RUNNING)

    @property
    def final(self) -> bool:
        """Whether nothing can ever happen on this turn again."""
        return self in (TurnStatus.COMPLETED, TurnStatus.CANCELLED, TurnStatus.REJECTED)


class SessionStatus(StrEnum):
    """What a session needs from people, if anything."""

    ACTIVE = "active"
    NEEDS_APPROVAL = "needs_approval"
    NEEDS_RESULT = "needs_result"
    NEEDS_RECONCILIATION = "needs_reconciliation"
    PAUSED = "paused"
    CLOSED = "closed"


Disposition = Literal["started", "queued", "steered", "duplicate", "settled", "stopping", "waiting"]


class Receipt(Frozen):
    """A command was accepted and is durable.

    `run_id` is the run that carries the turn out, now or when its place in the queue comes; `position` is that place,
    from 1, or None when the turn does not wait. Input that joined a running turn (`steered`) names that turn. Injected
    input starts no turn: its receipt names the turn that will see it (`steered`), or none (an empty `turn_id`,
    `queued`) as long as none runs. After an answer that was not the last one, the turn is still `waiting`.
    """

    turn_id: str
    run_id: str | None = None
    disposition: Disposition
    position: int | None = None


class SteerReceipt(Frozen):
    """The running turn was steered: the model call of `step` will see it."""

    turn_id: str
    run_id: str
    step: int


class PauseReceipt(Frozen):
    """Whether the session is paused now. `turn_id` is the turn whose step is still being finished, or that is held."""

    paused: bool
    turn_id: str | None = None


class InterruptReceipt(Frozen):
    """Whether something was interrupted, and what. `stopped` is false only if it was still stopping at the answer."""

    interrupted: bool
    turn_id: str | None = None
    run_id: str | None = None
    stopped: bool = True


class ChangeReceipt(Frozen):
    """The state was changed, or is `pending` and will be when no turn runs. `revision` is the present one."""

    revision: int
    pending: bool = False


class RenewReceipt(Frozen):
    """The session goes on in a new run: at once, or when what is `in_flight`, if anything is, has ended."""

    in_flight: bool = False


class CloseReceipt(Frozen):
    """The session is closed; `cancelled` are the turns that were running, suspended or queued."""

    cancelled: tuple[str, ...] = ()


class TurnError(Frozen):
    """Why a turn failed. `type` is stable and short; `message` is for people."""

    type: str
    message: Text


class TurnResult(Frozen):
    """What came of a turn, once it is settled. `output` is the text of its last assistant message."""

    turn_id: str
    run_id: str | None = None
    status: TurnStatus
    output: Text = ""
    error: TurnError | None = None
    steps: int = 0
    usage: Usage = Field(default_factory=Usage)


class RunView(Frozen):
    """One execution of a turn."""

    run_id: str
    started_at: datetime
    ended_at: datetime | None = None
    outcome: TurnStatus | None = None


class TurnView(Frozen):
    """A turn as it stands now.

    An `archived` one ended so long ago that the session knows its status only; the rest of it is in the archive.
    """

    turn_id: str
    status: TurnStatus
    input: tuple[Block, ...] = ()
    output: Text = ""
    error: TurnError | None = None
    runs: tuple[RunView, ...] = ()
    steps: int = 0
    usage: Usage = Field(default_factory=Usage)
    submitted_at: datetime
    submitted_by: Text | None = None
    archived: bool = False

    def result(self) -> TurnResult:
        """Return the view as a result."""
        return TurnResult(
            turn_id=self.turn_id,
            run_id=self.runs[-1].run_id if self.runs else None,
            status=self.status,
            output=self.output,
            error=self.error,
            steps=self.steps,
            usage=self.usage,
        )


class TurnAnswer(Frozen):
    """What a command that waits for a turn answers: the turn.

    `detached` says to ask again, by the turn's id: it has not settled, or what it has said is in the archive.
    """

    receipt: Receipt | None = None
    result: TurnResult
    detached: bool = False


class Operation(Frozen):
    """One tool call whose outcome matters. `step` counts from 1, `index` from 0.

    What has not happened until `over_by` may still happen: nobody could stop the attempt, or the worker that made it
    was lost.
    """

    operation_id: str
    turn_id: str
    step: int
    index: int
    tool: Text
    arguments: JsonObject = EMPTY
    effect: Effect
    started_at: datetime | None = None
    over_by: datetime | None = None


InteractionKind = Literal["approval", "external", "reconciliation"]


class InteractionCall(Frozen):
    """One call that an interaction is about. `suggested_rules` are what approving and remembering would write."""

    call_id: str
    tool: Text
    arguments: JsonObject = EMPTY
    subject: Text | None = None
    suggested_rules: tuple[PermissionRule, ...] = ()
    reason: Text = ""
    operation_id: str | None = None


class Interaction(Frozen):
    """Something that a suspended turn waits for. `reminders` counts how often it was brought up again."""

    request_id: str
    kind: InteractionKind
    turn_id: str
    calls: tuple[InteractionCall, ...] = ()
    asked_at: datetime
    expires_at: datetime | None = None
    reminders: int = 0


class Answered(Frozen):
    """A request that was answered: what was decided, in words, and by whom."""

    request_id: str
    at: datetime
    words: Text
    actor: Text | None = None

    def __str__(self) -> str:
        """Return what is told to who comes later."""
        who = "" if self.actor is None else f" by {self.actor!r}"
        return f"request {self.request_id!r} was answered before, at {self.at.isoformat()}{who}: {self.words}"


class ActiveRun(Frozen):
    """The run that is being executed. `doing` is for people: the model, or which tools; stopping; held by a pause.

    `actor` submitted the turn, `stopped_by` asked to stop it.
    """

    turn_id: str
    run_id: str
    step: int
    doing: Text
    since: datetime
    actor: Text | None = None
    stopped_by: Text | None = None


class Stopped(Frozen):
    """The turn that can be resumed: how it ended, and who asked for that."""

    turn_id: str
    status: TurnStatus
    ended_at: datetime
    stopped_by: Text | None = None
    message: Text | None = None
    error: TurnError | None = None


class QueueEntry(Frozen):
    """A turn that waits; `text` is shortened."""

    turn_id: str
    text: Text
    submitted_at: datetime
    actor: Text | None = None


class Rejection(Frozen):
    """A command that came by signal and was refused."""

    at: datetime
    command: Text
    error: Text
    message: Text


class SessionView(Frozen):
    """A session at a glance.

    `answered` are the last requests that were answered. `unfinished` is the turn that was interrupted or failed last,
    or that is suspended; `stopped` says more of it when it can be resumed. `parked` is the turn that holds the queue
    until it is resumed or cancelled. `waiting_inputs` counts what was steered or injected and not seen yet. `clearing`
    says that the context will be cleared when no turn runs, `compacting` that older messages become a summary. `unset`
    are the settings that the agent's definition still has to give, with the first turn.
    """

    status: SessionStatus
    revision: int
    active: ActiveRun | None = None
    queue: tuple[QueueEntry, ...] = ()
    interactions: tuple[Interaction, ...] = ()
    answered: tuple[Answered, ...] = ()
    uncertain: tuple[Operation, ...] = ()
    unfinished: str | None = None
    stopped: Stopped | None = None
    parked: str | None = None
    rejections: tuple[Rejection, ...] = ()
    rejected_count: int = 0
    paused: bool = False
    pause_reason: Text | None = None
    paused_by: Text | None = None
    waiting_inputs: int = 0
    clearing: bool = False
    compacting: bool = False
    usage: Usage = Field(default_factory=Usage)
    unset: tuple[Text, ...] = ()
    messages: int = 0
    turns: int = 0
    history_length: int = 0
    history_size: int = 0


EntryKind = Literal[
    "input",
    "assistant",
    "tool_call",
    "tool_result",
    "decision",
    "interaction",
    "answer",
    "turn",
    "run",
    "command",
    "change",
    "summary",
    "error",
]


class TranscriptEntry(Frozen):
    """One thing that was said, done or decided. `seq` counts from 1 and is never reused in a session."""

    seq: int
    at: datetime
    kind: EntryKind
    turn_id: str | None = None
    run_id: str | None = None
    actor: Text | None = None
    data: JsonRecord = EMPTY


class SessionInfo(Frozen):
    """One session in a list."""

    key: SessionKey
    status: SessionStatus
    started_at: datetime
    closed_at: datetime | None = None


class KnownSession(Frozen):
    """A session that something is kept of: by Temporal, which has so many `runs`, by the archive, or in files."""

    key: SessionKey
    open: bool = False
    runs: int = 0
    archived: bool = False
    files: int = 0


class ForgetReceipt(Frozen):
    """What went when a user was forgotten.

    `ended` counts the sessions that were open; `entries`, `checkpoints` and `files` what the archive and the storage
    had; `deleted` the runs that Temporal has agreed to delete, which takes it a moment. It holds `held` more, until its
    retention is over: it does not delete for us.
    """

    sessions: tuple[SessionKey, ...] = ()
    ended: int = 0
    entries: int = 0
    checkpoints: int = 0
    files: int = 0
    deleted: int = 0
    held: int = 0
