"""Workers in processes of their own, for tests that kill them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

ROOT = Path(__file__).resolve().parents[2]
STARTED = b"worker started"


class WorkerProcess:
    """A worker that runs in a process of its own. `lines` are the log lines that it has written."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Follow a process that was just started."""
        self._process = process
        self._started = asyncio.Event()
        self.lines: list[bytes] = []
        self._reader = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.lines.append(line)
            if STARTED in line:
                self._started.set()
        self._started.set()

    async def started(self) -> None:
        """Wait until it serves."""
        async with asyncio.timeout(60):
            await self._started.wait()
        assert any(STARTED in line for line in self.lines), b"".join(self.lines).decode()

    async def kill(self) -> None:
        """Kill it with SIGKILL, as a crash does."""
        self._process.kill()
        await self._process.wait()

    async def stop(self) -> int:
        """Stop it with SIGTERM, as a deploy does, and return its exit code."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        code = await self._process.wait()
        await self._reader
        return code


@asynccontextmanager
async def worker_process(target: str, env: Mapping[str, str]) -> AsyncGenerator[WorkerProcess]:
    """Run `python -m worker TARGET` for the length of a block, with short heartbeats and JSON logs."""
    settings = {"PERDURE_HEARTBEAT_TIMEOUT": "2", "PERDURE_LOG_FORMAT": "json", "PERDURE_GRACEFUL_SHUTDOWN": "1"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "worker",
        target,
        cwd=ROOT,
        env={**os.environ, **settings, **env},
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    worker = WorkerProcess(process)
    try:
        await worker.started()
        yield worker
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
