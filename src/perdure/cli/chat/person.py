"""A person at a terminal: a prompt that remembers, answers as Markdown, and a sign of life while the agent works."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from rich.markdown import Markdown
from rich.text import Text

from perdure.cli.terminal import console, one_line, printable

if TYPE_CHECKING:
    from collections.abc import Generator

    from rich.console import RenderableType

    from perdure.cli.chat.screens import Progress
    from perdure.cli.options import Target

PROMPT = "> "
FOLDER = "chat"
"""Where what was typed is kept, in the home folder: one file a session."""


class Person:
    """The terminal."""

    interactive = True

    def __init__(self, target: Target) -> None:
        """Open the history of what was typed in this session."""
        self._agent = target.key.agent_id
        self._console = console()
        self._prompt: PromptSession[str] = PromptSession(history=_history(target))

    async def read(self) -> str | None:
        """Return what is typed next. Ctrl-C throws the line away, Ctrl-D on an empty one is the end."""
        try:
            return await self._prompt.prompt_async(PROMPT)
        except KeyboardInterrupt:
            return ""
        except EOFError:
            return None

    def said(self, text: str) -> None:
        """Show what the user said, as it looked when it was typed."""
        self._console.print(Text(f"{PROMPT}{printable(text)}", style="dim"))

    def answer(self, text: str) -> None:
        """Show an answer. Links show where they lead."""
        self._console.print(Text(one_line(self._agent), style="bold cyan"))
        self._console.print(Markdown(printable(text), hyperlinks=False))
        self._console.print()

    def note(self, text: str) -> None:
        """Say something about the conversation."""
        self._console.print(Text(printable(text), style="yellow"))

    def show(self, what: RenderableType | str) -> None:
        """Show what was asked for."""
        self._console.print(Text(printable(what)) if isinstance(what, str) else what)

    @contextmanager
    def busy(self) -> Generator[Progress]:
        """Show a spinner, and beside it what is being done."""
        with self._console.status(Text("sending")) as status:
            yield lambda doing: status.update(Text(one_line(doing)))


def _history(target: Target) -> History:
    folder = target.place.home / FOLDER
    name = hashlib.sha256(target.key.workflow_id.encode()).hexdigest()[:32]
    path = folder / f"{name}.history"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)
