"""Faults that a demonstration or a test may ask for when it starts the service. Without these settings: none.

All strike between an effect and its answer: the one moment in which nobody outside can tell what happened.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

HOLD = "REFUNDS_HOLD_AFTER_COMMIT"
"""How many answers to recorded requests are held back until somebody releases them."""

DROP = "REFUNDS_DROP_AFTER_COMMIT"
"""How many answers to recorded requests are lost: the connection breaks in the middle of them."""

PROMISED = 64
"""Bytes that a lost answer announces and never sends."""


class LostAnswer(Response):
    """An answer that breaks off: the headers promise a body, and the connection closes without it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI's signature
        """Send the beginning, and leave the rest out."""
        headers = [(b"content-type", b"application/json"), (b"content-length", str(PROMISED).encode())]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"created": ', "more_body": True})


@dataclass
class Faults:
    """How many answers are still to be held or lost, and how many are held at this moment."""

    to_hold: int = 0
    to_drop: int = 0
    held: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Faults:
        """Read the settings.

        Raises:
            ValueError: a setting is not a number.
        """
        return cls(to_hold=int(environment.get(HOLD, "0")), to_drop=int(environment.get(DROP, "0")))

    async def after_commit(self, request: Request, answer: Response) -> Response:
        """Return the answer, perhaps later, or a broken one in its place."""
        if self.to_drop > 0:
            self.to_drop -= 1
            return LostAnswer()
        if self.to_hold > 0:
            self.to_hold -= 1
            await self._hold(request)
        return answer

    async def _hold(self, request: Request) -> None:
        """Wait until the answers are released or nobody waits for this one any more."""
        self.held += 1
        ends: set[asyncio.Task[Any]] = {
            asyncio.create_task(self.released.wait()),
            asyncio.create_task(_gone(request)),
        }
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.held -= 1
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)

    def release(self) -> None:
        """Let all held answers go, and hold no more."""
        self.to_hold = 0
        self.released.set()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
