"""Large payloads outside of history: a directory, or a bucket, that all workers and clients of a setup share."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.converter import (
    DataConverter,
    ExternalStorage,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverSelectContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
)

from perdure.contract import RETRIEVED
from perdure.storage.directories import Directory, NotStoredError, Owner
from perdure.storage.places import Bucket
from perdure.storage.unavailable import unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.storage.places import StoragePlace

PAYLOADS = "payloads"
RESULTS = "results"
"""Folders of the storage. A reference to a payload can't reach what tools have returned, and the other way round."""

DRIVER = "perdure-directory"


@runtime_checkable
class Holder(Protocol):
    """Something that can tell what it holds of a session, and forget it."""

    async def count(self, owner: Owner) -> int:
        """Return how many things are stored for a session."""
        ...

    async def forget(self, owner: Owner) -> int:
        """Remove all that is stored for a session, and return how many things that was."""
        ...


class DirectoryDriver(StorageDriver):
    """Temporal's external storage on a `Directory`."""

    def __init__(self, directory: Directory) -> None:
        """Use this directory."""
        self._directory = directory

    def name(self) -> str:
        """Return the name that references carry."""
        return DRIVER

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Store payloads under their session. What is of no session (workflow id "") is never swept."""
        target = context.target
        workflow_id = target.id or "" if isinstance(target, StorageDriverWorkflowInfo) else ""
        namespace = "" if target is None else target.namespace
        datas = [payload.SerializeToString(deterministic=True) for payload in payloads]
        names = [await asyncio.to_thread(self._directory.put, workflow_id, data, namespace=namespace) for data in datas]
        return [StorageDriverClaim({"name": name}) for name in names]

    async def count(self, owner: Owner) -> int:
        """Return how many files are stored for a session: payloads, and what tools have returned."""
        return await asyncio.to_thread(lambda: sum(each.count(owner) for each in self._all))

    async def forget(self, owner: Owner) -> int:
        """Remove all of them, and return how many they were."""
        return await asyncio.to_thread(lambda: sum(each.forget(owner) for each in self._all))

    @property
    def _all(self) -> tuple[Directory, Directory]:
        return self._directory, Directory(self._directory.root.parent / RESULTS)

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """Retrieve payloads; what is not there becomes a payload that nothing accepts."""
        del context
        return [await asyncio.to_thread(self._get, claim.claim_data.get("name", "")) for claim in claims]

    def _get(self, name: str) -> Payload:
        try:
            return Payload.FromString(self._directory.get(name))
        except (NotStoredError, ValueError, DecodeError):
            return unavailable()


class TotalStorage(ExternalStorage):
    """External storage whose retrieval never raises for what a sender can forge.

    A signal that claims to be stored where no driver is would otherwise fail every workflow task of its session, for
    ever: the SDK retrieves before any handler runs. Errors of the disk still raise, and the task is tried again.
    """

    async def _retrieve_payload(self, payload: Payload) -> Payload:
        try:
            retrieved = await super()._retrieve_payload(payload)
        except (ValueError, KeyError, TypeError, RuntimeError):
            return unavailable()
        if retrieved is not payload:
            retrieved.metadata[RETRIEVED] = b"true"
        return retrieved

    async def _retrieve_payloads(self, payloads: Payloads) -> None:  # type: ignore[override]
        for index, payload in enumerate(list(payloads.payloads)):
            payloads.payloads[index].CopyFrom(await self._retrieve_payload(payload))

    async def _retrieve_payload_sequence(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [await self._retrieve_payload(payload) for payload in payloads]


def external_storage(place: StoragePlace | None, threshold: int) -> ExternalStorage:
    """Return the storage of payloads from `threshold` bytes on, in a folder or a bucket.

    Without a place nothing is stored, yet it is there: what claims to be stored must be refused in that case, too.

    Raises:
        ConfigurationError: it is a bucket, and what that needs is not installed.
    """
    if isinstance(place, Bucket):
        from perdure.storage.buckets import BucketDriver  # noqa: PLC0415  # needs an extra

        driver: StorageDriver = BucketDriver(place)
    else:
        driver = DirectoryDriver(Directory(Path(os.devnull) if place is None else place / PAYLOADS))
    selector = None if place is not None else _store_nothing
    return TotalStorage(drivers=[driver], driver_selector=selector, payload_size_threshold=threshold)


def stores(converter: DataConverter) -> bool:
    """Tell whether a converter keeps large payloads outside of history."""
    storage = converter.external_storage
    return storage is not None and storage.driver_selector is not _store_nothing


def holders(converter: DataConverter) -> tuple[Holder, ...]:
    """Return what holds, for a setup, what its sessions have outside of history."""
    storage = converter.external_storage
    if storage is None or not stores(converter):
        return ()
    return tuple(driver for driver in storage.drivers if isinstance(driver, Holder))


def _store_nothing(_: StorageDriverSelectContext, __: Payload) -> None:
    return None
