"""A person at a terminal: a prompt that remembers and stays usable, answers above it, a sign of life while it lasts."""

from __future__ import annotations

import hashlib
import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.patch_stdout import patch_stdout
from rich.markdown import Markdown
from rich.text import Text

from perdure.cli.chat.screens import ctrl_c
from perdure.cli.terminal import console, one_line, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.key_binding import KeyPressEvent
    from rich.console import RenderableType

    from perdure.cli.options import Target

PROMPT = "> "
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

FOLDER = "chat"
"""Where what was typed is kept, in the home folder: one file a session."""


class Person:
    """The terminal. What is shown while something is typed appears above it."""

    interactive = True

    def __init__(self, target: Target) -> None:
        """Open the history of what was typed in this session."""
        self._agent = target.key.agent_id
        self._doing = ""
        self._spinner = itertools.cycle(SPINNER)
        self._sign = next(self._spinner)
        self._pressed: Callable[[], bool] = lambda: False
        keys = KeyBindings()
        keys.add("c-c")(self._ctrl_c)
        self._prompt: PromptSession[str] = PromptSession(self._message, history=_history(target), key_bindings=keys)

    @contextmanager
    def talking(self, pressed: Callable[[], bool]) -> Generator[None]:
        """Take Ctrl-C for what runs; where there is nothing to stop it throws away the line that is being typed."""
        self._pressed = pressed
        # While a prompt is there, Ctrl-C is a key like any other. Between two prompts it is a signal.
        with patch_stdout(raw=True), ctrl_c(self._stop):
            yield

    async def read(self) -> str | None:
        """Return what is typed next. Ctrl-D on an empty line is the end."""
        try:
            return await self._prompt.prompt_async(set_exception_handler=False, handle_sigint=False)
        except KeyboardInterrupt:
            return ""
        except EOFError:
            return None

    def said(self, text: str) -> None:
        """Show what the user said, as it looked when it was typed."""
        self._print(Text(f"{PROMPT}{printable(text)}", style="dim"))

    def answer(self, text: str) -> None:
        """Show an answer. Links show where they lead."""
        name = Text(one_line(self._agent), style="bold cyan")
        self._print(name, Markdown(printable(text), hyperlinks=False), Text())

    def note(self, text: str) -> None:
        """Say something about the conversation."""
        self._print(Text(printable(text), style="yellow"))

    def show(self, what: RenderableType | str) -> None:
        """Show what was asked for."""
        self._print(Text(printable(what)) if isinstance(what, str) else what)

    def progress(self, doing: str) -> None:
        """Show above what is typed what the agent does, with a sign that turns."""
        self._doing, self._sign = one_line(doing), next(self._spinner)
        self._prompt.app.invalidate()

    def _print(self, *what: RenderableType) -> None:
        # A console of its own each time, for standard output is another one while something is typed; and one write,
        # for the prompt is drawn anew after each.
        with console() as out:
            for each in what:
                out.print(each)

    def _message(self) -> StyleAndTextTuples:
        # A line that was entered stays on the screen. What the agent did at that moment does not.
        if not self._doing or self._prompt.app.is_done:
            return [("", PROMPT)]
        return [("ansiyellow", f"{self._sign} {self._doing}\n"), ("", PROMPT)]

    def _stop(self) -> bool:
        """Do what Ctrl-C means here, which is always something."""
        if self._pressed():
            return True
        if self._prompt.app.is_running and not self._prompt.app.is_done:
            self._prompt.app.exit(exception=KeyboardInterrupt(), style="class:aborting")
        return True

    def _ctrl_c(self, _: KeyPressEvent) -> None:
        self._stop()


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
