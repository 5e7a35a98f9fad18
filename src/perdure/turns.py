"""Turns and runs: the values of their life cycle, and how the last ones are remembered.

Nothing here moves a turn; `advance` does.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from perdure.commands import InputBlock, Partial
from perdure.contract import AfterStop, CallPlan, Mark
from perdure.messages import ToolResultBlock, Usage
from perdure.permissions import PermissionRule
from perdure.results import InteractionKind, Operation, RunView, TurnError, TurnStatus
from perdure.values import Frozen, FrozenMap, Text, canonical_json, digest

REMEMBERED_TURNS = 1000
"""How many turns a session knows by id, so that a repeated submit is recognised. Bounded, since sessions are not."""

FORGETTABLE = frozenset(status for status in TurnStatus if status.settled) - {TurnStatus.SUSPENDED}
"""A suspended turn is still the session's current one."""


class QueuedTurn(Frozen):
    """A turn that waits for its run."""

    turn_id: str
    run_id: str
    input: tuple[InputBlock, ...]
    attributes: FrozenMap[Text] = Field(default_factory=FrozenMap)
    ahead: bool = False
    """It took the place of the turn that it stopped: a parked queue does not hold it."""
    after_interrupt: AfterStop | None = None
    after_failure: AfterStop | None = None


class Joined(Frozen):
    """A submit that joined a running turn: its own turn id now means that turn."""

    turn_id: str
    into: str
    input_digest: str


class Aside(Frozen):
    """Input that waits for the next step: of one turn, which was steered by it, or of whatever turn comes."""

    message_id: str
    input: tuple[InputBlock, ...]
    turn_id: str | None = None


class TurnRecord(Frozen):
    """What a session remembers of a turn: enough to recognise it and to say what came of it, not what was said."""

    turn_id: str
    run_id: str
    input_digest: str
    status: TurnStatus = TurnStatus.QUEUED
    submitted_at: datetime
    actor: Text | None = None
    runs: tuple[RunView, ...] = ()
    steps: int = 0
    usage: Usage = Field(default_factory=Usage)
    error: TurnError | None = None


class Ask(Frozen):
    """A person must say whether a call may run. `remembered` are the rules that would answer for them next time."""

    reason: Text = ""
    safety: bool = False
    remembered: tuple[PermissionRule, ...] = ()


class PlannedCall(Frozen):
    """One tool call of a step: its plan, and how far it is. `edited` says that the arguments are a person's.

    `reruns` counts how often it was found not to have happened, and was handed out again.
    """

    index: int
    operation_id: str
    plan: CallPlan
    ask: Ask | None = None
    edited: bool = False
    started_at: datetime | None = None
    reruns: int = 0
    result: ToolResultBlock | None = None
    lost: Text | None = None

    @property
    def settled(self) -> bool:
        """Whether nothing more will be tried for this call: it has a result, or its outcome is unknown."""
        return self.result is not None or self.lost is not None

    @property
    def asking(self) -> bool:
        """Whether a person must say whether it may run."""
        return self.ask is not None and not self.settled

    @property
    def outside(self) -> bool:
        """Whether somebody outside is to carry it out, and has not yet."""
        return self.plan.external and self.ask is None and not self.settled


class Doubt(StrEnum):
    """How an operation whose outcome is unknown may be settled."""

    FLYING = "flying"
    """It is still under way: it settles by itself."""
    ASKING = "asking"
    """Its tool is being asked."""
    OPEN = "open"
    """Somebody must say."""


class Uncertain(Operation):
    """An operation whose outcome is unknown, with what its tool needs to find out."""

    doubt: Doubt = Doubt.OPEN
    plan: CallPlan | None = None
    run_id: str = ""
    attributes: FrozenMap[Text] = Field(default_factory=FrozenMap)


class LateResult(Frozen):
    """What became of a call after its turn had gone on without it. It takes its place before the next model call."""

    call_id: str
    result: ToolResultBlock


class Request(Frozen):
    """What a suspended turn waits for. Which calls it is about is to be seen from them."""

    request_id: str
    kind: InteractionKind
    asked_at: datetime
    expires_at: datetime | None = None
    remind_at: datetime | None = None
    reminders: int = 0


class Compaction(Frozen):
    """Older messages are being put into a summary: the first `upto` of them. `started` when a model was asked."""

    operation_id: str
    upto: Mark
    since: datetime
    started: bool = False
    actor: Text | None = None


class Due(Frozen):
    """A step has ended, or none has begun: the next one is due. Only a pause keeps a turn here."""

    kind: Literal["due"] = "due"
    since: datetime


class Thinking(Frozen):
    """The step's model call is wanted; `started` when it was handed out."""

    kind: Literal["thinking"] = "thinking"
    operation_id: str
    since: datetime
    started: bool = False


class Acting(Frozen):
    """The step's tool calls are wanted."""

    kind: Literal["acting"] = "acting"
    calls: tuple[PlannedCall, ...]
    since: datetime


Phase: TypeAlias = Annotated[Due | Thinking | Acting, Field(discriminator="kind")]


class StopReason(StrEnum):
    """Why a run is being stopped."""

    INTERRUPT = "interrupt"
    TIMEOUT = "timeout"
    CANCEL = "cancel"
    CLOSE = "close"

    @property
    def final(self) -> bool:
        """Whether the turn can't go on after this."""
        return self in (StopReason.CANCEL, StopReason.CLOSE)


class Stop(Frozen):
    """A run is to stop. What was asked, so that the turn can be closed as asked once everything has settled."""

    reason: StopReason
    message: Text | None = None
    partial: Partial = Partial.KEEP
    actor: Text | None = None
    at: datetime | None = None


class CurrentTurn(Frozen):
    """The turn that runs, or that is suspended: its record's status says which. Also what is kept of an unfinished one.

    `step` is the one that is under way or was the last; it counts through all runs, of which this one began with
    `first_step`. `clock_from` is when the run's time began, later by as long as it was paused. `effectful` says that a
    tool was handed out that is not read-only, or that nobody knows. `message_ids` are the messages that the turn has
    put into the context. `requests` is what a suspended turn waits for; `asked` counts all that there ever were.
    """

    turn_id: str
    run_id: str
    first_run_id: str = ""
    attributes: FrozenMap[Text] = Field(default_factory=FrozenMap)
    step: int = 0
    first_step: int = 1
    phase: Phase
    stop: Stop | None = None
    suspended: bool = False
    requests: tuple[Request, ...] = ()
    asked: int = 0
    clock_from: datetime | None = None
    after_interrupt: AfterStop | None = None
    after_failure: AfterStop | None = None
    effectful: bool = True
    message_ids: tuple[str, ...] = ()

    @property
    def calls(self) -> tuple[PlannedCall, ...]:
        """The tool calls of the present step."""
        return self.phase.calls if isinstance(self.phase, Acting) else ()


class Asker(Frozen):
    """Somebody asked for something that has to wait until it can be done."""

    actor: Text | None = None


class Pause(Frozen):
    """A session is paused: since when, why, and by whom."""

    at: datetime
    reason: Text | None = None
    actor: Text | None = None


def input_digest(blocks: tuple[InputBlock, ...]) -> str:
    """Return what two submits of the same turn id are compared by: same input, same digest."""
    return digest(canonical_json([block.model_dump(mode="json") for block in blocks]))


def remember(
    records: tuple[TurnRecord, ...], record: TurnRecord, needed: frozenset[str | None] = frozenset()
) -> tuple[TurnRecord, ...]:
    """Add a record, forgetting the oldest ones above `REMEMBERED_TURNS` that nothing depends on any more."""
    records = (*records, record)
    excess = len(records) - REMEMBERED_TURNS
    if excess <= 0:
        return records
    free = [old.turn_id for old in records if old.status in FORGETTABLE and old.turn_id not in needed]
    forgotten = set(free[:excess])
    return tuple(old for old in records if old.turn_id not in forgotten)
