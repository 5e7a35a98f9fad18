"""Calls to a session's workflow: commands and queries over the wire, and Temporal's errors as ours.

Everything travels as plain JSON and is read here, so that a client with any JSON converter will do.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar, cast

from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure import contract, errors
from perdure.errors import (
    ContextTooLarge,
    InvalidCommand,
    PerdureError,
    ServerUnavailable,
    SessionClosed,
    SessionNotFound,
    SetupRequired,
)
from perdure.values import Frozen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

BUSY_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5)
"""Seconds between attempts of a query that the server has no room for: it buffers few for one workflow at a time."""

ENDED_MEANWHILE = "AcceptedUpdateCompletedWorkflow"
"""The server's failure type of an accepted update whose workflow was ended, by a termination for example."""

NOT_TAKEN = "UnprocessedUpdate"
"""The server's failure type of an update that no worker has looked at, since its workflow task was lost."""


TASK_LOST = "unexpected workflow task failure"
"""What the server says when it could not bring an update before a worker, since a workflow task failed."""

NEVER_BEGAN = "closed before WorkflowTaskStarted"
"""What the server says of a query to a session that was ended before any worker had seen it."""


NO_REPLAY = "TMPRL1100"
"""What the SDK says of a history that does not replay on the worker's code."""


GONE = ("Failed decoding arguments", contract.UNAVAILABLE.decode(), "can't be retrieved from external storage")
"""What the SDK, a command and a session's start say when one replays without what it has stored outside of history."""


class PayloadsGone(SetupRequired):
    """What the session has stored outside of history can't be read where it is replayed."""


class NotOpenYet(ServerUnavailable):
    """The session is being opened: it can be read in a moment."""


class UpdateNotTaken(ServerUnavailable):
    """No worker has looked at the update: it was neither accepted nor refused, and may be sent again."""


Handle = WorkflowHandle[object, object]
Model = TypeVar("Model", bound=Frozen)


async def query(handle: Handle, name: str, request: Frozen | None, answer: type[Model]) -> Model | None:
    """Ask a session, which changes nothing and leaves no event. None where the session answers null.

    Raises:
        SessionNotFound: there is no such session.
        ServerUnavailable: nobody answers.
        InvalidCommand: the session can't answer; the message is its own.
    """
    args = [] if request is None else [plain(request)]
    raw = await _with_room(lambda: _query_once(handle, name, args), handle.id)
    return _read(raw, answer)


def _read(raw: RawValue, answer: type[Model]) -> Model | None:
    """Read an answer; None for null.

    Raises:
        SetupRequired: it lies in external storage, and this client can't read that.
    """
    if raw.payload.metadata.get("encoding") == contract.UNAVAILABLE:
        msg = "the answer lies in external storage that this client can't read; set PERDURE_STORAGE as the workers do"
        raise SetupRequired(msg)
    if not raw.payload.data or raw.payload.data == b"null":
        return None
    return answer.model_validate_json(raw.payload.data)


def _required(value: Model | None, name: str) -> Model:
    if value is None:
        msg = f"the session gave no answer to {name}"
        raise ServerUnavailable(msg)
    return value


async def _with_room(call: Callable[[], Awaitable[RawValue]], workflow_id: str) -> RawValue:
    """Make a call, again while the server has no room for it: it buffers few for one workflow at a time."""
    last: PerdureError | None = None
    for pause in BUSY_PAUSES:
        try:
            return await call()
        except (UpdateNotTaken, NotOpenYet) as error:
            last = error
            await asyncio.sleep(pause)
        except RPCError as error:
            if error.status is not RPCStatusCode.RESOURCE_EXHAUSTED and not _task_lost(error):
                raise_for(error, workflow_id)
            await asyncio.sleep(pause)
    if last is not None:
        raise last
    msg = f"session {workflow_id} is asked more than it can answer; ask less often"
    raise ServerUnavailable(msg)


def _task_lost(error: RPCError) -> bool:
    """Tell an update whose workflow task was lost before it was accepted: it can be sent again, under its id."""
    return error.status is RPCStatusCode.FAILED_PRECONDITION and TASK_LOST in str(error)


async def _query_once(handle: Handle, name: str, args: Sequence[object]) -> RawValue:
    try:
        return cast("RawValue", await handle.query(name, args=args, result_type=RawValue))
    except WorkflowQueryFailedError as error:
        if NO_REPLAY in str(error):
            msg = f"the session's worker can't go on with it: run `perdure replay --from-server` ({error})"
            raise ServerUnavailable(msg) from error
        if any(words in str(error) for words in GONE):
            msg = (
                f"what session {handle.id} has stored outside of history is not there any more, or its worker can't "
                "read it: set PERDURE_STORAGE for all workers and clients alike"
            )
            raise PayloadsGone(msg) from error
        if contract.NOT_OPEN_YET in str(error):
            msg = f"session {handle.id} waits for the archive, which has what it was before; is it down?"
            raise NotOpenYet(msg) from error
        raise InvalidCommand(str(error)) from error


class _Updatable(Protocol):
    """What we use of a workflow handle; the SDK's own overloads are only partly typed."""

    async def execute_update(self, update: str, arg: object, *, id: str, result_type: type) -> object: ...  # noqa: A002  # the SDK's name


class _Starting(Protocol):
    """What we use of a client; the SDK's own overloads are only partly typed."""

    async def execute_update_with_start_workflow(
        self, update: str, arg: object, *, start_workflow_operation: object, result_type: type
    ) -> object: ...


async def update(handle: Handle, name: str, command: Frozen, answer: type[Model]) -> Model:
    """Send a command and return its answer.

    Raises:
        PerdureError: the session refused it, there is none, or nobody answers.
    """
    update_id = uuid.uuid4().hex  # one for all attempts, so that the server knows them for one

    async def send() -> RawValue:
        updatable = cast("_Updatable", handle)
        return cast(
            "RawValue", await updatable.execute_update(name, plain(command), id=update_id, result_type=RawValue)
        )

    return _required(_read(await _with_room(lambda: _sent(send()), handle.id), answer), name)


async def _sent(call: Awaitable[RawValue]) -> RawValue:
    """Await an update, with the SDK's errors as ours."""
    try:
        return await call
    except WorkflowUpdateFailedError as error:
        raise from_failure(error) from error
    except WorkflowUpdateRPCTimeoutOrCancelledError as error:
        raise _interrupted(error) from error


async def update_with_start(
    client: Client,
    start: WithStartWorkflowOperation[object, object],
    name: str,
    command: Frozen,
    answer: type[Model],
) -> Model:
    """Send a command to a session that is started if it is not there.

    Raises:
        PerdureError: the session refused it, the server lacks something, or nobody answers.
    """

    async def send() -> RawValue:
        return cast(
            "RawValue",
            await cast("_Starting", client).execute_update_with_start_workflow(
                name, plain(command), start_workflow_operation=start, result_type=RawValue
            ),
        )

    try:
        raw = await _sent(send())
    except RPCError as error:
        if _task_lost(error):
            msg = "no worker has looked at the command; send it again"
            raise UpdateNotTaken(msg) from error
        raise_for(error)
    return _required(_read(raw, answer), name)


def plain(model: Frozen) -> Mapping[str, object]:
    """Return a model as plain JSON, as any converter takes it."""
    return cast("Mapping[str, object]", model.model_dump(mode="json"))


def from_failure(error: WorkflowUpdateFailedError) -> PerdureError:
    """Return the error that a session refused a command with."""
    cause = error.cause
    if isinstance(cause, ApplicationError):
        if cause.type == ENDED_MEANWHILE:
            msg = f"the session ended before it answered; look up what became of the turn by its id ({cause.message})"
            return SessionClosed(msg)
        if cause.type == NOT_TAKEN:
            return UpdateNotTaken("no worker has looked at the command; send it again")
        kind = errors.BY_NAME.get(cause.type or "", PerdureError)
        return kind(cause.message)
    return PerdureError(str(cause))


def _interrupted(error: WorkflowUpdateRPCTimeoutOrCancelledError) -> BaseException:
    """Tell a cancelled caller from a server that took too long: the SDK raises the same error for both."""
    if isinstance(error.__cause__, asyncio.CancelledError):
        return asyncio.CancelledError()
    return ServerUnavailable("nobody answered in time; is a worker running on the session's task queue?")


def raise_for(error: BaseException, workflow_id: str = "of this key") -> NoReturn:
    """Raise what a failed call means.

    Raises:
        SessionNotFound: there is no such session, or it is closed and takes no commands.
        SetupRequired: the server lacks the search attributes.
        ContextTooLarge: what was sent is too large for the server.
        ServerUnavailable: anything else: nobody answers, or in time.
    """
    message = str(error)
    status = error.status if isinstance(error, RPCError) else None
    if status is RPCStatusCode.NOT_FOUND and message.lower().startswith("namespace"):
        msg = f"{message}; set TEMPORAL_NAMESPACE to one that the server has"
        raise ServerUnavailable(msg) from error
    if status is RPCStatusCode.NOT_FOUND or NEVER_BEGAN in message:
        msg = f"there is no open session {workflow_id}"
        raise SessionNotFound(msg) from error
    if status is RPCStatusCode.INVALID_ARGUMENT and "search attribute" in message.lower():
        msg = f"the Temporal server lacks perdure's search attributes: run `perdure setup` ({message})"
        raise SetupRequired(msg) from error
    if "no poller" in message.lower():
        msg = f"no worker serves session {workflow_id}: start one with `perdure worker MODULE:APP` ({message})"
        raise ServerUnavailable(msg) from error
    if ("exceeds" in message and ("size" in message or "limit" in message)) or "larger than max" in message:
        msg = (
            f"what was sent is too large for the server; set PERDURE_STORAGE to keep large payloads outside ({message})"
        )
        raise ContextTooLarge(msg) from error
    msg = f"Temporal did not carry out the call: {message or type(error).__name__}"
    raise ServerUnavailable(msg) from error
