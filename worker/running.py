"""Running a worker until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from perdure.connection import connect, data_converter
from worker.assembly import worker_for
from worker.setup import require_attributes
from worker.storage import require_storage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from temporalio.client import Client
    from temporalio.worker import Worker

    from perdure.agents import App
    from worker.settings import WorkerSettings

log = logging.getLogger("perdure.worker")

STOP_MARGIN = timedelta(seconds=20)
"""How long a worker may take to end behind the grace time of its activities."""

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_requested() -> Generator[asyncio.Event]:
    """Give an event that SIGINT and SIGTERM set. A second signal ends the process as usual."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()

    def stop() -> None:
        event.set()
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        yield event
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)


async def connect_worker(settings: WorkerSettings, address: str | None = None, namespace: str | None = None) -> Client:
    """Connect as a worker with these settings does, and see that sessions can run there.

    Raises:
        ServerUnavailable: nobody answers.
        SetupRequired: the server lacks perdure's search attributes.
        ConfigurationError: large payloads can't be kept where `PERDURE_STORAGE` says.
    """
    converter = data_converter(settings.storage, settings.storage_threshold)
    client = await connect(address, namespace, converter=converter)
    await require_attributes(client)
    await require_storage(client, settings.storage)
    return client


async def run_worker(
    app: App, settings: WorkerSettings, *, address: str | None = None, namespace: str | None = None
) -> None:
    """Serve an app until SIGINT or SIGTERM, then stop in order: no new work, what runs has its grace time.

    Raises:
        PerdureError: the worker can't start.
    """
    _ = settings.version  # half a version is told before anybody is asked
    with stop_requested() as stop:
        client = await connect_worker(settings, address, namespace)
        async with serving(client, app, settings):
            await stop.wait()


@asynccontextmanager
async def started(worker: Worker, grace: timedelta) -> AsyncGenerator[None]:
    """Run a worker while the block lasts, then stop it in order.

    What runs has its `grace`. A shutdown of the SDK that does not end even then is left behind: it can hang under a
    high load (temporalio/sdk-rust pull request 1054 and those after it), which must not keep a deploy waiting.
    """
    await worker.__aenter__()
    try:
        yield
    finally:
        end = asyncio.create_task(worker.__aexit__(*sys.exc_info()))
        _, pending = await asyncio.wait([end], timeout=(grace + STOP_MARGIN).total_seconds())
        if pending:
            end.cancel()
            log.error("the worker did not end, and is left behind")
        else:
            await end


@asynccontextmanager
async def serving(client: Client, app: App, settings: WorkerSettings) -> AsyncGenerator[None]:
    """Serve an app while the block lasts. A worker that fails by itself cancels the block and raises its error."""
    async with worker_for(client, app, settings) as worker, started(worker, settings.graceful_shutdown):
        facts: dict[str, object] = {
            "address": client.service_client.config.target_host,
            "namespace": client.namespace,
            "task_queue": settings.task_queue,
            "agents": [agent.id for agent in app.agents],
        }
        if settings.version is not None:
            facts["deployment"], facts["build_id"] = settings.version
        log.info("worker started", extra=facts)
        try:
            yield
        finally:
            log.info("worker is stopping", extra={"grace_seconds": settings.graceful_shutdown.total_seconds()})
    log.info("worker stopped")
