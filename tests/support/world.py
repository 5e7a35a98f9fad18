"""Worlds: an app served on the server that tests share, by a task queue of its own."""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause

from perdure import testing
from perdure.connection import connect, data_converter
from worker.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from temporalio.api.history.v1 import HistoryEvent

    from perdure import App, SessionHandle
    from worker.embedded import EmbeddedServer

AT_ONCE = {"history.workflowIdReuseMinimalInterval": "0s"}
"""What a server is told where sessions renew themselves after a few events.

By default it lets runs of one workflow begin a second apart at least, which real ones do by themselves.
"""

PATIENCE = 30
"""Seconds that a condition may take to come true before a test fails."""


@asynccontextmanager
async def world(
    server: EmbeddedServer, app: App, *, workers: int = 1, **settings: object
) -> AsyncGenerator[testing.Served]:
    """Serve an app for the length of a test, out of sight of the others."""
    with tempfile.TemporaryDirectory(prefix="perdure-world-") as folder:
        given: dict[str, object] = {
            "home": Path(folder),
            "storage": Path(folder) / "storage",
            "archive_url": testing.archive_in(Path(folder)),
            "task_queue": f"perdure-{uuid.uuid4().hex}",
            "graceful_shutdown": 1,
        }
        loaded = WorkerSettings.load(**(given | settings))
        client = await connect(server.address, converter=data_converter(loaded.storage, loaded.storage_threshold))
        served = testing.Served(app, server, loaded, client)
        try:
            for _ in range(workers):
                await served.start_worker()
            yield served
        finally:
            await served.stop_worker()


def fresh(prefix: str = "s") -> str:
    """Return a name that no other test uses."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


async def until(condition: Callable[[], Awaitable[bool]], *, patience: float = PATIENCE) -> None:
    """Wait until a condition holds; fail when it takes too long."""
    async with asyncio.timeout(patience):
        while not await condition():
            await asyncio.sleep(0.02)


async def events(handle: SessionHandle, run_id: str | None = None) -> list[HistoryEvent]:
    """Return the history events of the session's present run."""
    workflow = handle.client.get_workflow_handle(handle.workflow_id, run_id=run_id)
    return [event async for event in workflow.fetch_history_events()]


async def failed_tasks(handle: SessionHandle) -> int:
    """Return how many workflow tasks of the session's present run have failed by our doing."""
    return sum(map(_failed_by_us, await events(handle)))


def _failed_by_us(event: HistoryEvent) -> bool:
    """Tell a failed workflow task from one that the server ended: it has no room for more signals, or new ones came."""
    if event.event_type != EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
        return False
    return event.workflow_task_failed_event_attributes.cause not in (
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND,
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
    )


async def failed_tasks_ever(handle: SessionHandle) -> int:
    """Return how many workflow tasks of the session failed by our doing, in all runs that continued one another."""
    failed, run_id = 0, None
    while True:
        found = await events(handle, run_id)
        failed += sum(map(_failed_by_us, found))
        run_id = found[0].workflow_execution_started_event_attributes.continued_execution_run_id
        if not run_id:
            return failed


async def update(handle: SessionHandle, name: str, *args: object) -> object:
    """Send an update as raw as the SDK takes it."""
    workflow = cast("Any", handle.client.get_workflow_handle(handle.workflow_id))
    return cast("object", await workflow.execute_update(name, args=list(args)))


async def asked(handle: SessionHandle, times: int) -> bool:
    """Return whether so many commands stand in the session's transcript."""
    return [entry.kind async for entry in handle.transcript()].count("command") >= times


async def nothing_pending(handle: SessionHandle) -> bool:
    """Return whether no activity of the session is under way, or waits for another attempt."""
    description = await handle.client.get_workflow_handle(handle.workflow_id).describe()
    return not description.raw_description.pending_activities
