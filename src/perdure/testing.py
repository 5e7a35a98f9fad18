"""The test kit: a real Temporal server and worker for anybody's tests, scripted models, recorded histories."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from temporalio.testing import TimeSkipper

from perdure.archive import Archive
from perdure.archive.place import ARCHIVE_URL, NO_ARCHIVE, archive_url as archive_at
from perdure.client import Sessions
from perdure.connection import STORAGE, STORAGE_THRESHOLD, connect, data_converter
from perdure.deployment import make_importable
from perdure.histories import ReplayFailed, record_history, replay
from perdure.messages import Usage
from perdure.models import Delta, Emit, ModelRequest, ModelResponse, ToolCall

__all__ = ["ReplayFailed", "Reply", "ReplyLike", "ScriptedModel", "Served", "record_history", "replay", "serve"]

if TYPE_CHECKING:
    from temporalio.client import Client

    from perdure.agents import App
    from worker.embedded import EmbeddedServer
    from worker.settings import WorkerSettings

DEFAULT = "<data_dir>"
TIME_SKIPPING: Mapping[str, object] = {"frontend.WorkflowTimeSkippingEnabled": True}
FAST_SETTINGS: Mapping[str, object] = {"graceful_shutdown": 2, "log_level": "warning"}
"""What tests want otherwise than production: they do not wait half a minute for a tool to end."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One scripted answer. `chunks` are streamed and make the text; delays are in seconds."""

    text: str = ""
    tool_calls: Sequence[ToolCall] = ()
    chunks: Sequence[str] | None = None
    chunk_delay: float = 0
    delay: float = 0
    usage: Usage | None = None
    finish_reason: str | None = None


ReplyLike: TypeAlias = str | ToolCall | list[ToolCall] | Reply | Exception
Script: TypeAlias = Sequence[ReplyLike] | Callable[[ModelRequest], "ReplyLike | Awaitable[ReplyLike]"]


@dataclass
class ScriptedModel:
    """A model that answers by a script: a list, one reply a model call, or a function of the request.

    `requests` are all requests that were made, for a test to look at. A list that is used up fails the turn.
    """

    script: Script
    requests: list[ModelRequest] = field(default_factory=list[ModelRequest])
    _used: int = 0

    async def complete(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Answer by the script; an exception in it is raised."""
        self.requests.append(request)
        reply = await self._next(request)
        match reply:
            case Exception():
                raise reply
            case str():
                reply = Reply(reply)
            case ToolCall():
                reply = Reply(tool_calls=(reply,))
            case list():
                reply = Reply(tool_calls=reply)
            case Reply():
                pass
        return await _say(reply, emit)

    async def _next(self, request: ModelRequest) -> ReplyLike:
        if callable(self.script):
            reply = self.script(request)
            return await reply if isawaitable(reply) else reply
        if self._used >= len(self.script):
            msg = f"the script has {len(self.script)} replies, and one more was asked for"
            raise LookupError(msg)
        self._used += 1
        return self.script[self._used - 1]


async def _say(reply: Reply, emit: Emit) -> ModelResponse:
    if reply.delay:
        await asyncio.sleep(reply.delay)
    chunks = [reply.text] if reply.chunks is None else reply.chunks
    for chunk in chunks:
        if reply.chunk_delay:
            await asyncio.sleep(reply.chunk_delay)
        if chunk:
            await emit(Delta(chunk))
    calls = tuple(reply.tool_calls)
    finish = reply.finish_reason if reply.finish_reason is not None else ("tool_calls" if calls else "stop")
    return ModelResponse("".join(chunks), calls, reply.usage or Usage(), finish)


class Served:
    """A server, its workers and a way to talk to them. Made by `serve`.

    Its methods belong to the event loop that made it.
    """

    def __init__(self, app: App, server: EmbeddedServer, settings: WorkerSettings, client: Client) -> None:
        """Take over what `serve` has started."""
        self._app = app
        self._server = server
        self.settings = settings
        self._workers: dict[str, AsyncExitStack] = {}
        self._names = (f"worker-{number}" for number in itertools.count(1))
        self.client = client
        self.archive = None if settings.archive is None else Archive.at(settings.archive, create=False)
        self.sessions = Sessions(client, settings.task_queue, self.archive)

    @property
    def address(self) -> str:
        """HOST:PORT of the Temporal server."""
        return self._server.address

    @property
    def env(self) -> dict[str, str]:
        """The environment variables with which a subprocess sees the same world."""
        env = {
            "TEMPORAL_ADDRESS": self.address,
            "TEMPORAL_NAMESPACE": self.client.namespace,
            "PERDURE_HOME": str(self.settings.home),
            "PERDURE_TASK_QUEUE": self.settings.task_queue,
            ARCHIVE_URL: self.settings.archive or NO_ARCHIVE,
        }
        if self.settings.storage is not None:
            env[STORAGE] = str(self.settings.storage)
            env[STORAGE_THRESHOLD] = str(self.settings.storage_threshold)
        return env

    async def start_worker(self, app: App | None = None, **worker_settings: object) -> str:
        """Start a worker in this process, with another app or other settings if they are given; return its name."""
        from worker.assembly import worker_for  # noqa: PLC0415  # importable only after make_importable
        from worker.running import started  # noqa: PLC0415  # the same

        settings = type(self.settings).load(**{**self.settings.model_dump(), **worker_settings})
        name = next(self._names)
        stack = AsyncExitStack()
        # A client of its own: Temporal takes one worker a task queue from one client.
        client = await connect(self.address, self.client.namespace, converter=self.client.data_converter)
        worker = await stack.enter_async_context(worker_for(client, app or self._app, settings))
        await stack.enter_async_context(started(worker, settings.graceful_shutdown))
        self._workers[name] = stack
        return name

    async def stop_worker(self, name: str | None = None) -> None:
        """Stop a worker in order, as a deploy does; without a name all of them."""
        names = list(self._workers) if name is None else [name]
        await asyncio.gather(*(self._workers.pop(each).aclose() for each in names))

    async def kill_server(self) -> None:
        """Kill the Temporal server with SIGKILL. Its data stays."""
        await self._server.kill()

    async def start_server(self) -> None:
        """Start the killed server again, on the same data and address."""
        await self._server.start()


def archive_in(home: Path) -> str:
    """Return where the archive of a test is that does not say so: never where the environment has production's."""
    return archive_at(None, home) or NO_ARCHIVE


@asynccontextmanager
async def serve(
    app: App,
    *,
    workers: int = 1,
    time_skipping: bool = False,
    dynamic_config: Mapping[str, object] | None = None,
    data_dir: Path | None = None,
    archive_url: str | None = DEFAULT,
    storage: Path | str | None = DEFAULT,
    **worker_settings: object,
) -> AsyncGenerator[Served]:
    """Serve an app on a real Temporal server of its own, on free ports, for as long as the block lasts.

    Args:
        app: What the workers serve.
        workers: How many run at first; 0 for none.
        time_skipping: Let timers pass at once, on a clock of each session's own.
        dynamic_config: Settings of the Temporal server, such as lowered limits.
        data_dir: Where the data lies; a temporary folder by default, which is removed.
        archive_url: The archive; SQLite in the data folder by default, None for none.
        storage: Where large payloads go, a folder or `s3://BUCKET/PREFIX`; the data folder by default, None: nowhere.
        worker_settings: Fields of `worker.settings.WorkerSettings`.
    """
    make_importable()
    from worker.embedded import EmbeddedServer  # noqa: PLC0415  # importable only after make_importable
    from worker.settings import WorkerSettings  # noqa: PLC0415  # importable only after make_importable

    async with AsyncExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-"))
        home = Path(temporary) if data_dir is None else data_dir
        given: dict[str, object] = {"home": home, "storage": home / "storage" if storage == DEFAULT else storage}
        given["archive_url"] = archive_in(home) if archive_url == DEFAULT else archive_url or NO_ARCHIVE
        settings = WorkerSettings.load(**FAST_SETTINGS, **given, **worker_settings)
        config = {**(dynamic_config or {}), **(TIME_SKIPPING if time_skipping else {})}
        server = EmbeddedServer(data_dir=data_dir, headless=True, dynamic_config=config, persistent=True)
        await stack.enter_async_context(server)
        converter = data_converter(settings.storage, settings.storage_threshold)
        client = await connect(server.address, server.namespace, converter=converter)
        served = Served(app, server, settings, TimeSkipper(client).client if time_skipping else client)
        if served.archive is not None:
            stack.push_async_callback(served.archive.aclose)
        stack.push_async_callback(served.stop_worker)
        for _ in range(workers):
            await served.start_worker()
        yield served
