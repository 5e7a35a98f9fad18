"""Starting programs, waiting until they are ready, and ending them, by their id and by nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
    from types import TracebackType

ROOT = Path(__file__).parents[2]
"""Where `examples` can be imported."""

READY_SECONDS = 30

PAUSE_SECONDS = 0.05
"""Between two looks at a condition."""


async def until(condition: Callable[[], Awaitable[object]], what: str, seconds: float = READY_SECONDS) -> None:
    """Wait until the condition holds.

    Raises:
        TimeoutError: it did not; the message says what was waited for.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    while not await condition():
        if asyncio.get_running_loop().time() > deadline:
            msg = f"waited {seconds:.0f} s in vain for {what}"
            raise TimeoutError(msg)
        await asyncio.sleep(PAUSE_SECONDS)


@dataclass(eq=False)
class Program:
    """One of our programs, running in a process of its own."""

    name: str
    child: asyncio.subprocess.Process

    @classmethod
    async def start(
        cls, name: str, *command: str, env: Mapping[str, str], log: Path | None = None, speaks: bool = False
    ) -> Self:
        """Run `python -m` with this command; what it writes to standard error goes to `log`.

        One that `speaks` is listened to by `line`. The standard output of others is dropped: an unread pipe fills up.
        """
        with contextlib.ExitStack() as stack:
            errors = stack.enter_context(log.open("ab")) if log is not None else None
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", *command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE if speaks else asyncio.subprocess.DEVNULL,
                stderr=errors,
                cwd=ROOT,
                env={**os.environ, **env},
            )
        return cls(name, child)

    async def line(self, seconds: float = READY_SECONDS) -> str:
        """Return the next line of its standard output.

        Raises:
            RuntimeError: it ended before it said anything.
            TimeoutError: it said nothing in time.
        """
        output = self.child.stdout
        read = await asyncio.wait_for(output.readline(), seconds) if output is not None else b""
        if not read:
            msg = f"{self.name} ended with code {await self.child.wait()} before it said anything"
            raise RuntimeError(msg)
        return read.decode()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.child.returncode is None

    async def kill(self) -> None:
        """End it with SIGKILL: it can neither finish nor say anything."""
        with contextlib.suppress(ProcessLookupError):
            self.child.kill()
        await self.child.wait()

    async def stop(self, seconds: float = 15) -> int:
        """End it in order; kill it when that takes too long. Returns its exit code."""
        with contextlib.suppress(ProcessLookupError):
            self.child.terminate()
        try:
            async with asyncio.timeout(seconds):
                await self.child.communicate()
        except TimeoutError:
            await self.kill()
        return await self.child.wait()

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it if it still runs."""
        await self.stop()


@contextlib.asynccontextmanager
async def refund_service(
    database: Path, env: Mapping[str, str] | None = None, *, port: int = 0, log: Path | None = None
) -> AsyncGenerator[tuple[Program, str]]:
    """Run the refund service; gives the program and its address."""
    command = ("examples.refunds.service", "--port", str(port), "--database", str(database))
    async with await Program.start("the refund service", *command, env=env or {}, log=log, speaks=True) as program:
        ready: dict[str, Any] = json.loads(await program.line())
        yield program, str(ready["url"])
