"""A session command's line to its session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from perdure.archive import archive_from_environment
from perdure.cli.waiting import patiently, told_when_nobody_works
from perdure.client import SessionHandle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from perdure.cli.options import Target

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Call:
    """A connected session."""

    target: Target
    handle: SessionHandle

    async def patiently(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Ask, for as long as it takes; say so when no worker is there. `ask` may be called more than once."""
        return await patiently(self.handle, self.target.place, ask)

    async def once(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Ask what must not be asked twice, for it would happen twice; say so when no worker is there."""
        async with told_when_nobody_works(self.handle, self.target.place):
            return await ask()


async def connected(target: Target) -> Call:
    """Connect to the server of a session.

    Raises:
        ServerUnavailable: nobody answers there.
    """
    client = await target.place.connect()
    archive = archive_from_environment()
    return Call(target, SessionHandle(client, target.key, target.place.task_queue, archive=archive))
