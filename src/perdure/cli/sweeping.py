"""The command that takes away stored payloads which nothing refers to any more."""

# typer reads the annotations when the program runs, so they are no strings here.

import json
import re
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.failures import WrongUsage
from perdure.cli.frame import CARE, command
from perdure.cli.options import Server, answering_server_options
from perdure.cli.terminal import fields, say, say_json, show
from perdure.errors import ConfigurationError
from perdure.storage.places import StoragePlace
from perdure.storage.sweeping import Swept, sweep as sweep_storage

UNITS = {"m": 60, "h": 3600, "d": 86_400}
SHORTEST = timedelta(hours=1)
"""What was stored since then may be on its way into a history still: calls are tried again for a while."""

PARTS = ("payloads", "results", "leftovers")
KB = 1000


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(
        app,
        answering_server_options,
        panel=CARE,
        examples=("perdure sweep --dry-run", "perdure sweep --older-than 7d", "perdure sweep --json  # from a timer"),
    )(sweep)


async def sweep(
    server: Server,
    *,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Only what nobody has stored for so long: 90m, 12h, 7d.")
    ] = "1d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing; tell what would be removed.")] = False,
) -> None:
    """Take payloads out of the storage folder that no history on the server mentions any more.

    Sessions, workers and clients may go on meanwhile, and other sweeps. It looks at the namespace that it is connected
    to, and leaves others alone. What tools returned stays. Buckets of S3 are not swept: docs/storage.md says why.
    """
    age = read_age(older_than)
    root = require_folder(server.place.storage)
    client = await server.place.connect()
    telling = Telling()
    swept = await sweep_storage(client, root, older_than=age, dry_run=dry_run, progress=telling)
    telling.end()
    say_json(json.dumps(as_json(swept))) if server.as_json else tell(swept)


def read_age(text: str) -> timedelta:
    """Read an age.

    Raises:
        WrongUsage: it is none, or so short that a sweep would not be safe.
    """
    found = re.fullmatch(r"(\d{1,6})([mhd])", text.strip())
    if found is None:
        msg = f"--older-than can't be {text!r}; write 90m, 12h, 7d"
        raise WrongUsage(msg)
    age = timedelta(seconds=int(found[1]) * UNITS[found[2]])
    if age < SHORTEST:
        msg = f"--older-than can't be {text!r}: at least 1h, so that what is on its way into a history stays"
        raise WrongUsage(msg)
    return age


def require_folder(place: StoragePlace | None) -> Path:
    """Return the folder to sweep.

    Raises:
        ConfigurationError: there is none.
    """
    if place is None:
        msg = "there is nothing to sweep: set PERDURE_STORAGE to the folder that workers and clients use"
        raise ConfigurationError(msg)
    if not isinstance(place, Path):
        msg = f"{place} is not swept, only folders are; docs/storage.md says what to do about buckets, and what not"
        raise ConfigurationError(msg)
    return place


class Telling:
    """Tells a person on a terminal how far a sweep is, once a second."""

    def __init__(self) -> None:
        """Say nothing yet."""
        self._told = time.monotonic()
        self._wanted = sys.stderr.isatty()
        self._said = False

    def __call__(self, swept: Swept) -> None:
        """Say how far it is."""
        if self._wanted and time.monotonic() - self._told > 1:
            self._told, self._said = time.monotonic(), True
            removed = sum(swept.removed[part] for part in PARTS)
            sys.stderr.write(f"\r{swept.folders} sessions, {removed} files removed")
            sys.stderr.flush()

    def end(self) -> None:
        """Make room for what comes."""
        if self._said:
            sys.stderr.write("\n")


def as_json(swept: Swept) -> dict[str, object]:
    """Return a report for programs."""
    return {
        "dry_run": swept.dry_run,
        "folders": swept.folders,
        "removed": _counts(swept.removed),
        "kept": _counts(swept.kept),
        "left_alone": swept.left_alone,
    }


def _counts(counts: dict[str, int]) -> dict[str, dict[str, int]]:
    return {part: {"files": counts.get(part, 0), "bytes": counts.get(f"{part}_bytes", 0)} for part in PARTS}


def tell(swept: Swept) -> None:
    """Print a report for people."""
    say("would remove" if swept.dry_run else "removed")
    show(fields((f"  {part}", _told(swept.removed, part)) for part in PARTS))
    say("kept")
    show(fields((f"  {part}", _told(swept.kept, part)) for part in PARTS))
    for folder, why in swept.left_alone.items():
        say(f"left alone: {folder}: {why}")


def _told(counts: dict[str, int], part: str) -> str:
    size = float(counts.get(f"{part}_bytes", 0))
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < KB or unit == "GB":
            break
        size /= KB
    return (
        f"{counts.get(part, 0)} ({size:.0f} {unit})"
        if unit == "bytes"
        else f"{counts.get(part, 0)} ({size:.1f} {unit})"
    )
