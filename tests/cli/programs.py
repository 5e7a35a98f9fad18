"""Running the command line as a process of its own."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.cli.root import run

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

HERE = Path(__file__).parent
PATIENCE = 60
"""Seconds that something may take that takes three at most, unless the machine is busy."""

ONE_AT_A_TIME = asyncio.Lock()
"""What a command in this process prints is caught by exchanging the streams of the whole process."""

PERDURE = (sys.executable, "-m", "perdure")


@dataclass(frozen=True)
class Ended:
    """A program that has ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:  # whatever the program printed
        """Return what it printed, as JSON."""
        return json.loads(self.out)


def environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment in which nothing but `given` says where a server is, or how wide a terminal is."""
    told = ("TEMPORAL_", "PERDURE_", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(told)}
    return kept | {"TEMPORAL_CONFIG_FILE": os.devnull} | dict(given or {})


async def perdure(*arguments: str, env: Mapping[str, str] | None = None, typed: str = "", cwd: Path = HERE) -> Ended:
    """Run a command to its end."""
    async with started(*arguments, env=env, cwd=cwd) as program:
        return await program.finish(typed)


async def inside(*arguments: str, env: Mapping[str, str], typed: str = "") -> Ended:
    """Run a command in this process, which is quicker. It can't be one that takes signals."""
    async with ONE_AT_A_TIME:
        return await asyncio.to_thread(_inside, arguments, environment(env), typed.encode())


def _inside(arguments: tuple[str, ...], env: Mapping[str, str], typed: bytes) -> Ended:
    streams = [io.TextIOWrapper(io.BytesIO(each), encoding="utf-8", newline="") for each in (typed, b"", b"")]
    before = dict(os.environ), sys.stdin, sys.stdout, sys.stderr
    try:
        os.environ.clear()
        os.environ.update(env)
        sys.stdin, sys.stdout, sys.stderr = streams
        code = run(list(arguments))
    finally:
        os.environ.clear()
        os.environ.update(before[0])
        sys.stdin, sys.stdout, sys.stderr = before[1:]
    out, err = (_written(stream) for stream in streams[1:])
    return Ended(code, out, err)


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


class Program:
    """A command that runs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        """Take over a process."""
        self.process = process
        self.out = ""

    async def says(self, text: str) -> str:
        """Wait until it has printed `text`, and return all that it has printed so far."""
        assert self.process.stdout
        async with asyncio.timeout(PATIENCE):
            while text not in self.out:
                more = await self.process.stdout.read(65536)
                assert more, f"it ended without saying {text!r}: {self.out}\n{await self._errors()}"
                self.out += more.decode()
        return self.out

    async def complains(self, text: str) -> None:
        """Wait until it has written `text` to standard error."""
        assert self.process.stderr
        said = ""
        async with asyncio.timeout(PATIENCE):
            while text not in said:
                more = await self.process.stderr.read(65536)
                assert more, f"it ended without complaining of {text!r}: {said}"
                said += more.decode()

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> Ended:
        """Send a signal, and wait for the end."""
        self.process.send_signal(number)
        return await self.finish()

    async def finish(self, typed: str = "") -> Ended:
        """Wait for the end."""
        async with asyncio.timeout(PATIENCE):
            out, err = await self.process.communicate(typed.encode())
        assert self.process.returncode is not None
        return Ended(self.process.returncode, self.out + out.decode(), err.decode())

    async def _errors(self) -> str:
        assert self.process.stderr
        return (await self.process.stderr.read()).decode()


@asynccontextmanager
async def started(
    *arguments: str, env: Mapping[str, str] | None = None, cwd: Path = HERE, program: tuple[str, ...] = PERDURE
) -> AsyncGenerator[Program]:
    """Start a command; it is killed at the end of the block if it still runs."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *program, *arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=environment(env), cwd=cwd
    )
    try:
        yield Program(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
