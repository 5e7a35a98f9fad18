"""What a worker sees to before it keeps payloads in a storage."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from temporalio.service import RPCError

from perdure.errors import ConfigurationError
from perdure.storage import tenants
from perdure.storage.places import Bucket

if TYPE_CHECKING:
    from pathlib import Path

    from temporalio.client import Client

    from perdure.storage.places import StoragePlace

log = logging.getLogger("perdure.worker")


async def require_storage(client: Client, place: StoragePlace | None) -> None:
    """See that payloads can be kept there, and write down which server's they are.

    Raises:
        ConfigurationError: they can't. The message says why, and what to do.
    """
    if place is None:
        return
    if isinstance(place, Bucket):
        from perdure.storage.buckets import require_bucket  # noqa: PLC0415  # needs an extra

        await asyncio.to_thread(require_bucket, place)
        return
    await asyncio.to_thread(_require_folder, place)
    try:
        await tenants.register(client, place)
    except RPCError as error:  # a sweep asks again, and does not go on without an answer
        log.warning("the server does not say which namespace this is", extra={"error": str(error)})


def _require_folder(place: Path) -> None:
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        writable = os.access(place, os.W_OK | os.X_OK)
    except OSError as error:
        msg = f"large payloads can't be kept in {place}: {error.strerror}; set PERDURE_STORAGE to another folder"
        raise ConfigurationError(msg) from None
    if not writable:
        msg = f"large payloads can't be kept in {place}: it is not writable; set PERDURE_STORAGE to another folder"
        raise ConfigurationError(msg)
