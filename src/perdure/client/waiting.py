"""Waiting for turns. A session has room for few who wait at a time, so those of one process share a wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from perdure.results import TurnResult, TurnView

POLL_FIRST = 0.1
POLL_LAST = 1.0
"""Seconds between two looks at a turn whose session has no room for one more who waits; they grow."""


class Waits:
    """The waits that are under way, each for all who want the same."""

    def __init__(self) -> None:
        """Begin without any."""
        self._tasks: dict[tuple[str, str], asyncio.Task[TurnResult]] = {}
        self._waiting: dict[tuple[str, str], int] = {}

    async def share(
        self, workflow_id: str, turn_id: str, wait: Callable[[], Coroutine[object, object, TurnResult]]
    ) -> TurnResult:
        """Wait with those who wait for this turn already, or begin to by `wait`.

        Whoever is cancelled leaves the others waiting; when the last has left, the wait ends.
        """
        key = (workflow_id, turn_id)
        task = self._tasks.get(key)
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            task = self._tasks[key] = asyncio.create_task(wait())
            self._waiting[key] = 0
        self._waiting[key] += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._leave(key, task)

    def _leave(self, key: tuple[str, str], task: asyncio.Task[TurnResult]) -> None:
        if self._tasks.get(key) is not task:
            return
        self._waiting[key] -= 1
        if not self._waiting[key]:
            del self._tasks[key], self._waiting[key]
            task.cancel()


async def poll(look: Callable[[], Coroutine[object, object, TurnView]]) -> TurnResult:
    """Look at a turn again and again, with growing pauses, until it is settled."""
    pause = POLL_FIRST
    while True:
        turn = await look()
        if turn.status.settled:
            return turn.result()
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, POLL_LAST)
