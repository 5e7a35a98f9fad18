"""Who may run a server on a data folder, and where the one that does can be found."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING, BinaryIO

from pydantic import BaseModel, ValidationError

if TYPE_CHECKING:
    from pathlib import Path

LOCK = "server.lock"
RECORD = "server.json"


class ServerRecord(BaseModel, frozen=True):
    """Where a server of a data folder listens. It is believed only while somebody holds the folder's lock."""

    owner_pid: int
    server_pid: int
    address: str
    ui_address: str | None = None
    namespace: str = "default"

    @property
    def owner_lives(self) -> bool:
        """Whether the process that started the server is there. Without it the server is about to end."""
        try:
            os.kill(self.owner_pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def write(self, folder: Path) -> None:
        """Put the record into the folder, whole or not at all."""
        draft = folder / f"{RECORD}.{os.getpid()}"
        draft.write_text(self.model_dump_json(indent=2) + "\n")
        draft.replace(folder / RECORD)


def read_record(folder: Path) -> ServerRecord | None:
    """Return the folder's record, believed or not; None when there is none that can be read."""
    try:
        return ServerRecord.model_validate_json((folder / RECORD).read_bytes())
    except (OSError, ValidationError):
        return None


def remove_record(folder: Path) -> None:
    """Take the record away, if there is one."""
    (folder / RECORD).unlink(missing_ok=True)


def make_private(folder: Path) -> None:
    """Make the folder if it is missing, for the eyes of its owner only: conversations will be in it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def try_lock(folder: Path) -> BinaryIO | None:
    """Take the folder's lock, or return None when somebody has it.

    The lock is held until the returned file is closed here *and* in each process that inherited it: the server does,
    so that a folder whose server still lives is never taken by another one.
    """
    file = (folder / LOCK).open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except BaseException:
        file.close()
        raise
    return file


def running_server(folder: Path) -> ServerRecord | None:
    """Return where this folder's server is, if one runs. Whether it answers is not tried."""
    with contextlib.suppress(FileNotFoundError):
        if lock := try_lock(folder):
            lock.close()
            return None
        return read_record(folder)
    return None
