"""Commands: what may be asked of a session, as JSON objects on the wire, each known by one name."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError

from perdure.changes import MAX_CHANGES, Change
from perdure.contract import AfterStop
from perdure.errors import InvalidCommand
from perdure.messages import DataBlock, TextBlock
from perdure.state import explain
from perdure.values import CLEAN, Frozen, FrozenMap, JsonObject, JsonValue, Text, by_position, clean_text, parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_ID = 200
"""Characters of a turn or run id. It is part of activity ids, which operators read."""

MAX_NOTE = 2000
"""Characters of an actor, a reason or an attribute: notes for people, not places for documents."""


class OnBusy(StrEnum):
    """What a submit does when the session is busy."""

    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"
    STEER = "steer"
    LATEST = "latest"
    ROLLBACK = "rollback"


class Partial(StrEnum):
    """What becomes of a half-streamed answer when its turn is interrupted."""

    KEEP = "keep"
    DISCARD = "discard"


def _checked_id(value: str) -> str:
    if not value.strip():
        msg = "must not be blank"
        raise ValueError(msg)
    if len(value) > MAX_ID:
        msg = f"must have at most {MAX_ID} characters"
        raise ValueError(msg)
    return value


def _unaltered(value: object) -> object:
    if isinstance(value, str) and value != clean_text(value):
        msg = "has characters that no identifier may have"
        raise ValueError(msg)
    return value


def _blank_is_none(value: object) -> object:
    return None if isinstance(value, str) and not value.strip() else value


def _said(value: str) -> str:
    if not value.strip():
        msg = "must say why: it is blank"
        raise ValueError(msg)
    return value


def _few_attributes(attributes: FrozenMap[str]) -> FrozenMap[str]:
    size = sum(len(name.encode()) + len(value.encode()) for name, value in attributes.items())
    if size > MAX_ATTRIBUTES_BYTES:
        msg = f"must have at most {MAX_ATTRIBUTES_BYTES} bytes in all"
        raise ValueError(msg)
    return attributes


def _not_empty(blocks: tuple[TextBlock | DataBlock, ...]) -> tuple[TextBlock | DataBlock, ...]:
    if not any(isinstance(block, DataBlock) or block.text.strip() for block in blocks):
        msg = "must say something: it is empty"
        raise ValueError(msg)
    return blocks


def _text_as_blocks(value: object) -> object:
    return ({"type": "text", "text": value},) if isinstance(value, str) else value


Id: TypeAlias = Annotated[str, BeforeValidator(_unaltered), AfterValidator(_checked_id)]
OptionalId: TypeAlias = Annotated[Id | None, BeforeValidator(_blank_is_none)]
MAX_ATTRIBUTES_BYTES = 8 * 1024
"""All attributes of one turn. They travel with each of its operations, of which a step may have many."""

Note: TypeAlias = Annotated[str, Field(max_length=MAX_NOTE), CLEAN]
Reason: TypeAlias = Annotated[Note, AfterValidator(_said)]
Attributes: TypeAlias = Annotated[FrozenMap[Note], AfterValidator(_few_attributes)]
InputBlock: TypeAlias = Annotated[TextBlock | DataBlock, Field(discriminator="type")]
Input: TypeAlias = Annotated[tuple[InputBlock, ...], BeforeValidator(_text_as_blocks), AfterValidator(_not_empty)]


class Command(Frozen):
    """Base of the commands. `actor` says who asks, for the record; it grants nothing."""

    model_config = ConfigDict(extra="forbid")

    actor: Note | None = None


class SubmitTurn(Command):
    """Give the session something to do.

    `after_interrupt` and `after_failure` say whether the queue goes on after this turn; by default its agent says so.
    """

    input: Input
    turn_id: Id | None = None
    on_busy: OnBusy = OnBusy.ENQUEUE
    run_id: OptionalId = None
    attributes: Attributes = Field(default_factory=FrozenMap)
    after_interrupt: AfterStop | None = None
    after_failure: AfterStop | None = None
    wait: Literal["accepted", "settled"] = "accepted"


class Interrupt(Command):
    """Stop what runs. A `run_id` that is not the active one is refused."""

    run_id: OptionalId = None
    message: Note | None = None
    partial: Partial = Partial.KEEP


class ResumeTurn(Command):
    """Go on with a turn that was interrupted or has failed, in a new run."""

    turn_id: Id
    run_id: OptionalId = None


class CancelTurn(Command):
    """Have a turn be over for good, whether it waits, runs or could be resumed."""

    turn_id: Id


class Steer(Command):
    """Add input to the running turn. It is seen by its next model call."""

    input: Input
    run_id: OptionalId = None


class Inject(Command):
    """Add input that the next step of whatever turn comes will see. Starts nothing."""

    input: Input


class Pause(Command):
    """Let no further step begin."""

    reason: Note | None = None


class Unpause(Command):
    """Go on after a pause."""

    reason: Note | None = None


class Close(Command):
    """End the session; what runs or waits is cancelled."""

    reason: Note | None = None


class Decision(Frozen):
    """What a person decided of one call: whether it may run, with which arguments if not the model's, and why."""

    model_config = ConfigDict(extra="forbid")

    approve: bool
    arguments: JsonObject | None = None
    reason: Note | None = None

    if TYPE_CHECKING:

        def __init__(  # noqa: D107  # what a type checker should know
            self,
            approve: bool,  # noqa: FBT001  # public signature
            arguments: Mapping[str, object] | None = None,
            reason: str | None = None,
        ) -> None: ...
    else:

        def __init__(self, *given: object, **data: object) -> None:
            """Decide; the fields may be given by position, in their order."""
            super().__init__(**by_position(type(self), given), **data)


class Respond(Command):
    """Answer what a suspended turn waits for.

    An approval is answered by `approve`: for all calls at once, or call by call. Calls that were done outside are
    answered by `result` and, for those that failed, `errors`, both by call id.
    """

    request_id: Id
    approve: bool | FrozenMap[Decision] | None = None
    remember: bool = False
    reason: Note | None = None
    result: JsonObject | None = None
    errors: FrozenMap[Text] | None = None


class Settlement(Frozen):
    """What became of an operation: `happened` with a result, `did_not_happen`, or `unresolved`, for good."""

    model_config = ConfigDict(extra="forbid")

    outcome: Literal["happened", "did_not_happen", "unresolved"]
    result: JsonValue = None
    reason: Note | None = None


class Reconcile(Command):
    """Say what became of the operations whose outcome is unknown, by operation id: of all of them."""

    outcomes: FrozenMap[Settlement]
    reason: Reason


class UpdateState(Command):
    """Change the state: all changes or none. `expected_revision` is the one of the state that they are meant for."""

    changes: Annotated[tuple[Change, ...], Field(min_length=1, max_length=MAX_CHANGES)]
    expected_revision: int
    reason: Reason


class ClearContext(Command):
    """Forget what was said, for the model; the transcript stays. `when_idle` waits until no turn runs."""

    when_idle: bool = False


class Compact(Command):
    """Put a summary in the place of the older messages, before the next step."""


class Renew(Command):
    """Go on in a new run as soon as nothing is in flight: on the worker version that is current then."""


class WaitTurn(Command):
    """Wait until a turn is settled."""

    turn_id: Id


AnyCommand: TypeAlias = (
    SubmitTurn
    | Interrupt
    | ResumeTurn
    | CancelTurn
    | Steer
    | Inject
    | Respond
    | Reconcile
    | UpdateState
    | ClearContext
    | Compact
    | Pause
    | Unpause
    | Close
    | Renew
    | WaitTurn
)

SUBMIT_TURN = "submit_turn"
INTERRUPT = "interrupt"
RESUME_TURN = "resume_turn"
CANCEL_TURN = "cancel_turn"
STEER = "steer"
INJECT = "inject"
RESPOND = "respond"
RECONCILE = "reconcile"
UPDATE_STATE = "update_state"
CLEAR_CONTEXT = "clear_context"
COMPACT = "compact"
PAUSE = "pause"
UNPAUSE = "unpause"
CLOSE = "close"
RENEW = "renew"
WAIT_TURN = "wait_turn"

BY_NAME: Mapping[str, type[AnyCommand]] = {
    SUBMIT_TURN: SubmitTurn,
    INTERRUPT: Interrupt,
    RESUME_TURN: ResumeTurn,
    CANCEL_TURN: CancelTurn,
    STEER: Steer,
    INJECT: Inject,
    RESPOND: Respond,
    RECONCILE: Reconcile,
    UPDATE_STATE: UpdateState,
    CLEAR_CONTEXT: ClearContext,
    COMPACT: Compact,
    PAUSE: Pause,
    UNPAUSE: Unpause,
    CLOSE: Close,
    RENEW: Renew,
    WAIT_TURN: WaitTurn,
}
"""The commands by their name on the wire: each is an update of that name."""

SIGNALS = frozenset(BY_NAME) - {WAIT_TURN}
"""The commands that are also signals: all but the one that only waits."""


def read_command(name: str, data: bytes | str | JsonObject, *, by_signal: bool = False) -> AnyCommand:
    """Read a command from the wire.

    Raises:
        InvalidCommand: no such command, not JSON, or a field that is missing, unknown or of the wrong form. The
            message never repeats the input, which may be private or huge.
    """
    known = SIGNALS if by_signal else BY_NAME.keys()
    if name not in known:
        msg = f"there is no command {clean_text(name)[:MAX_ID]!r}; there are {', '.join(sorted(known))}"
        raise InvalidCommand(msg)
    try:
        return BY_NAME[name].model_validate(parse_json(data) if isinstance(data, bytes | str) else data)
    except ValueError as error:
        raise invalid(name, error) from None


def invalid(name: str, error: ValueError) -> InvalidCommand:
    """Return what makes a payload unusable, in words that never repeat the payload: it may be private, or huge."""
    if isinstance(error, ValidationError):
        return InvalidCommand(f"{name}: {explain(error)}")
    return InvalidCommand(f"{name}: the payload is not usable JSON: {str(error)[:MAX_ID]}")
