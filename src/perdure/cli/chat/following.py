"""Following turns: showing what they do, and telling what comes of them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from perdure.cli.chat.doing import asked_lines, doing
from perdure.cli.chat.news import News
from perdure.cli.chat.telling import Telling
from perdure.errors import PerdureError
from perdure.results import TurnStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from perdure.cli.call import Call
    from perdure.cli.chat.outcome import Outcome
    from perdure.cli.chat.screens import Screen
    from perdure.messages import Message
    from perdure.results import Receipt, SessionView

GLANCE = 0.25
"""Seconds between two looks at what the turns do. A look leaves no event."""


class Following:
    """The turns that a conversation follows until they are settled.

    A person is told all that they say, as it comes and in the order in which it happened. A pipe is told the result
    of each.
    """

    def __init__(self, call: Call, screen: Screen, outcome: Outcome, tasks: asyncio.TaskGroup, hint: str) -> None:
        """Follow turns of the session of `call`. What they do is shown with a `hint` at what can be done."""
        self._call = call
        self._screen = screen
        self._outcome = outcome
        self._tasks = tasks
        self._hint = hint
        self._turns: dict[str, asyncio.Task[None] | None] = {}
        self._told: set[str] = set()
        self._news = News(call.handle)
        self._telling = Telling(screen)
        self._one_at_a_time = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self.asked: tuple[str, ...] = ()
        """The requests that were shown last, by their ids."""
        self.interrupting = False
        """Whether somebody has asked to stop what runs, which is shown then instead of what that does."""

    @property
    def turns(self) -> Iterable[str]:
        """The turns that are followed now."""
        return self._turns.keys()

    async def pass_over(self) -> None:
        """Take what the session has said so far for told."""
        async for _ in self._news.read():
            pass

    def shown(self, messages: Iterable[Message]) -> None:
        """Don't tell these messages, for they are shown already."""
        self._telling = Telling(self._screen, messages)

    async def follow(self, turn_id: str, begin: Callable[[], Awaitable[Receipt]]) -> Receipt:
        """Follow the turn that `begin` begins, from before it begins, so that nothing that it says is missed.

        What has happened to it before is no news of it. If it turns out to have become a part of another turn, that
        one is followed.
        """
        with contextlib.suppress(PerdureError):
            await self._catch_up()
        new = turn_id not in self._turns
        self._told.discard(turn_id)
        self._add(turn_id)
        try:
            receipt = await begin()
        except BaseException:
            if new:
                self._drop(turn_id)
            raise
        if receipt.turn_id != turn_id:
            self._drop(turn_id)
        self.join(receipt.turn_id)
        return receipt

    def join(self, turn_id: str) -> None:
        """Follow a turn that is there."""
        self._add(turn_id)
        if self._turns[turn_id] is None:
            self._turns[turn_id] = self._tasks.create_task(self._outcome.survive(lambda: self._until_told(turn_id)))

    async def settled(self) -> None:
        """Wait until nothing is followed."""
        await self._idle.wait()

    def leave(self) -> None:
        """Follow nothing any more. The turns go on."""
        for turn_id in tuple(self._turns):
            self._drop(turn_id)
            self._outcome.incomplete()

    def _add(self, turn_id: str) -> None:
        if turn_id in self._turns:
            return
        self._turns[turn_id] = None
        self._idle.clear()
        if self._looking is None and self._screen.interactive:
            self._screen.progress("sending")
            self._looking = self._tasks.create_task(self._look())

    def _drop(self, turn_id: str) -> None:
        waiting = self._turns.pop(turn_id, None)
        if waiting is not None and waiting is not asyncio.current_task():
            waiting.cancel()
        if self._turns:
            return
        self._idle.set()
        self.interrupting = False
        if self._looking is not None:
            if self._looking is not asyncio.current_task():
                self._looking.cancel()
            self._looking = None
            self._screen.progress("")

    async def _until_told(self, turn_id: str) -> None:
        """Wait until a turn is settled and told. What was passed over in the transcript is told by the result."""
        try:
            result = await self._call.patiently(lambda: self._call.handle.result(turn_id))
            if result.status is not TurnStatus.COMPLETED:
                self._outcome.incomplete()
            if self._screen.interactive:
                with contextlib.suppress(PerdureError):
                    await self._catch_up()
            if turn_id not in self._told:
                self._telling.result(result)
        finally:
            if self._turns.get(turn_id) is asyncio.current_task():
                self._drop(turn_id)

    async def _look(self) -> None:
        while self._looking is asyncio.current_task():
            await asyncio.sleep(GLANCE)
            with contextlib.suppress(PerdureError):
                view = await self._call.handle.view()
                if not self.interrupting:
                    self._screen.progress(f"{doing(view, self._turns)} ({self._hint})")
                await self._catch_up()

    async def _catch_up(self) -> None:
        """Tell what has happened to the turns that are followed."""
        async with self._one_at_a_time:
            async for entry in self._news.read():
                turn_id = entry.turn_id or ""
                if turn_id in self._turns and self._telling.entry(turn_id, entry):
                    self._told.add(turn_id)
                    self._drop(turn_id)
                    if entry.data.get("status") == TurnStatus.SUSPENDED:
                        await self._tell_what_is_asked()

    async def _tell_what_is_asked(self) -> None:
        """Show what a turn waits for, and how somebody can answer."""
        self.tell_asked(await self._call.handle.view())

    def tell_asked(self, view: SessionView) -> None:
        """Show what a session asks, and keep in mind that it was shown."""
        for line in asked_lines(view):
            self._screen.note(line)
        self.has_shown(view)

    def has_shown(self, view: SessionView) -> None:
        """Keep in mind that somebody has seen what a session asks: that can be answered."""
        self.asked = tuple(request.request_id for request in view.interactions)
