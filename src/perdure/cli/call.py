"""A session command's line to its session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from perdure.cli.waiting import patiently
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


async def connected(target: Target) -> Call:
    """Connect to the server of a session.

    Raises:
        ServerUnavailable: nobody answers there.
    """
    client = await target.place.connect()
    return Call(target, SessionHandle(client, target.key, target.place.task_queue))
