"""Connecting to Temporal as every Temporal program does: by `TEMPORAL_ADDRESS` and its like, profiles, TLS, keys."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
from typing import TYPE_CHECKING

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfig

from perdure.errors import ConfigurationError, ServerUnavailable
from perdure.storage import external_storage
from perdure.storage.places import storage_place

if TYPE_CHECKING:
    from temporalio.converter import DataConverter
    from temporalio.runtime import Runtime

    from perdure.storage.places import StoragePlace

DEFAULT_ADDRESS = "localhost:7233"
CONNECT_SECONDS = 10
"""How long an address may take to answer before we say that nobody does."""

STORAGE = "PERDURE_STORAGE"
STORAGE_THRESHOLD = "PERDURE_STORAGE_THRESHOLD"
DEFAULT_THRESHOLD = 128 * 1024


def data_converter(storage: StoragePlace | None, threshold: int = DEFAULT_THRESHOLD) -> DataConverter:
    """Return the converter that clients and workers of one setup share.

    Raises:
        ConfigurationError: the storage is a bucket, and what that needs is not installed.
    """
    return dataclasses.replace(pydantic_data_converter, external_storage=external_storage(storage, threshold))


def storage_from_environment() -> StoragePlace | None:
    """Return where large payloads go, from `PERDURE_STORAGE`, if it says so.

    Raises:
        ConfigurationError: it names neither a folder nor a bucket.
    """
    value = os.environ.get(STORAGE, "").strip()
    try:
        return storage_place(value) if value else None
    except ValueError as error:
        msg = f"{STORAGE} can't be {value!r}: {error}"
        raise ConfigurationError(msg) from None


def threshold_from_environment() -> int:
    """Return the size from which payloads are large, from `PERDURE_STORAGE_THRESHOLD`."""
    value = os.environ.get(STORAGE_THRESHOLD, "").strip()
    return int(value) if value.isdecimal() else DEFAULT_THRESHOLD


async def connect(
    address: str | None = None,
    namespace: str | None = None,
    *,
    converter: DataConverter | None = None,
    runtime: Runtime | None = None,
) -> Client:
    """Connect to a Temporal server. Arguments win over the environment, and that over a profile.

    Raises:
        ServerUnavailable: nobody answers there, or the server refuses us.
        ConfigurationError: `PERDURE_STORAGE` can't be used.
    """
    config = ClientConfig.load_client_connect_config()
    if address is not None:
        config["target_host"] = address
    if namespace is not None:
        config["namespace"] = namespace
    target = config.setdefault("target_host", DEFAULT_ADDRESS)
    if converter is None:
        converter = data_converter(storage_from_environment(), threshold_from_environment())
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await Client.connect(**config, data_converter=converter, runtime=runtime)
    except (RuntimeError, TimeoutError, ValueError) as error:
        why = "it did not answer in time" if isinstance(error, TimeoutError) else _short(error)
        msg = (
            f"no Temporal server at {target} ({why}): start one with `perdure dev MODULE:APP`, or set TEMPORAL_ADDRESS"
        )
        raise ServerUnavailable(msg) from error


def _short(error: Exception) -> str:
    """Return the innermost cause that the SDK's client names, if it names one, without its wrappings."""
    text = str(error)
    if found := re.search(r'(?:message|error): "([^"]+)"', text):
        return found.group(1)
    return text.splitlines()[0][:200] if text else type(error).__name__
