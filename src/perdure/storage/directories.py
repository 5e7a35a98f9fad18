"""A content-addressed store in a directory that many processes share, and that can be swept beside them.

A name is `NAMESPACE/SESSION/CONTENT`: the first two are hashes that say whose it is, the last is the content's own. So
a repeated write is harmless, and a name never means two things. A file `.session` in each session's folder says in
plain words whose folder it is.

What is stored again becomes young again, and a sweep takes away only what has been old and stays so: see `remove`. No
lock is needed, and none would hold on every network file system.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LABEL = ".session"
AWAY = ".away-"
"""How the name of a file begins that a sweep has in its hands, and that can still be read."""

NEW = ".new-"
"""How the name of a file begins that is being written."""

WRITING_ATTEMPTS = 10
"""How often a write begins again whose folder was swept away under it: it was empty a moment before."""

_NAME = re.compile(r"(?:[0-9a-f]{16}/)?[0-9a-f]{32}/[0-9a-f]{64}")
_FOLDER = re.compile(r"[0-9a-f]{32}")
_CONTENT = re.compile(r"[0-9a-f]{64}")


class NotStoredError(LookupError):
    """Nothing is stored under this name, or it is not one of our names."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a folder is."""

    namespace: str
    workflow_id: str

    @property
    def folder(self) -> str:
        """The folder's name in the store; without a namespace it lies at the top."""
        session = _hash(self.workflow_id.encode())[:32]
        return f"{namespace_folder(self.namespace)}/{session}" if self.namespace else session


@dataclass(frozen=True, slots=True)
class Stored:
    """A file of the store, as a sweep sees it. `content` is None for what a killed writer left."""

    path: Path
    content: str | None
    modified: float
    size: int


def namespace_folder(namespace: str) -> str:
    """Return the folder of a namespace."""
    return _hash(namespace.encode())[:16]


class Directory:
    """A content-addressed store in a directory."""

    def __init__(self, root: Path, namespace: str = "") -> None:
        """Use `root`, which is made when something is written, for this namespace unless `put` names another."""
        self.root = root
        self._namespace = namespace

    def put(self, workflow_id: str, data: bytes, *, namespace: str | None = None) -> str:
        """Store data for a session and return its name. Durable when this returns, and young: no sweep takes it."""
        owner = Owner(self._namespace if namespace is None else namespace, workflow_id)
        name = f"{owner.folder}/{_hash(data)}"
        path = self.root / name
        if _touched(path, len(data)):
            return name
        for attempt in range(1, WRITING_ATTEMPTS + 1):
            try:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                _write(path, data)
                if not path.with_name(LABEL).exists():
                    self.label(owner)
            except FileNotFoundError:
                if attempt == WRITING_ATTEMPTS:
                    raise
            else:
                break
        return name

    def get(self, name: str) -> bytes:
        """Return what is stored under a name.

        Raises:
            NotStoredError: nothing is, or the name is not one of ours (a path trick, say), or the file was damaged.
        """
        if not _NAME.fullmatch(name):
            raise NotStoredError(name)
        path = self.root / name
        for place in _places(path):
            try:
                data = place.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                continue
            if _hash(data) == path.name:
                return data
        raise NotStoredError(name)

    def label(self, owner: Owner) -> None:
        """Write down whose a folder is."""
        text = json.dumps(asdict(owner), ensure_ascii=False)
        _write(self.root / owner.folder / LABEL, text.encode(errors="surrogatepass"))

    def folders(self, namespace: str) -> Iterator[Path]:
        """Yield the folders of a namespace's sessions."""
        found = _listed(self.root / namespace_folder(namespace))
        yield from (path for path in found if _FOLDER.fullmatch(path.name))

    def owner(self, folder: Path) -> Owner | None:
        """Return whose a folder is; None when nothing says so, or what does is not this folder's."""
        try:
            owner = Owner(**json.loads((folder / LABEL).read_bytes()))
            return owner if self.root / owner.folder == folder else None
        except (OSError, ValueError, TypeError, AttributeError):
            return None

    def now(self) -> float:
        """Return the time by the clock that stamps the files: where the disk is another machine's, that one's."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=self.root, prefix=NEW) as file:
            file.write(b"now")
            file.flush()
            return os.fstat(file.fileno()).st_mtime

    def count(self, owner: Owner) -> int:
        """Return how many files are stored for a session."""
        return sum(file.content is not None for file in stored(self.root / owner.folder))

    def forget(self, owner: Owner) -> int:
        """Remove all that is stored for a session, and return how many files that was. Writers may write anew."""
        files = self.count(owner)
        for file in stored(self.root / owner.folder):
            file.path.unlink(missing_ok=True)
        self.tidy(owner)
        return files

    def tidy(self, owner: Owner) -> None:
        """Take away a session's folder if nothing is in it but its label."""
        folder = self.root / owner.folder
        try:
            if any(path.name != LABEL for path in folder.iterdir()):
                return
            (folder / LABEL).unlink(missing_ok=True)
            folder.rmdir()
        except FileNotFoundError:  # another sweep has done it
            pass
        except OSError:  # something was stored just now, by somebody who saw the label still there
            with contextlib.suppress(FileNotFoundError):
                self.label(owner)


def stored(folder: Path) -> Iterator[Stored]:
    """Yield what lies in a session's folder, but for its label."""
    for path in _listed(folder):
        if path.name == LABEL:
            continue
        content = path.name.rpartition("-")[2] if path.name.startswith(AWAY) else path.name
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        yield Stored(path, content if _CONTENT.fullmatch(content) else None, found.st_mtime, found.st_size)


def remove(file: Stored, cutoff: float) -> bool:
    """Remove a file unless it was stored again since `cutoff`; tell whether it is gone.

    It is put aside first, which nobody can undo but us, and looked at then. Whoever stores the same content meanwhile
    either touched it before it was put aside: then it is young, and goes back. Or finds nothing at its place, even if
    the touch itself went through, and writes it anew. Opening asks the server for the time, where the disk is another
    machine's. Until it is gone it can be read, also if we are killed here.
    """
    content = file.content
    if content is None:
        file.path.unlink(missing_ok=True)
        return True
    aside = file.path.with_name(f"{AWAY}{uuid.uuid4().hex}-{content}")
    try:
        file.path.rename(aside)
        with aside.open("rb") as opened:
            young = os.fstat(opened.fileno()).st_mtime >= cutoff
        if young:
            aside.replace(file.path.with_name(content))
            return False
        aside.unlink()
    except FileNotFoundError:  # another sweep has it
        return False
    return True


def restore(file: Stored) -> None:
    """Put a file back to its place that a killed sweep had put aside."""
    if file.content is not None and file.path.name.startswith(AWAY):
        file.path.replace(file.path.with_name(file.content))


def _listed(folder: Path) -> list[Path]:
    """Return what is in a folder, in order; nothing when there is no folder."""
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []


def _touched(path: Path, size: int) -> bool:
    """Make a file young, and tell whether it is there, whole, after that."""
    try:
        os.utime(path)
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_size == size
    except (FileNotFoundError, NotADirectoryError):
        return False


def _places(path: Path) -> Iterator[Path]:
    """Yield where a content may be: at its place, in a sweep's hands, at its place again."""
    yield path
    yield from path.parent.glob(f"{AWAY}*-{path.name}")
    yield path


def _write(path: Path, data: bytes) -> None:
    """Write a file whole, or not at all; it is on the disk when this returns."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=NEW, delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    if os.name == "posix":  # elsewhere a folder can't be opened
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
