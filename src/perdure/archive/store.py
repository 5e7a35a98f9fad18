"""What the archive keeps, and how it is read. Everything may be repeated: nothing is ever kept twice or overwritten."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Self, TypeVar, cast

from sqlalchemy import ColumnElement, delete, func, inspect, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, TimeoutError as PoolTimeoutError

from perdure.archive.migrating import migrate
from perdure.archive.tables import CHECKPOINTS, ENTRIES, SESSIONS, WRITES, engine_for, file_of, parsed
from perdure.errors import ArchiveUnavailable
from perdure.identity import SessionKey
from perdure.results import TranscriptEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from datetime import datetime

    from sqlalchemy import Connection, Table
    from sqlalchemy.engine import URL

PAGE_BYTES = 1_000_000
PAGE_ENTRIES = 10_000
FETCHED = 200
"""Entries that are asked for at once; a page ends by its bytes, and one entry may be megabytes."""

NUL = "\N{REPLACEMENT CHARACTER}"
"""What stands for NUL in a column: PostgreSQL has no place for it. The entry itself has it, escaped as JSON does."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A closed session as JSON, whose last entry is `seq`."""

    seq: int
    at: datetime
    data: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How much was removed."""

    sessions: int = 0
    entries: int = 0
    checkpoints: int = 0


class Archive:
    """An archive in an SQL database. Its methods belong to no event loop: each works in a thread.

    Every method raises `ArchiveUnavailable` when the database can't be reached or refuses, and `ConfigurationError`
    when it is of a newer version. One that is cancelled may have done its work all the same.
    """

    def __init__(self, url: URL, *, create: bool) -> None:
        """Use the database of `url`; see `at`."""
        self._url = url
        self._create = create
        self._engine = engine_for(url)
        self._ready = False
        self._preparing = Lock()

    @classmethod
    def at(cls, url: str, *, create: bool = True) -> Self:
        """Return the archive of an SQLAlchemy URL. Nothing is connected yet.

        Without `create` nothing is made: a database that is not there, or has nothing of ours, reads as empty.

        Raises:
            ConfigurationError: the URL can't be used.
        """
        return cls(parsed(url), create=create)

    def __str__(self) -> str:
        """Return where it is, without a password."""
        return self._url.render_as_string(hide_password=True)

    # ---- what is kept -------------------------------------------------------------------------------------------

    async def append(self, workflow_id: str, entries: Sequence[TranscriptEntry]) -> None:
        """Keep entries of a session, all or none. One that is there already stays as it is."""
        rows = [_row(workflow_id, entry) for entry in entries]

        def work(connection: Connection) -> None:
            _know(connection, workflow_id)
            if rows:
                connection.execute(_insert(connection, ENTRIES).on_conflict_do_nothing(), rows)

        await self._do(work)

    async def keep_checkpoint(self, workflow_id: str, seq: int, at: datetime, data: str) -> None:
        """Keep a closed session in the place of an older one; an older one does not take the place of a newer."""
        row = {"workflow_id": workflow_id, "seq": seq, "at": at, "session": data}

        def work(connection: Connection) -> None:
            _know(connection, workflow_id)
            statement = _insert(connection, CHECKPOINTS).values(row)
            newer = statement.excluded.seq >= CHECKPOINTS.c.seq
            new = {name: statement.excluded[name] for name in ("seq", "at", "session")}
            connection.execute(statement.on_conflict_do_update(index_elements=["workflow_id"], set_=new, where=newer))

        await self._do(work)

    async def forget(self, workflow_ids: Sequence[str]) -> Forgotten:
        """Remove all that there is of these sessions, and return how much it was."""

        def work(connection: Connection) -> Forgotten:
            counts = [0, 0, 0]
            for workflow_id in workflow_ids:
                for place, table in enumerate((SESSIONS, ENTRIES, CHECKPOINTS)[::-1]):
                    done = connection.execute(delete(table).where(table.c.workflow_id == workflow_id))
                    counts[2 - place] += done.rowcount
            return Forgotten(*counts)

        return await self._do(work, nothing=Forgotten())

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
            wanted.append(ENTRIES.c.turn_id == _column(turn_id))
        query = select(ENTRIES.c.entry).where(*wanted).order_by(ENTRIES.c.seq).limit(limit)

        def work(connection: Connection) -> tuple[TranscriptEntry, ...]:
            found = connection.execution_options(yield_per=FETCHED).execute(query)
            entries = map(TranscriptEntry.model_validate_json, _fitting(map(_first, found), max_bytes))
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
        query = select(SESSIONS.c.workflow_id).where(SESSIONS.c.user_id.is_not_distinct_from(_column(user_id)))
        if agent_id is not None:
            query = query.where(SESSIONS.c.agent_id == _column(agent_id))

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
        """Let go of all connections."""
        await asyncio.to_thread(self._engine.dispose)

    async def _do(
        self, work: Callable[[Connection], Answer], *, writes: bool = True, nothing: Answer | None = None
    ) -> Answer:
        """Do something in one transaction, in a thread; `nothing` is the answer where there is nothing of ours."""
        return await asyncio.to_thread(self._work, work, writes=writes, nothing=nothing)

    def _work(self, work: Callable[[Connection], Answer], *, writes: bool, nothing: Answer | None) -> Answer:
        with self._named():
            if not self._prepared():
                return cast("Answer", nothing)
            with self._transaction(writes=writes) as connection:
                return work(connection)

    @contextmanager
    def _transaction(self, *, writes: bool) -> Generator[Connection]:
        with self._engine.connect().execution_options(**{WRITES: writes}) as connection, connection.begin():
            yield connection

    def _prepared(self) -> bool:
        """Tell whether the tables are there, and make them if that is wanted."""
        if self._ready:
            return True
        with self._preparing:
            if not self._create:
                self._ready = self._has_tables()
            elif not self._ready:
                self._migrate()
                self._ready = True
        return self._ready

    def _has_tables(self) -> bool:
        file = file_of(self._url)
        if file is not None and not file.exists():
            return False
        with self._engine.connect() as connection:
            return inspect(connection).has_table(ENTRIES.name)

    def _migrate(self) -> None:
        file = file_of(self._url)
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._transaction(writes=True) as connection:
            migrate(connection)

    @contextmanager
    def _named(self) -> Generator[None]:
        """Raise what the database says as an error of ours, which names it, and never its password."""
        try:
            yield
        except (SQLAlchemyError, PoolTimeoutError, OSError) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            first = str(cause).strip().partition("\n")[0]
            msg = f"the archive {self} can't be used: {first}; is PERDURE_ARCHIVE_URL right, and the database up?"
            raise ArchiveUnavailable(msg) from error


def _insert(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """Return an insert that can say what to do about a row that is there: the two dialects have the same words."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def _know(connection: Connection, workflow_id: str) -> None:
    key = SessionKey.parse(workflow_id)
    row = {
        "workflow_id": workflow_id,
        "agent_id": _column(key.agent_id),
        "user_id": _column(key.user_id),
        "session_id": _column(key.session_id),
    }
    connection.execute(_insert(connection, SESSIONS).values(row).on_conflict_do_nothing())


def _row(workflow_id: str, entry: TranscriptEntry) -> dict[str, object]:
    return {
        "workflow_id": workflow_id,
        "seq": entry.seq,
        "at": entry.at,
        "kind": entry.kind,
        "turn_id": _column(entry.turn_id),
        "run_id": _column(entry.run_id),
        "actor": _column(entry.actor),
        "entry": entry.model_dump_json(),
    }


def _column(text: str | None) -> str | None:
    return None if text is None else text.replace("\0", NUL)


def _first(row: Sequence[str]) -> str:
    return row[0]


def _fitting(texts: Iterator[str], room: int) -> Iterator[str]:
    """Yield texts while there is room; the first always fits."""
    for index, text in enumerate(texts):
        room -= len(text.encode())
        if room < 0 and index:
            return
        yield text
