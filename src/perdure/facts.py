"""Facts: what has happened to a session, each with its time.

`advance` takes them in; nothing else changes a session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from perdure.commands import InputBlock, OnBusy, Partial

if TYPE_CHECKING:
    from datetime import datetime

    from perdure.changes import Change
    from perdure.commands import Respond, Settlement
    from perdure.contract import AfterStop, Finding, Limits, ModelAnswer
    from perdure.messages import ToolResultBlock
    from perdure.results import TurnError
    from perdure.values import FrozenMap


@dataclass(frozen=True, slots=True)
class TurnSubmitted:
    """A turn was accepted."""

    at: datetime
    turn_id: str
    run_id: str
    input: tuple[InputBlock, ...]
    on_busy: OnBusy
    attributes: FrozenMap[str]
    actor: str | None = None
    after_interrupt: AfterStop | None = None
    after_failure: AfterStop | None = None


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    """Somebody asked to go on with the unfinished turn, in a new run."""

    at: datetime
    turn_id: str
    run_id: str
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Somebody asked that a turn be over for good."""

    at: datetime
    turn_id: str
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class InputSteered:
    """Input came for the running turn."""

    at: datetime
    input: tuple[InputBlock, ...]
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class InputInjected:
    """Input came for the next step of whatever turn comes."""

    at: datetime
    input: tuple[InputBlock, ...]
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class RequestAnswered:
    """Somebody answered what a suspended turn waits for. `run_id` is the run in which it goes on, if it does."""

    at: datetime
    run_id: str
    answer: Respond


@dataclass(frozen=True, slots=True)
class OutcomesStated:
    """Somebody said what became of the operations whose outcome was unknown."""

    at: datetime
    run_id: str
    outcomes: FrozenMap[Settlement]
    reason: str
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class StateChanged:
    """Somebody changed the state."""

    at: datetime
    changes: tuple[Change, ...]
    reason: str
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class ClearRequested:
    """Somebody asked to forget what was said, at once or when no turn runs."""

    at: datetime
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class CompactionRequested:
    """Somebody asked for a summary in the place of the older messages."""

    at: datetime
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class PauseRequested:
    """Somebody asked that no further step begin."""

    at: datetime
    reason: str | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class UnpauseRequested:
    """Somebody asked to go on."""

    at: datetime
    reason: str | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class InterruptRequested:
    """Somebody asked to stop what runs."""

    at: datetime
    run_id: str | None = None
    message: str | None = None
    partial: Partial = Partial.KEEP
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class CloseRequested:
    """Somebody asked to end the session; `for_good` by cancelling its workflow, which must end then, whoever comes."""

    at: datetime
    reason: str | None = None
    actor: str | None = None
    for_good: bool = False


@dataclass(frozen=True, slots=True)
class CommandRejected:
    """A command came by signal and could not be accepted."""

    at: datetime
    command: str
    error: str
    message: str


@dataclass(frozen=True, slots=True)
class ModelStarted:
    """A model call was handed out."""

    at: datetime
    operation_id: str


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """A model call gave a whole answer, or, when it was cancelled, what it had streamed until then."""

    at: datetime
    operation_id: str
    answer: ModelAnswer


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """A model call failed for good, or was cancelled and left nothing. `limits` are the agent's, if it got that far."""

    at: datetime
    operation_id: str
    error: TurnError
    limits: Limits | None = None


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool call was handed out. From here on its effect may have happened."""

    at: datetime
    operation_id: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool call ended with a definite result."""

    at: datetime
    operation_id: str
    result: ToolResultBlock


@dataclass(frozen=True, slots=True)
class ToolLost:
    """Nobody can tell whether a tool call took effect. `over` says that the attempt has surely ended."""

    at: datetime
    operation_id: str
    why: str
    over: bool = True


@dataclass(frozen=True, slots=True)
class FoundOut:
    """A tool has said what became of one of its calls, or that it can't tell."""

    at: datetime
    operation_id: str
    finding: Finding


@dataclass(frozen=True, slots=True)
class GraceExpired:
    """The time ran out that a stopped operation had to settle."""

    at: datetime
    operation_id: str


@dataclass(frozen=True, slots=True)
class TimeExpired:
    """The time ran out that a run may take, or that a request may wait; `about` is the id of either."""

    at: datetime
    about: str


@dataclass(frozen=True, slots=True)
class ArchiveWanted:
    """The session is about to begin a new run: what it has to archive is to go there first, if it can."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Archived:
    """The archive has all entries up to `upto`, and a `checkpoint` of the closed session if it was to have one.

    `kept` is False where there is no archive.
    """

    at: datetime
    upto: int
    kept: bool = True
    checkpoint: bool = False


@dataclass(frozen=True, slots=True)
class ArchiveFailed:
    """The archive could not be reached."""

    at: datetime


Fact: TypeAlias = (
    TurnSubmitted
    | ResumeRequested
    | CancelRequested
    | InputSteered
    | InputInjected
    | RequestAnswered
    | OutcomesStated
    | StateChanged
    | ClearRequested
    | CompactionRequested
    | PauseRequested
    | UnpauseRequested
    | InterruptRequested
    | CloseRequested
    | CommandRejected
    | ModelStarted
    | ModelAnswered
    | ModelFailed
    | ToolStarted
    | ToolFinished
    | ToolLost
    | FoundOut
    | GraceExpired
    | TimeExpired
    | ArchiveWanted
    | Archived
    | ArchiveFailed
)
