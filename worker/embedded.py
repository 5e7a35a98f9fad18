"""The embedded Temporal server: the real one, on this machine, for development, tests and small deployments.

It listens on 127.0.0.1 only, and never outlives the process that started it.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

from perdure.errors import ServerUnavailable
from worker.server.claim import claim, until_free
from worker.server.launch import ServerOptions, launch, tail
from worker.server.probe import is_ready
from worker.server.process import LOOPBACK, ServerProcess
from worker.server.record import ServerRecord, remove_record, running_server

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EmbeddedServer", "ServerRecord", "running_server"]

DATABASE = "temporal.db"
LOG = "server.log"


@dataclass(eq=False)
class EmbeddedServer:
    """A Temporal server on a data folder, or in memory when there is none. An async context manager too.

    `start`, `stop`, `kill` and `start` again work in any order, on the same data (in memory: on none) and the same
    ports. Several processes can't share a folder: with `reuse` a second starter uses the server that runs, without
    it is refused. All methods belong to one event loop, and one caller at a time.
    """

    data_dir: Path | None = None
    _: KW_ONLY
    port: int | None = None
    ui_port: int | None = None
    headless: bool = False
    namespace: str = "default"
    reuse: bool = False
    dynamic_config: Mapping[str, object] = field(default_factory=dict[str, object])
    log_level: str = "warn"
    start_timeout: float = 30
    stop_timeout: float = 10
    persistent: bool | None = None

    def __post_init__(self) -> None:
        """Begin stopped."""
        self._process: ServerProcess | None = None
        self._adopted: ServerRecord | None = None
        self._lock: BinaryIO | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    @classmethod
    def ephemeral(cls, *, headless: bool = True, dynamic_config: Mapping[str, object] | None = None) -> Self:
        """Return a server for tests: its data survives `kill` and `start`, and is removed by `stop`."""
        return cls(headless=headless, dynamic_config=dynamic_config or {}, persistent=True)

    @property
    def address(self) -> str:
        """HOST:PORT of its gRPC service; known from the first start on, also while it is down."""
        if self._adopted:
            return self._adopted.address
        if self.port is None:
            msg = "the server has no address before it was started"
            raise RuntimeError(msg)
        return f"{LOOPBACK}:{self.port}"

    @property
    def ui_address(self) -> str | None:
        """The URL of its web interface; None without one."""
        if self._adopted:
            return self._adopted.ui_address
        return f"http://{LOOPBACK}:{self.ui_port}" if self.ui_port and not self.headless else None

    @property
    def reused(self) -> bool:
        """Whether the server is another process's, so that `stop` leaves it alone."""
        return self._adopted is not None

    @property
    def running(self) -> bool:
        """Whether a server that was started here has not ended."""
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int | None:
        """The server's process id, if it was started here and runs."""
        return self._process.pid if self._process and self._process.running else None

    @property
    def log_file(self) -> Path:
        """Where its output since the last start is; what came before that start is beside it, as `.old`."""
        return self._folder() / LOG

    async def start(self) -> None:
        """Start the server, or use the one that runs, and return when it answers and has its search attributes.

        Raises:
            ConfigurationError: there is no `temporal` program, or a port that was asked for is taken.
            ServerUnavailable: it does not come up within `start_timeout`, or another process uses the data folder.
        """
        if self.running or self._adopted:
            return
        first = self._process is None
        try:
            async with asyncio.timeout(self.start_timeout):
                if self.data_dir is None or await self._claim(self.data_dir):
                    await self._launch()
        except BaseException as error:
            why = self._why_not_ready()
            await self._end(grace=0)
            if first:
                self._remove_scratch()
            if isinstance(error, TimeoutError):
                raise ServerUnavailable(why) from None
            raise

    async def stop(self) -> None:
        """Stop what was started here: SIGTERM, then SIGKILL after `stop_timeout` seconds.

        Without a data folder nothing is worth the second that an orderly end takes: it is killed, and its data removed.
        """
        self._adopted = None
        await self._end(grace=self.stop_timeout if self.data_dir else 0)
        self._remove_scratch()

    async def kill(self) -> None:
        """Kill the server with SIGKILL and return when it is gone. `start` brings it back on the same data."""
        if self._adopted:
            msg = "another process started this server, so it can't be killed from here"
            raise RuntimeError(msg)
        if self._process:
            self._process.send_kill()
            await self._process.wait()

    async def restart(self) -> None:
        """Stop it in order and start it again, on the same data and ports."""
        if not self._adopted:
            await self._end(grace=self.stop_timeout)
        await self.start()

    async def wait_closed(self) -> int | None:
        """Return when the server has ended: its exit code, or None when it was another process's.

        `start` then brings it back, or takes it over. Cancelling the wait leaves the server alone.
        """
        if self._process:
            return await self._process.wait()
        if self._adopted and self.data_dir:
            await until_free(self.data_dir)
            self._adopted = None
        return None

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()

    async def _claim(self, folder: Path) -> bool:
        """Get the folder's lock: True; or find a server to use: False."""
        if self._lock is None:
            match await claim(folder, reuse=self.reuse, answers=self._answers_at):
                case ServerRecord() as record:
                    self._adopted = record
                    return False
                case lock:
                    self._lock = lock
        return True

    async def _answers_at(self, address: str) -> bool:
        return await is_ready(address, self.namespace, self._options().search_attributes)

    async def _launch(self) -> None:
        launched = await launch(self._options(), self.log_file, port=self.port, ui_port=self.ui_port, lock=self._lock)
        self._process, self.port, self.ui_port = launched.process, launched.port, launched.ui_port
        if self.data_dir:
            ServerRecord(
                owner_pid=os.getpid(),
                server_pid=launched.process.pid,
                address=self.address,
                ui_address=self.ui_address,
                namespace=self.namespace,
            ).write(self.data_dir)

    async def _end(self, *, grace: float) -> None:
        if self._process:
            await self._process.terminate(grace)
            self._process = None
        if self.data_dir and self._lock:
            remove_record(self.data_dir)
            self._lock.close()
            self._lock = None

    def _options(self) -> ServerOptions:
        keep = self.data_dir is not None if self.persistent is None else self.persistent
        return ServerOptions(
            database=self._folder() / DATABASE if keep else None,
            namespace=self.namespace,
            headless=self.headless,
            dynamic_config=self.dynamic_config,
            log_level=self.log_level,
        )

    def _folder(self) -> Path:
        if self.data_dir:
            return self.data_dir
        self._scratch = self._scratch or tempfile.TemporaryDirectory(prefix="perdure-")
        return Path(self._scratch.name)

    def _remove_scratch(self) -> None:
        if self._scratch:
            self._scratch.cleanup()
            self._scratch = None

    def _why_not_ready(self) -> str:
        if self.data_dir and not self._lock:
            return f"another process uses {self.data_dir}, and no server answered within {self.start_timeout:g} s"
        return f"the embedded server was not ready after {self.start_timeout:g} s{tail(self.log_file)}"
