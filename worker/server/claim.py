"""Getting a data folder for oneself, or the server that runs on it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, BinaryIO

from perdure.errors import ServerUnavailable
from worker.server.record import ServerRecord, make_private, read_record, remove_record, try_lock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

PAUSE = 0.05
"""Seconds between two looks at a lock: nothing tells when one is released."""


async def claim(folder: Path, *, reuse: bool, answers: Callable[[str], Awaitable[bool]]) -> BinaryIO | ServerRecord:
    """Return the folder's lock, or, with `reuse`, where the server of its owner is, once it `answers` at its address.

    It waits while neither can be had: an owner may be starting its server, or have died a moment ago.

    Raises:
        ServerUnavailable: somebody else has the folder, and `reuse` is not wanted.
    """
    make_private(folder)
    while True:
        if lock := try_lock(folder):
            remove_record(folder)
            return lock
        record = read_record(folder)
        if record and record.owner_lives:
            if not reuse:
                msg = f"process {record.owner_pid} runs a server on {folder}, at {record.address}"
                raise ServerUnavailable(msg)
            if await answers(record.address):
                return record
        await asyncio.sleep(PAUSE)


async def until_free(folder: Path) -> None:
    """Return when nobody has the folder's lock."""
    while (lock := try_lock(folder)) is None:  # noqa: ASYNC110  # a file lock has no event
        await asyncio.sleep(PAUSE)
    lock.close()
