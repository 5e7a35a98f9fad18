"""A terminal for a program, and the person who sits at it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.cli.programs import HERE, PATIENCE, PERDURE, environment

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

LEADER = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes the terminal the program's own, so that Ctrl-C typed there reaches it as a signal."""

PROMPT = "\x1b[?2004h"
"""What a prompt begins with: it asks the terminal to mark what is pasted."""

CTRL_C, CTRL_D = "\x03", "\x04"


class Terminal:
    """What a person does and sees."""

    def __init__(self, descriptor: int, process: asyncio.subprocess.Process) -> None:
        """Sit down at the terminal whose other end is `descriptor`."""
        self._descriptor = descriptor
        self._process = process
        self._more = asyncio.Event()
        self._seen = 0
        self.shown = ""
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._descriptor)
        self.shown += data.decode(errors="replace")
        self._more.set()

    async def see(self, text: str) -> None:
        """Wait until `text` is shown, behind what was seen before."""
        try:
            async with asyncio.timeout(PATIENCE):
                while (at := self.shown.find(text, self._seen)) < 0:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            msg = f"never saw {text!r} in {self.shown[self._seen :][-500:]!r}"
            raise AssertionError(msg) from None
        self._seen = at + len(text)

    async def type(self, text: str) -> None:
        """Type."""
        await asyncio.to_thread(os.write, self._descriptor, text.encode())

    async def enter(self, text: str) -> None:
        """Wait for a prompt, and enter a line."""
        await self.see(PROMPT)
        await self.type(f"{text}\r")

    async def leave(self) -> int:
        """Wait for a prompt, leave by Ctrl-D, and return the exit code."""
        await self.see(PROMPT)
        await self.type(CTRL_D)
        async with asyncio.timeout(PATIENCE):
            return await self._process.wait()


@asynccontextmanager
async def at_terminal(*arguments: str, env: Mapping[str, str]) -> AsyncGenerator[Terminal]:
    """Run a command at a terminal."""
    ours, theirs = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-ISc", LEADER, *PERDURE, *arguments),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(env) | {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
        cwd=HERE,
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        asyncio.get_running_loop().remove_reader(ours)
        os.close(ours)
