"""Sweeping a storage: taking away what nothing refers to any more, beside sessions and clients that go on working.

A payload goes when no history that Temporal still has mentions it, and nobody has stored it for a time. The time covers
what is stored already while the event that refers to it is still on its way. How a payload that is stored again at
this very moment is saved, `perdure.storage.directories.remove` says.

What tools returned is referred to by messages, which live in sessions, in the archive, in forks and in exported states.
It goes when its session is forgotten, not here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from temporalio.service import RPCError

from perdure.errors import ServerUnavailable
from perdure.storage import tenants
from perdure.storage.directories import Directory, Owner, Stored, remove, restore, stored
from perdure.storage.payloads import PAYLOADS, RESULTS
from perdure.storage.references import UnreadableReferenceError, references

if TYPE_CHECKING:
    from datetime import timedelta
    from pathlib import Path

    from temporalio.client import Client

UNLABELLED = "nothing says whose it is"


@dataclass(slots=True)
class Swept:
    """What a sweep has found and done so far. In a dry run `removed` is what would be removed."""

    dry_run: bool = False
    folders: int = 0
    """Sessions with something in the storage."""
    kept: Counter[str] = field(default_factory=Counter[str])
    removed: Counter[str] = field(default_factory=Counter[str])
    """Files and bytes, of `payloads`, `results` and `leftovers` of killed writers: `payloads`, `payloads_bytes`, ..."""
    left_alone: dict[str, str] = field(default_factory=dict[str, str])
    """Folders that were not touched, and why not."""

    def count(self, what: str, file: Stored, *, gone: bool) -> None:
        """Count a file."""
        counts = self.removed if gone else self.kept
        counts[what] += 1
        counts[f"{what}_bytes"] += file.size


Progress: TypeAlias = Callable[[Swept], None]


@dataclass(frozen=True, slots=True)
class _Sweep:
    client: Client
    older_than: timedelta
    swept: Swept
    progress: Progress


async def sweep(
    client: Client,
    root: Path,
    *,
    older_than: timedelta,
    dry_run: bool = False,
    progress: Progress = lambda _: None,
) -> Swept:
    """Remove what nothing refers to from the storage at `root`, of the client's namespace only.

    It may be stopped and begun again at any moment, and run beside itself, sessions and clients.

    Args:
        client: Of the server whose sessions keep their payloads there.
        root: What `PERDURE_STORAGE` names.
        older_than: What was stored since then stays. Longer than any call between storing a payload and telling the
            server of it may take, an outage included.
        dry_run: Remove nothing; count what would be.
        progress: Called behind each session's folder.

    Raises:
        ServerUnavailable: the server does not answer. What was removed until then is gone.
        ConfigurationError: another server has sessions of the same namespace in this storage.
    """
    sweeping = _Sweep(client, older_than, Swept(dry_run), progress)
    try:
        await tenants.require_only(client, root)
        await _sweep_all(sweeping, Directory(root / PAYLOADS), _payloads)
        await _sweep_all(sweeping, Directory(root / RESULTS), _results)
    except RPCError as error:
        msg = f"the sweep has stopped, since the server does not answer ({error.message}); begin it again"
        raise ServerUnavailable(msg) from error
    return sweeping.swept


Part: TypeAlias = "Callable[[_Sweep, Owner, list[Stored], float, Path], Awaitable[None]]"


async def _sweep_all(sweeping: _Sweep, directory: Directory, part: Part) -> None:
    """Sweep a part of the storage, folder by folder."""
    if not directory.root.exists():
        return
    swept = sweeping.swept
    cutoff = await asyncio.to_thread(directory.now) - sweeping.older_than.total_seconds()
    for folder in await asyncio.to_thread(list, directory.folders(sweeping.client.namespace)):
        swept.folders += 1
        files = await asyncio.to_thread(list, stored(folder))
        owner = directory.owner(folder)
        if owner is None:
            swept.left_alone[str(folder)] = UNLABELLED
        else:
            await part(sweeping, owner, files, cutoff, folder)
            if not swept.dry_run:
                await asyncio.to_thread(directory.tidy, owner)
        sweeping.progress(swept)


async def _payloads(sweeping: _Sweep, owner: Owner, files: list[Stored], cutoff: float, folder: Path) -> None:
    """Remove a session's payloads that are old and in no history. Histories are read only if something is old."""
    names: frozenset[bytes] | None = frozenset()
    if any(file.content and file.modified < cutoff for file in files):
        try:
            names = await references(sweeping.client, owner.workflow_id)
        except UnreadableReferenceError as error:
            sweeping.swept.left_alone[str(folder)] = str(error)
            return
    for file in files:
        wanted = file.content is not None and f"{owner.folder}/{file.content}".encode() in (names or ())
        await asyncio.to_thread(_sweep_file, sweeping.swept, "payloads", file, cutoff, wanted=wanted)


async def _results(sweeping: _Sweep, _: Owner, files: list[Stored], cutoff: float, __: Path) -> None:
    """Count what tools returned in a session; remove what killed writers have left beside it."""
    for file in files:
        wanted = file.content is not None
        await asyncio.to_thread(_sweep_file, sweeping.swept, "results", file, cutoff, wanted=wanted)


def _sweep_file(swept: Swept, what: str, file: Stored, cutoff: float, *, wanted: bool) -> None:
    """Remove a file that is old and not wanted; count it in any case."""
    gone = not wanted and file.modified < cutoff
    if not swept.dry_run:
        if gone:
            gone = remove(file, cutoff)
        elif wanted:
            restore(file)
    swept.count(what if file.content else "leftovers", file, gone=gone)
