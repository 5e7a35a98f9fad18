"""How a session comes into being: by its first submit, or by being created with a state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from temporalio.client import WithStartWorkflowOperation
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from perdure import calls, commands, contract
from perdure.errors import ContextTooLarge, SessionExists
from perdure.identity import attribute_value
from perdure.results import SessionStatus
from perdure.storage import stores
from perdure.values import json_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from temporalio.client import Client

    from perdure.calls import Model
    from perdure.commands import SubmitTurn
    from perdure.contract import SessionStart
    from perdure.identity import SessionKey
    from perdure.values import Frozen

REOPEN_FIRST = 0.1
REOPEN_LAST = 2.0
REOPEN_IN_ALL = 70.0
"""Seconds between two knocks of a submit that meets a session in the middle of closing; they grow. A session ends when
its last tool has: one that takes longer than all of this is waited for by whoever submits again."""


def check_size(client: Client, payload: Frozen) -> None:
    """Check that a payload can be carried.

    Raises:
        ContextTooLarge: it can't, where nothing is stored outside of history.
    """
    if stores(client.data_converter):
        return
    size = json_bytes(payload)
    if size > contract.MAX_INLINE_BYTES:
        msg = (
            f"{size} bytes are too large for history, which takes {contract.MAX_INLINE_BYTES}; "
            "set PERDURE_STORAGE, for workers and clients alike, to keep large payloads outside"
        )
        raise ContextTooLarge(msg)


def knocks() -> Iterator[float]:
    """Yield the pauses between two knocks."""
    pause, waited = REOPEN_FIRST, 0.0
    while waited < REOPEN_IN_ALL:
        yield pause
        waited, pause = waited + pause, min(pause * 1.5, REOPEN_LAST)


async def submit_with_start(
    client: Client, key: SessionKey, task_queue: str, command: SubmitTurn, answer: type[Model], *, existed: bool
) -> Model:
    """Send a submit to a session that is started if it is not there; `existed` if it was, and has ended.

    Raises:
        SessionClosed: it is there, and is being closed; or it ended before it had answered.
    """
    start_operation: WithStartWorkflowOperation[object, object] = WithStartWorkflowOperation(
        contract.WORKFLOW_TYPE,
        {"existed": True} if existed else {},
        id=key.workflow_id,
        task_queue=task_queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        search_attributes=search_attributes(key),
        static_summary=summary(key),
        static_details=details(key),
    )
    return await calls.update_with_start(client, start_operation, commands.SUBMIT_TURN, command, answer)


async def start(client: Client, key: SessionKey, task_queue: str, given: SessionStart) -> None:
    """Start a session's workflow with this input.

    Raises:
        SessionExists: it is there already.
        ContextTooLarge: the input can't be carried without external storage.
    """
    check_size(client, given)
    try:
        await client.start_workflow(
            contract.WORKFLOW_TYPE,
            calls.plain(given),
            id=key.workflow_id,
            task_queue=task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            search_attributes=search_attributes(key),
            static_summary=summary(key),
            static_details=details(key),
        )
    except WorkflowAlreadyStartedError as error:
        msg = f"session {key.workflow_id} is there already"
        raise SessionExists(msg) from error
    except RPCError as error:
        calls.raise_for(error, key.workflow_id)


def search_attributes(key: SessionKey) -> TypedSearchAttributes:
    """Return the search attributes that a session starts with."""
    values = {
        contract.ATTRIBUTE_AGENT: key.agent_id,
        contract.ATTRIBUTE_USER: key.user_id,
        contract.ATTRIBUTE_SESSION: key.session_id,
        contract.ATTRIBUTE_STATUS: SessionStatus.ACTIVE.value,
    }
    return TypedSearchAttributes(
        [
            SearchAttributePair(SearchAttributeKey.for_keyword(name), attribute_value(value))
            for name, value in values.items()
            if value is not None
        ]
    )


def summary(key: SessionKey) -> str:
    """Return a session in one line, for the Temporal UI."""
    return f"{key.agent_id} · {key.user_id or 'anonymous'} · {key.session_id}"


def details(key: SessionKey) -> str:
    """Return who a session belongs to, for the Temporal UI."""
    return f"- agent: {key.agent_id}\n- user: {key.user_id or '(anonymous)'}\n- session: {key.session_id}"
