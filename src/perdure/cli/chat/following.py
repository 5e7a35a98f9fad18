"""Following a turn: showing what it does, and stopping it when Ctrl-C says so."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from perdure.errors import PerdureError, StaleRun

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from perdure.cli.chat.screens import Progress, Screen
    from perdure.client import SessionHandle
    from perdure.results import SessionView

Result = TypeVar("Result")

GLANCE = 0.25
"""Seconds between two looks at what a turn does. A look leaves no event."""


@contextmanager
def ctrl_c(pressed: Callable[[], None]) -> Generator[None]:
    """Call `pressed` for each Ctrl-C while the block lasts, which then ends nothing."""
    loop, before = asyncio.get_running_loop(), signal.getsignal(signal.SIGINT)
    loop.add_signal_handler(signal.SIGINT, pressed)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)


class Following:
    """One turn that is followed at a screen. `run_id` is set as soon as it is known."""

    def __init__(self, handle: SessionHandle, screen: Screen, turn_id: str) -> None:
        """Follow a turn of a session."""
        self._handle = handle
        self._screen = screen
        self._turn_id = turn_id
        self.run_id: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    async def until_settled(self, work: Coroutine[object, object, Result]) -> Result | None:
        """Await `work`, which ends when the turn is settled. Ctrl-C interrupts the turn; a second one leaves it alone.

        Returns:
            What `work` returns; None if the turn was left alone.
        """
        presses = asyncio.Queue[None]()
        with self._screen.busy() as progress, ctrl_c(lambda: presses.put_nowait(None)):
            working = asyncio.create_task(work)
            showing = asyncio.create_task(self._show(progress))
            helpers = [showing, asyncio.create_task(self._obey(presses, working, showing, progress))]
            try:
                await asyncio.wait({working})
            finally:
                working.cancel()
                for helper in helpers:
                    helper.cancel()
        return None if working.cancelled() else working.result()

    async def _obey(
        self,
        presses: asyncio.Queue[None],
        working: asyncio.Task[Result],
        showing: asyncio.Task[None],
        progress: Progress,
    ) -> None:
        await presses.get()
        showing.cancel()
        progress("interrupting (Ctrl-C once more leaves the turn alone)")
        interrupting = asyncio.create_task(self._interrupt())
        await presses.get()
        interrupting.cancel()
        working.cancel()
        self._screen.note("left alone: the turn goes on, and the next message comes behind it")

    async def _interrupt(self) -> None:
        try:
            await self._handle.interrupt(run_id=await asyncio.shield(self.run_id))
        except StaleRun:
            view = await self._glance()
            if view is not None and self._place(view):
                self._screen.note("the turn has not begun: others are before it; Ctrl-C once more leaves it alone")
        except PerdureError as error:
            self._screen.note(str(error))

    async def _show(self, progress: Progress) -> None:
        while True:
            await asyncio.sleep(GLANCE)
            view = await self._glance()
            if view is not None:
                progress(f"{self._doing(view)} (Ctrl-C interrupts)")

    async def _glance(self) -> SessionView | None:
        with contextlib.suppress(PerdureError):
            return await self._handle.view()
        return None

    def _doing(self, view: SessionView) -> str:
        if place := self._place(view):
            return f"waiting, number {place} in the queue"
        if view.active is None or view.active.turn_id != self._turn_id:
            return "waiting"
        return {"model": "thinking", "stopping": "stopping"}.get(view.active.doing, f"running {view.active.doing}")

    def _place(self, view: SessionView) -> int:
        """Return the turn's place in the queue; 0 when it is not there."""
        waiting = [entry.turn_id for entry in view.queue]
        return waiting.index(self._turn_id) + 1 if self._turn_id in waiting else 0
