"""The command line, to which Ctrl-C is pressed at the moment at which an answer is printed."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from perdure.cli import main
from perdure.cli.chat.screens import Pipe

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


class Hasty(Pipe):
    """Somebody who has seen enough."""

    def talking(self, pressed: Callable[[], bool]) -> AbstractContextManager[None]:
        """Hold what is called for Ctrl-C: a signal would come a moment too late."""
        self.pressed = pressed
        return super().talking(pressed)

    def answer(self, text: str) -> None:
        """Print the answer, and press."""
        super().answer(text)
        if not self.pressed():
            signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    sys.modules["perdure.cli.chat.command"].Pipe = Hasty  # type: ignore[attr-defined]
    main(sys.argv[1:])
