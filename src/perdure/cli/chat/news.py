"""What a session's transcript has that was not read before."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from perdure.client import SessionHandle
    from perdure.results import TranscriptEntry


class News:
    """A place in a transcript, which moves on with what is read."""

    def __init__(self, handle: SessionHandle) -> None:
        """Begin at the beginning."""
        self._handle = handle
        self._last: TranscriptEntry | None = None

    async def read(self) -> AsyncIterator[TranscriptEntry]:
        """Yield what is new. A session that was closed and begun again is new as a whole: it counts anew."""
        if self._last is not None and not await self._still_there(self._last):
            self._last = None
        async for entry in self._handle.transcript(0 if self._last is None else self._last.seq):
            self._last = entry
            yield entry

    async def _still_there(self, last: TranscriptEntry) -> bool:
        async for entry in self._handle.transcript(last.seq - 1):
            return entry == last
        return False
