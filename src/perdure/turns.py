"""Turns and runs: the values of their life cycle, and how the last ones are remembered.

Nothing here moves a turn; `advance` does.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from perdure.commands import InputBlock, Partial
from perdure.contract import CallPlan
from perdure.messages import ToolResultBlock, Usage
from perdure.results import RunView, TurnError, TurnStatus
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


class PlannedCall(Frozen):
    """One tool call of a step: its plan, and how far it is."""

    index: int
    operation_id: str
    plan: CallPlan
    started_at: datetime | None = None
    result: ToolResultBlock | None = None
    lost: Text | None = None

    @property
    def settled(self) -> bool:
        """Whether nothing more will be tried for this call: it has a result, or its outcome is unknown."""
        return self.result is not None or self.lost is not None


class Thinking(Frozen):
    """The step's model call is wanted."""

    kind: Literal["thinking"] = "thinking"
    operation_id: str
    since: datetime


class Acting(Frozen):
    """The step's tool calls are wanted."""

    kind: Literal["acting"] = "acting"
    calls: tuple[PlannedCall, ...]
    since: datetime


Phase: TypeAlias = Annotated[Thinking | Acting, Field(discriminator="kind")]


class StopReason(StrEnum):
    """Why a run is being stopped."""

    INTERRUPT = "interrupt"
    CLOSE = "close"


class Stop(Frozen):
    """A run is to stop. What was asked, so that the turn can be closed as asked once everything has settled."""

    reason: StopReason
    message: Text | None = None
    partial: Partial = Partial.KEEP


class CurrentTurn(Frozen):
    """The turn that runs, or that is suspended: its record's status says which."""

    turn_id: str
    run_id: str
    first_run_id: str = ""
    attributes: FrozenMap[Text] = Field(default_factory=FrozenMap)
    step: int = 1
    phase: Phase
    stop: Stop | None = None
    suspended: bool = False


def input_digest(blocks: tuple[InputBlock, ...]) -> str:
    """Return what two submits of the same turn id are compared by: same input, same digest."""
    return digest(canonical_json([block.model_dump(mode="json") for block in blocks]))


def remember(records: tuple[TurnRecord, ...], record: TurnRecord) -> tuple[TurnRecord, ...]:
    """Add a record, forgetting the oldest ones above `REMEMBERED_TURNS` that nothing depends on any more."""
    records = (*records, record)
    excess = len(records) - REMEMBERED_TURNS
    if excess <= 0:
        return records
    forgotten = {old.turn_id for old in [old for old in records if old.status in FORGETTABLE][:excess]}
    return tuple(old for old in records if old.turn_id not in forgotten)
