"""Large payloads outside of history: a directory that all workers and clients of a setup share.

Content-addressed, one directory a session, written atomically, so that a repeated write is harmless and a name never
means two things.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

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

from perdure.contract import RETRIEVED, UNAVAILABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

PAYLOADS = "payloads"
RESULTS = "results"
"""Folders of the storage. A reference to a payload can't reach what tools have returned, and the other way round."""

DRIVER = "perdure-directory"
_NAME = re.compile(r"[0-9a-f]{32}/[0-9a-f]{64}")


class NotStoredError(LookupError):
    """Nothing is stored under this name, or it is not one of our names."""


class Directory:
    """A content-addressed store in a directory."""

    def __init__(self, root: Path) -> None:
        """Use `root`, which is made when something is written."""
        self._root = root

    def put(self, workflow_id: str, data: bytes) -> str:
        """Store data for a session and return its name. Durable when this returns."""
        name = f"{_folder(workflow_id)}/{hashlib.sha256(data).hexdigest()}"
        path = self._root / name
        if path.exists():
            return name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                Path(file.name).replace(path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
        return name

    def get(self, name: str) -> bytes:
        """Return what is stored under a name.

        Raises:
            NotStoredError: nothing is, or the name is not one of ours (a path trick, say), or the file was damaged.
        """
        if not _NAME.fullmatch(name):
            raise NotStoredError(name)
        try:
            data = (self._root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise NotStoredError(name) from None
        if hashlib.sha256(data).hexdigest() != name.partition("/")[2]:
            raise NotStoredError(name)
        return data

    def count(self, workflow_id: str) -> int:
        """Return how many files are stored for a session."""
        folder = self._root / _folder(workflow_id)
        return sum(not path.name.startswith(".") for path in folder.iterdir()) if folder.exists() else 0

    def forget(self, workflow_id: str) -> int:
        """Remove all that is stored for a session, and return how many files that was."""
        files = self.count(workflow_id)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._root / _folder(workflow_id))
        return files

    @property
    def beside(self) -> Directory:
        """What tools have returned: the store beside this one of payloads."""
        return Directory(self._root.parent / RESULTS)


def _folder(workflow_id: str) -> str:
    return hashlib.sha256(workflow_id.encode()).hexdigest()[:32]


class DirectoryDriver(StorageDriver):
    """Temporal's external storage on a `Directory`."""

    def __init__(self, directory: Directory) -> None:
        """Use this directory."""
        self._directory = directory

    @property
    def directories(self) -> tuple[Directory, Directory]:
        """Where payloads are stored, and what tools have returned."""
        return self._directory, self._directory.beside

    def name(self) -> str:
        """Return the name that references carry."""
        return DRIVER

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Store payloads under their session."""
        target = context.target
        workflow_id = target.id or "" if isinstance(target, StorageDriverWorkflowInfo) else ""
        datas = [payload.SerializeToString(deterministic=True) for payload in payloads]
        names = [await asyncio.to_thread(self._directory.put, workflow_id, data) for data in datas]
        return [StorageDriverClaim({"name": name}) for name in names]

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


def unavailable() -> Payload:
    """Return what stands in for a payload that can't be retrieved."""
    return Payload(metadata={"encoding": UNAVAILABLE})


def external_storage(root: Path | None, threshold: int) -> ExternalStorage:
    """Return the storage of payloads from `threshold` bytes on, in the directory `root`.

    Without a root nothing is stored, yet it is there: what claims to be stored must be refused in that case, too.
    """
    driver = DirectoryDriver(Directory(Path(os.devnull) if root is None else root / PAYLOADS))
    selector = None if root is not None else _store_nothing
    return TotalStorage(drivers=[driver], driver_selector=selector, payload_size_threshold=threshold)


def stores(converter: DataConverter) -> bool:
    """Tell whether a converter keeps large payloads outside of history."""
    storage = converter.external_storage
    return storage is not None and storage.driver_selector is not _store_nothing


def directories(converter: DataConverter) -> tuple[Directory, ...]:
    """Return where the sessions of a setup have what is stored outside of history."""
    storage = converter.external_storage
    if storage is None or not stores(converter):
        return ()
    drivers = [driver for driver in storage.drivers if isinstance(driver, DirectoryDriver)]
    return tuple(directory for driver in drivers for directory in driver.directories)


def _store_nothing(_: StorageDriverSelectContext, __: Payload) -> None:
    return None
