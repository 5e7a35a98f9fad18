"""The composition root: from settings, a client and an app to a worker. Only this module knows all the parts."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkerDeploymentConfig, WorkflowRunner

from activities.archive import ArchiveActivities
from activities.contexts import ContextCache
from activities.environment import ToolEnvironment
from activities.inquiries import InquiryActivities
from activities.model import ModelActivities
from activities.tools import ToolActivities
from perdure import contract
from perdure.archive import Archive
from perdure.client import SessionHandle, read_checkpoint, read_page, read_transcript, read_wanted
from perdure.errors import PerdureError
from perdure.storage import RESULTS, Directory
from worker.guard import UpdateGuard
from workflows.session import AgentSession

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from temporalio.client import Client

    from perdure.agents import App
    from perdure.state import AgentState
    from perdure.storage.places import Bucket
    from worker.settings import WorkerSettings

log = logging.getLogger("perdure.worker")

CANCELLATION_INTERVAL = timedelta(milliseconds=500)
"""How often heartbeats reach the server at most. Cancellation comes back with them, so this bounds its delay."""

STICKY_PATIENCE = timedelta(seconds=3)
"""How long a session's next decision waits for the worker that has it in memory, before any worker may replay it. It
is the longest pause that a session sees when its worker dies between two steps."""

ARCHIVE_SECONDS = 10
"""How long a worker that starts waits for the archive."""

ACTIVATION_SECONDS = 9
"""How long workflow code may take for what comes at once; the server gives a workflow task ten seconds."""


def workflow_runner() -> WorkflowRunner:
    """Return what sessions run in, here and in replay: without a sandbox; docs/adr/0008 says why."""
    return UnsandboxedWorkflowRunner()


@asynccontextmanager
async def worker_for(client: Client, app: App, settings: WorkerSettings) -> AsyncGenerator[Worker]:
    """Make a worker with all that its activities need, which is released when the block is left.

    The worker is not running yet: enter it, or await its `run`.
    """
    async with AsyncExitStack() as stack:
        resources: Mapping[type, object] = {}
        if app.resources is not None:
            resources = await stack.enter_async_context(app.resources())
        transport = await stack.enter_async_context(httpx.AsyncHTTPTransport())
        threads = ThreadPoolExecutor(settings.tool_threads, thread_name_prefix="tool")
        # A thread can't be stopped: a tool that hangs in one must not hold up a worker that has given it its time.
        stack.callback(threads.shutdown, wait=False, cancel_futures=True)
        environment = ToolEnvironment(
            resources=resources,
            transport=transport,
            threads=threads,
            read_state=lambda workflow_id: _read_state(client, workflow_id),
            ask_wanted=lambda workflow_id, run_id: read_wanted(client.get_workflow_handle(workflow_id, run_id=run_id)),
            store=_results(settings.storage, client.namespace),
            inline_limit=contract.MAX_INLINE_BYTES if settings.storage is None else None,
        )
        models = _models(client, app, settings, environment)
        stack.push_async_callback(models.aclose)
        archives = await stack.enter_async_context(_archives(client, settings))
        activities = [
            models.call_model,
            ToolActivities(app, environment).call_tool,
            InquiryActivities(app, environment).reconcile,
            archives.keep,
            archives.restore,
        ]
        yield _worker(client, settings, activities)


def _results(storage: Path | Bucket | None, namespace: str) -> Directory | None:
    """Return where long results of tools are kept whole; in a bucket they are not."""
    return Directory(storage / RESULTS, namespace) if isinstance(storage, Path) else None


async def _read_state(client: Client, workflow_id: str) -> AgentState:
    return await SessionHandle.of(client, workflow_id).state()


def _models(client: Client, app: App, settings: WorkerSettings, environment: ToolEnvironment) -> ModelActivities:
    async def page(workflow_id: str, run_id: str, request: contract.PageRequest) -> contract.ContextPage:
        return await read_page(client.get_workflow_handle(workflow_id, run_id=run_id), request)

    cache = ContextCache(settings.context_cache_bytes)
    return ModelActivities(
        app,
        cache,
        page,
        ask_wanted=environment.ask_wanted,
        heartbeat=settings.heartbeat_timeout,
        resources=environment.resources,
        inline_limit=environment.inline_limit,
        renewal=settings.renewal,
    )


@asynccontextmanager
async def _archives(client: Client, settings: WorkerSettings) -> AsyncGenerator[ArchiveActivities]:
    async def transcript(workflow_id: str, run_id: str, request: contract.PageRequest) -> contract.TranscriptPage:
        return await read_transcript(client.get_workflow_handle(workflow_id, run_id=run_id), request)

    async def checkpoint(workflow_id: str, run_id: str, wanted: contract.Slice) -> contract.CheckpointSlice:
        return await read_checkpoint(client.get_workflow_handle(workflow_id, run_id=run_id), wanted)

    archive = None if settings.archive is None else Archive.at(settings.archive)
    try:
        await _prepare(archive)
        yield ArchiveActivities(archive, transcript, checkpoint)
    finally:
        if archive is not None:
            await archive.aclose()


def _worker(client: Client, settings: WorkerSettings, activities: Sequence[Callable[..., object]]) -> Worker:
    worker = Worker(
        client,
        task_queue=settings.task_queue,
        deployment_config=_deployment_config(settings),
        workflows=[AgentSession],
        activities=activities,
        workflow_runner=workflow_runner(),
        interceptors=[UpdateGuard(contract.MAX_INLINE_BYTES)],
        # The SDK would fail the task even for refusing an update that is too large; our own guards stand before it.
        disable_payload_error_limit=True,
        max_cached_workflows=settings.max_cached_sessions,
        max_concurrent_workflow_tasks=settings.max_concurrent_sessions,
        max_concurrent_activities=settings.max_concurrent_models + settings.max_concurrent_tools,
        sticky_queue_schedule_to_start_timeout=STICKY_PATIENCE,
        max_heartbeat_throttle_interval=CANCELLATION_INTERVAL,
        default_heartbeat_throttle_interval=CANCELLATION_INTERVAL,
        graceful_shutdown_timeout=settings.graceful_shutdown,
        workflow_failure_exception_types=[],
    )
    _allow_bursts(worker)
    return worker


def _deployment_config(settings: WorkerSettings) -> WorkerDeploymentConfig | None:
    """Return what makes a worker one of a version, on which its sessions stay until they go on in a new run."""
    if settings.version is None:
        return None
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(*settings.version),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.PINNED,
    )


def _allow_bursts(worker: Worker) -> None:
    """Let one activation take as long as the server lets it.

    Thousands of signals that come at once are one activation, for which a busy machine may take longer than the two
    seconds after which the SDK calls it a deadlock. It fails the task then, and each attempt after it, which gets the
    same signals. The SDK has no option for it but a debug mode that blocks the whole worker meanwhile.
    """
    inner = worker._workflow_worker  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # see above
    if inner is not None:
        inner._deadlock_timeout_seconds = ACTIVATION_SECONDS  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


async def _prepare(archive: Archive | None) -> None:
    """See that the archive is there, so that no session waits for its tables. Sessions go on without it, too."""
    log.info("where transcripts are kept", extra={"archive": "nowhere" if archive is None else str(archive)})
    if archive is None:
        return
    try:
        async with asyncio.timeout(ARCHIVE_SECONDS):
            await archive.prepare()
    except (PerdureError, TimeoutError) as error:
        log.warning("the archive can't be used now; sessions keep what is for it", extra={"error": str(error)})
