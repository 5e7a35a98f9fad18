"""What the archive keeps, and how it is read. Everything may be repeated: nothing is ever kept twice or overwritten."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Self, TypeVar, cast

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from perdure.archive import writing
from perdure.archive.tables import (
    CHECKPOINTS,
    ENTRIES,
    SESSIONS,
    THREADS,
    WRITES,
    engine_for,
    file_of,
    make_file,
    parsed,
)
from perdure.archive.values import Checkpoint, Forgotten
from perdure.archive.writing import column
from perdure.errors import ArchiveUnavailable
from perdure.identity import SessionKey
from perdure.results import TranscriptEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Connection
    from sqlalchemy.engine import URL

PAGE_BYTES = 1_000_000
PAGE_ENTRIES = 10_000
FETCHED = 50
"""Entries that are asked for at once; a page ends by its bytes, and one entry may be megabytes."""

Answer = TypeVar("Answer")


class Archive:
    """An archive in an SQL database. Its methods belong to no event loop: each is one transaction, in a thread.

    Every method raises `ArchiveUnavailable` when the database can't be reached or refuses, and `ConfigurationError`
    when it is of a newer version. One that is cancelled may have done its work all the same, whole or not at all.
    """

    def __init__(self, url: URL, *, create: bool) -> None:
        """Use the database of `url`; see `at`."""
        self._url = url
        self._create = create
        self._engine = engine_for(url)
        self._newest = False
        self._found = False
        self._preparing = Lock()
        # Of its own: a database that hangs must not hold up what else of the process goes through threads.
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="perdure-archive")

    @classmethod
    def at(cls, url: str, *, create: bool = True) -> Self:
        """Return the archive of an SQLAlchemy URL. Nothing is connected yet.

        Without `create` nothing is made: a database that is not there, or has nothing of ours, reads as empty.

        Raises:
            ConfigurationError: the URL can't be used.
        """
        return cls(parsed(url), create=create)

    def __str__(self) -> str:
        """Return where it is, without a password: options are left out, for one may be in them."""
        return self._url.set(query={}).render_as_string(hide_password=True)

    @property
    def url(self) -> str:
        """Where it is, with its password."""
        return self._url.render_as_string(hide_password=False)

    # ---- what is kept -------------------------------------------------------------------------------------------

    async def append(self, workflow_id: str, entries: Sequence[TranscriptEntry]) -> None:
        """Keep entries of a session, all or none. One that is there already stays as it is.

        Those of a session that was forgotten since are left out.
        """
        kept = tuple(entries)
        await self._do(lambda connection: writing.append(connection, workflow_id, kept))

    async def keep_checkpoint(self, workflow_id: str, seq: int, at: datetime, data: str) -> None:
        """Keep a closed session in the place of an older one; an older one does not take the place of a newer."""
        given = Checkpoint(seq, at, data)
        await self._do(lambda connection: writing.keep_checkpoint(connection, workflow_id, given))

    async def forget(self, workflow_ids: Iterable[str], *, until: datetime | None = None) -> Forgotten:
        """Remove all that there is of these sessions, and return how much it was. Doing it again does nothing.

        What was on its way meanwhile is not taken any more: what happened up to `until`, or up to the last of what is
        removed. A session that begins anew is. Each session is a transaction of its own.
        """
        removed = Forgotten()
        for workflow_id in workflow_ids:
            if await self._in_thread(self._exists):
                removed += await self._do(
                    lambda connection, each=workflow_id: writing.forget(connection, each, until), changes_form=True
                )
        return removed

    async def forgotten(self, workflow_id: str) -> datetime | None:
        """Return up to when a session was forgotten; None if it was not, or a month ago."""
        return await self._do(
            lambda connection: writing.forgotten_until(connection, workflow_id), writes=False, nothing=None
        )

    # ---- what is read -------------------------------------------------------------------------------------------

    async def last_seq(self, workflow_id: str) -> int:
        """Return the number of the last entry of a session; 0 if there is none."""
        query = select(func.max(ENTRIES.c.seq)).where(ENTRIES.c.workflow_id == workflow_id)
        return await self._do(lambda connection: connection.execute(query).scalar() or 0, writes=False, nothing=0)

    async def entries(
        self,
        workflow_id: str,
        *,
        after: int = 0,
        turn_id: str | None = None,
        max_bytes: int = PAGE_BYTES,
        limit: int = PAGE_ENTRIES,
    ) -> tuple[TranscriptEntry, ...]:
        """Return entries of a session behind a number, in order; of one turn only, if it is named.

        They stay below `max_bytes`, unless the first alone is larger, and are no more than `limit`.
        """
        wanted: list[ColumnElement[bool]] = [ENTRIES.c.workflow_id == workflow_id, ENTRIES.c.seq > after]
        if turn_id is not None:
            wanted.append(ENTRIES.c.turn_id == column(turn_id))
        query = select(ENTRIES.c.entry).where(*wanted).order_by(ENTRIES.c.seq).limit(limit)

        def work(connection: Connection) -> tuple[TranscriptEntry, ...]:
            with connection.execution_options(yield_per=FETCHED).execute(query) as found:
                texts = list(_fitting(map(_first, found), max_bytes))
            entries = map(TranscriptEntry.model_validate_json, texts)
            return tuple(entry for entry in entries if turn_id is None or entry.turn_id == turn_id)

        return await self._do(work, writes=False, nothing=())

    async def checkpoint(self, workflow_id: str) -> Checkpoint | None:
        """Return a closed session, if it is there."""
        query = select(CHECKPOINTS.c.seq, CHECKPOINTS.c.at, CHECKPOINTS.c.session)

        def work(connection: Connection) -> Checkpoint | None:
            row = connection.execute(query.where(CHECKPOINTS.c.workflow_id == workflow_id)).one_or_none()
            return None if row is None else Checkpoint(*row)

        return await self._do(work, writes=False, nothing=None)

    async def sessions(self, *, user_id: str | None, agent_id: str | None = None) -> tuple[str, ...]:
        """Return the workflow ids of a user's sessions; of the anonymous user's for None."""
        query = select(SESSIONS.c.workflow_id).where(SESSIONS.c.user_id.is_not_distinct_from(column(user_id)))
        if agent_id is not None:
            query = query.where(SESSIONS.c.agent_id == column(agent_id))

        def work(connection: Connection) -> tuple[str, ...]:
            return tuple(sorted(map(_first, connection.execute(query))))

        found = await self._do(work, writes=False, nothing=())
        keys = {workflow_id: SessionKey.parse(workflow_id) for workflow_id in found}
        return tuple(one for one, key in keys.items() if key.user_id == user_id and agent_id in (None, key.agent_id))

    # ---- the database -------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Bring the database to the newest form. The other methods do that too, when it was not done."""
        await self._do(lambda _: None)

    async def aclose(self) -> None:
        """Let go of all connections, when what is under way has ended. It can't be used any more."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        self._engine.dispose()

    async def _do(
        self,
        work: Callable[[Connection], Answer],
        *,
        writes: bool = True,
        changes_form: bool = False,
        nothing: Answer | None = None,
    ) -> Answer:
        """Do something in one transaction; `nothing` is the answer where there is nothing of ours."""

        def done() -> Answer:
            if not self._prepared(create=self._create or changes_form):
                return cast("Answer", nothing)
            with self._transaction(writes=writes) as connection:
                return work(connection)

        return await self._in_thread(done)

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        def named() -> Answer:
            with self._named():
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._threads, named)

    @contextmanager
    def _transaction(self, *, writes: bool) -> Generator[Connection]:
        with self._engine.connect().execution_options(**{WRITES: writes}) as connection, connection.begin():
            yield connection

    def _prepared(self, *, create: bool) -> bool:
        """Tell whether the tables are there, and make them, or bring them to the newest form, if that is wanted."""
        with self._preparing:
            if self._gone():
                self._newest = self._found = False
            if self._newest:
                return True
            if not create:
                self._found = self._found or self._exists()
                return self._found
            self._migrate()
            self._newest = True
            return True

    def _migrate(self) -> None:
        from perdure.archive.migrating import migrate  # noqa: PLC0415  # alembic takes time, and is rarely needed

        make_file(self._engine)
        with self._transaction(writes=True) as connection:
            migrate(connection)

    def _gone(self) -> bool:
        file = file_of(self._url)
        return file is not None and not file.exists()

    def _exists(self) -> bool:
        """Tell whether there is anything of ours, which makes no file.

        Raises:
            ConfigurationError: it is of a newer version.
        """
        if self._gone():
            return False
        from perdure.archive.migrating import check_form  # noqa: PLC0415  # alembic takes time, and is rarely needed

        with self._engine.connect() as connection:
            return check_form(connection) is not None

    @contextmanager
    def _named(self) -> Generator[None]:
        """Raise what the database says as an error of ours, which names it, and never its password."""
        try:
            yield
        except (SQLAlchemyError, OSError) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            first = str(cause).strip().partition("\n")[0] or type(cause).__name__
            msg = f"the archive {self} can't be used: {first}; is PERDURE_ARCHIVE_URL right, and the database up?"
            raise ArchiveUnavailable(msg) from error


def _first(row: Sequence[str]) -> str:
    return row[0]


def _fitting(texts: Iterator[str], room: int) -> Iterator[str]:
    """Yield texts while there is room; the first always fits."""
    for index, text in enumerate(texts):
        room -= len(text.encode())
        if room < 0 and index:
            return
        yield text
