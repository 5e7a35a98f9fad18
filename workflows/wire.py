"""Raw payloads, as anybody may send them: signals, updates and queries are read here and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from perdure import contract
from perdure.commands import AnyCommand, read_command
from perdure.errors import InvalidCommand, PerdureError
from perdure.state import explain
from perdure.values import Frozen, parse_json

if TYPE_CHECKING:
    from collections.abc import Sequence

NOTHING = RawValue(Payload(metadata={"encoding": b"binary/null"}))
"""What a handler is given when nothing was sent. The SDK wants a parameter typed `RawValue` and nothing else."""

WORKFLOW_INPUT = "the workflow's input"
"""What the input is called in errors. It comes from a session's own earlier run, and is worth waiting for: not being
able to retrieve it fails the workflow task, which is tried again, and not the session."""

JSON_ENCODINGS = frozenset({b"json/plain", b"json/protobuf"})
NULL_ENCODING = b"binary/null"

Model = TypeVar("Model", bound=Frozen)


def payload_json(name: str, raws: Sequence[RawValue]) -> bytes:
    """Return the JSON of the one payload that a message carries; `{}` when it carries none.

    Raises:
        InvalidCommand: several payloads, or one that is not JSON.
    """
    if not raws:
        return b"{}"
    if len(raws) > 1:
        msg = f"{name} takes one JSON object, and {len(raws)} values came"
        raise InvalidCommand(msg)
    payload = raws[0].payload
    encoding = payload.metadata.get("encoding", b"")
    if encoding == NULL_ENCODING:
        return b"{}"
    if encoding == contract.UNAVAILABLE and name == WORKFLOW_INPUT:
        msg = (
            "the session's own input can't be retrieved from external storage; is this worker's PERDURE_STORAGE right?"
        )
        raise RuntimeError(msg)
    if encoding not in JSON_ENCODINGS:
        msg = f"{name} takes a JSON object, and a payload with encoding {encoding[:40]!r} came"
        raise InvalidCommand(msg)
    return payload.data


def command(name: str, raws: Sequence[RawValue], *, by_signal: bool = False) -> AnyCommand:
    """Read a command.

    Raises:
        InvalidCommand: it can't be understood.
    """
    return read_command(name, payload_json(name, raws), by_signal=by_signal)


def read(model: type[Model], name: str, raw: RawValue) -> Model:
    """Read the argument of a query, or the workflow's input.

    Raises:
        InvalidCommand: it can't be understood.
    """
    data = payload_json(name, (raw,))
    try:
        return model.model_validate(parse_json(data))
    except ValidationError as error:
        msg = f"{name}: {explain(error)}"
        raise InvalidCommand(msg) from None
    except ValueError as error:
        msg = f"{name}: the payload is not usable JSON: {error}"
        raise InvalidCommand(msg) from None


def failure(error: PerdureError) -> ApplicationError:
    """Return an error in the form that travels: its class name as type, final."""
    return ApplicationError(str(error), type=type(error).__name__, non_retryable=True)
