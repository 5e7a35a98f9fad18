"""Heartbeats: every activity of ours beats by itself, so that a dead worker is noticed and a cancellation arrives."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from temporalio import activity

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

INTERVAL = 0.5
"""Seconds. Cancellation comes back with a heartbeat, so this bounds how late an interrupt is noticed."""


@asynccontextmanager
async def beating() -> AsyncGenerator[None]:
    """Beat until the block is left. Tools need not know of heartbeats, however long they run."""
    task = asyncio.create_task(_beat())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _beat() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(INTERVAL)


def cancelled_by_session() -> bool:
    """Tell whether the session itself asked for the cancellation, rather than a worker that stops."""
    details = activity.cancellation_details()
    return details is not None and details.cancel_requested
