"""What a workflow's histories refer to in external storage, as far as Temporal still has them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, cast

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.service import RPCError, RPCStatusCode

if TYPE_CHECKING:
    from temporalio.api.history.v1 import HistoryEvent
    from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
    from temporalio.client import Client

NAME = re.compile(rb"[0-9a-f]{16}/[0-9a-f]{32}/[0-9a-f]{64}")
"""A stored payload's name, wherever it stands."""

SEARCHABLE = re.compile(r"[A-Za-z0-9._~:%/@+= -]+")
"""Workflow ids that visibility finds on every store; those of sessions are among them."""

LEGACY_REFERENCE = b"json/external-storage-reference"
REFERENCE_MARK = "__temporal_external_storage_reference"
"""How the SDK tells a reference from other payloads, besides by the size of what it stands for."""


class UnreadableReferenceError(Exception):
    """A history refers to something in storage that can't be told, or can't be looked up."""


async def references(client: Client, workflow_id: str) -> frozenset[bytes] | None:
    """Return all names of stored payloads in a workflow's histories; None when Temporal knows no such workflow.

    Every run is read that visibility lists, that is the present one, or that one of those came from. A name counts
    wherever it stands.

    Raises:
        UnreadableReferenceError: there is a reference that says nothing to us, an encrypted one for instance.
        RPCError: the server does not answer.
    """
    if not SEARCHABLE.fullmatch(workflow_id):
        msg = "its workflow id can't be searched for"
        raise UnreadableReferenceError(msg)
    waiting, seen = await _known_runs(client, workflow_id), set[str]()
    names, known = set[bytes](), False
    while waiting:
        run_id = waiting.pop()
        seen.add(run_id)
        found = await _of_run(client, workflow_id, run_id)
        if found is not None:  # visibility may list for a while what is gone
            known = True
            names |= found[0]
            waiting |= found[1] - seen
    return frozenset(names) if known else None


async def _known_runs(client: Client, workflow_id: str) -> set[str]:
    """Return the runs that visibility lists, which may lag behind, and the present one, which is always right."""
    present = await _described(client, workflow_id)
    listed = {found.run_id async for found in client.list_workflows(f"WorkflowId = '{workflow_id}'")}
    return listed if present is None else {*listed, present.workflow_execution_info.execution.run_id}


async def _described(
    client: Client, workflow_id: str, run_id: str | None = None
) -> DescribeWorkflowExecutionResponse | None:
    try:
        return (await client.get_workflow_handle(workflow_id, run_id=run_id).describe()).raw_description
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise


async def _of_run(client: Client, workflow_id: str, run_id: str) -> tuple[set[bytes], set[str]] | None:
    """Return the names in a run, and the runs that it is linked to; None for a run that Temporal has let go."""
    names, linked = set[bytes](), set[str]()
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    try:
        async for event in handle.fetch_history_events():
            names |= names_in(event)
            linked |= set(_linked(event))
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise
    description = await _described(client, workflow_id, run_id)
    if description is not None:  # what activities that run now have said last is not in history yet
        names |= names_in(description)
    return names, linked


def names_in(message: Message) -> frozenset[bytes]:
    """Return the names of stored payloads in a message of Temporal's.

    Raises:
        UnreadableReferenceError: there is a reference that says nothing to us.
    """
    for payload in payloads_in(message):
        _check_readable(payload)
    return frozenset(NAME.findall(message.SerializeToString()))


def _check_readable(payload: Payload) -> None:
    encoding = payload.metadata.get("encoding")
    if not (payload.external_payloads or REFERENCE_MARK in payload.metadata or encoding == LEGACY_REFERENCE):
        return
    try:
        said = json.loads(payload.data)
        driver = said.get("driverName") or said.get("driver_name")
    except (ValueError, AttributeError):
        driver = None
    if not driver:
        msg = f"a payload refers to something in storage, but can't be read; its encoding is {encoding!r}"
        raise UnreadableReferenceError(msg)


def payloads_in(message: Message) -> Iterator[Payload]:
    """Yield the payloads in a message, however deep."""
    if isinstance(message, Payload):
        yield message
        return
    for _, value in message.ListFields():
        for each in _messages(value):
            yield from payloads_in(each)


def _messages(value: object) -> Iterable[Message]:
    """Return the messages that a field holds: one, several, or the values of a map."""
    match value:
        case Message():
            return (value,)
        case str() | bytes():
            return ()
        case Mapping():
            held = cast("Mapping[object, object]", value).values()
        case Iterable():
            held = cast("Iterable[object]", value)
        case _:
            return ()
    return (each for each in held if isinstance(each, Message))


def _linked(event: HistoryEvent) -> Iterator[str]:
    """Yield the runs of the same workflow that an event tells of."""
    started = event.workflow_execution_started_event_attributes
    reset = event.workflow_task_failed_event_attributes
    found = (
        *(started.continued_execution_run_id, started.first_execution_run_id, started.original_execution_run_id),
        *(reset.base_run_id, reset.new_run_id),
        event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id,
        event.workflow_execution_completed_event_attributes.new_execution_run_id,
        event.workflow_execution_failed_event_attributes.new_execution_run_id,
        event.workflow_execution_timed_out_event_attributes.new_execution_run_id,
    )
    yield from filter(None, found)
