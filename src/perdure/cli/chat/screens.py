"""What a conversation needs of the place where it is held, and the plainest such place: a pipe."""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
import sys
import threading
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

from perdure.cli.terminal import complain, say, show

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from rich.console import RenderableType

CHUNK = 65536


class Screen(Protocol):
    """Where a conversation is held."""

    interactive: bool
    """Whether a person looks on: then old messages are shown, a mistake ends nothing, and what is typed while the
    agent works is read at once."""

    def talking(self, pressed: Callable[[], bool]) -> AbstractContextManager[None]:
        """Be there for a conversation. Each Ctrl-C calls `pressed`, which tells whether there was something to stop."""
        ...

    async def read(self) -> str | None:
        """Return the next line; None at the end."""
        ...

    def said(self, text: str) -> None:
        """Show what the user said, before."""
        ...

    def answer(self, text: str) -> None:
        """Show what the agent says."""
        ...

    def note(self, text: str) -> None:
        """Say something about the conversation."""
        ...

    def show(self, what: RenderableType | str) -> None:
        """Show what was asked for."""
        ...

    def progress(self, doing: str) -> None:
        """Show what the agent does at present; nothing, if that is empty."""
        ...


@contextmanager
def ctrl_c(pressed: Callable[[], bool]) -> Generator[None]:
    """Call `pressed` for each Ctrl-C while the block lasts. What it has no use for goes to whoever had it before."""
    loop, before = asyncio.get_running_loop(), signal.getsignal(signal.SIGINT)

    def come() -> None:
        if not pressed() and callable(before):
            before(signal.SIGINT, None)

    loop.add_signal_handler(signal.SIGINT, come)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)


class Pipe:
    """Lines of standard input, answers on standard output, notes on standard error."""

    interactive = False

    def __init__(self) -> None:
        """Read nothing yet."""
        self._lines: asyncio.Queue[str | None] | None = None

    def talking(self, pressed: Callable[[], bool]) -> AbstractContextManager[None]:
        """Take Ctrl-C for the turn that runs; it ends the program when there is none."""
        return ctrl_c(pressed)

    async def read(self) -> str | None:
        """Return the next line of standard input."""
        if self._lines is None:
            self._lines = asyncio.Queue()
            # A daemon that reads by descriptor: a thread in `sys.stdin` would keep the program from ending.
            arguments = (asyncio.get_running_loop(), self._lines)
            threading.Thread(target=_read_lines, args=arguments, name="stdin", daemon=True).start()
        return await self._lines.get()

    def said(self, text: str) -> None:
        """Show nothing: whoever reads a pipe knows what went in."""

    def answer(self, text: str) -> None:
        """Print an answer."""
        say(text)

    def note(self, text: str) -> None:
        """Print a note to standard error."""
        complain(text)

    def show(self, what: RenderableType | str) -> None:
        """Print what was asked for."""
        if isinstance(what, str):
            say(what)
        else:
            show(what)

    def progress(self, doing: str) -> None:
        """Show nothing."""


def _read_lines(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[str | None]) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    while data := os.read(sys.stdin.fileno(), CHUNK):
        *whole, rest = (rest + decoder.decode(data)).split("\n")
        for line in whole:
            loop.call_soon_threadsafe(lines.put_nowait, line)
    for line in (rest + decoder.decode(b"", final=True), None):
        loop.call_soon_threadsafe(lines.put_nowait, line)
