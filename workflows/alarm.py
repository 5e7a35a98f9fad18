"""The alarm: one timer, for the moment at which time next brings something: to the active run, or to a question."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING

from temporalio import workflow

from perdure.facts import Fact, TimeExpired

if TYPE_CHECKING:
    from perdure.decide import Deadline

Take = Callable[[Fact], None]
Caught = Callable[[Awaitable[None]], Coroutine[object, object, None]]


class Alarm:
    """Rings once for each deadline that it is set to, and reports it to `take`."""

    def __init__(self, take: Take, caught: Caught) -> None:
        """Report to `take`. What goes wrong is seen by `caught`."""
        self._take = take
        self._caught = caught
        self._deadline: Deadline | None = None
        self._task: asyncio.Task[None] | None = None

    def set(self, deadline: Deadline | None) -> None:
        """Set the alarm, or unset it. Setting it to what it is set to already does nothing."""
        if deadline == self._deadline:
            return
        if self._task is not None:
            self._task.cancel()
        self._deadline = deadline
        self._task = None if deadline is None else asyncio.create_task(self._caught(self._ring(deadline)))

    async def _ring(self, deadline: Deadline) -> None:
        while (left := deadline.at - workflow.now()).total_seconds() > 0:  # clocks of servers differ: it may ring early
            await workflow.sleep(left, summary="what time brings next")
        self._take(TimeExpired(workflow.now(), deadline.about))
