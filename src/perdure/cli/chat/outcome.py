"""What a conversation comes to: its exit code, and what is told of what goes wrong on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.cli.failures import ExitCode, exit_code
from perdure.errors import PerdureError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from perdure.cli.chat.screens import Screen


class Outcome:
    """The exit code of a conversation so far."""

    def __init__(self, screen: Screen) -> None:
        """Nothing has gone wrong yet."""
        self._screen = screen
        self._code = ExitCode.DONE

    @property
    def code(self) -> ExitCode:
        """The code to end with. A person who was told what went wrong has no use for one."""
        return ExitCode.DONE if self._screen.interactive else self._code

    def incomplete(self) -> None:
        """Note that a turn did not complete."""
        self._code = ExitCode.INCOMPLETE

    async def survive(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do work. What is refused is told, and the conversation goes on; a pipe ends without a server."""
        try:
            await work()
        except PerdureError as error:
            if not self._screen.interactive and exit_code(error) is ExitCode.NO_SERVER:
                raise
            self._code = exit_code(error)
            self._screen.note(str(error))
