"""The archive's tables, and the engine that reaches them.

An entry is kept whole, as JSON; what stands beside it in columns is for finding it, and for people who read SQL.
"""

from __future__ import annotations

import os
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Engine,
    ForeignKey,
    Index,
    MetaData,
    NullPool,
    String,
    Table,
    Text,
    TypeDecorator,
    create_engine,
    event,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from perdure.errors import ConfigurationError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Dialect


class UtcTime(TypeDecorator[datetime]):
    """A moment, in UTC on every database: SQLite keeps no zone, and PostgreSQL answers in its own."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Write it in UTC."""
        del dialect
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:  # noqa: ANN401  # the base's type
        """Read it as UTC."""
        del dialect
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


METADATA = MetaData()

SESSIONS = Table(
    "perdure_sessions",
    METADATA,
    Column("workflow_id", String, primary_key=True),
    Column("agent_id", String, nullable=False),
    Column("user_id", String),
    Column("session_id", String, nullable=False),
    Index("perdure_sessions_of_user", "user_id", "agent_id"),
)

ENTRIES = Table(
    "perdure_entries",
    METADATA,
    Column("workflow_id", String, ForeignKey(SESSIONS.c.workflow_id, ondelete="CASCADE"), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", UtcTime, nullable=False),
    Column("kind", String, nullable=False),
    Column("turn_id", String),
    Column("run_id", String),
    Column("actor", String),
    Column("entry", Text, nullable=False),
    Index("perdure_entries_of_turn", "workflow_id", "turn_id"),
)

CHECKPOINTS = Table(
    "perdure_checkpoints",
    METADATA,
    Column("workflow_id", String, ForeignKey(SESSIONS.c.workflow_id, ondelete="CASCADE"), primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("session", Text, nullable=False),
)

FORGOTTEN = Table(
    "perdure_forgotten",
    METADATA,
    Column("digest", String, primary_key=True),
    Column("until", UtcTime, nullable=False),
)
"""Of which sessions nothing up to a moment is taken any more: not their names, but digests of them."""

DRIVERS = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}
"""What a URL may begin with, and the driver that is used then."""

HOW = "write sqlite:////path/to/archive.db or postgresql://user:password@host/database"

THREADS = 4
"""Transactions that one process has under way at a time, and connections that it holds."""

AGAIN = 0.02
"""Seconds until SQLite is asked again that was busy, where it does not wait by itself."""

SQLITE_PATIENCE = 30
"""Seconds that a writer waits for another one. SQLite has room for one at a time."""

WRITES = "perdure_writes"
"""Execution option of a connection that is going to write: SQLite is told at the start, so that two who read first and
write then do not meet in a deadlock, which nothing waits out."""


def parsed(url: str) -> URL:
    """Return a URL, with the driver that perdure brings along.

    Raises:
        ConfigurationError: it is none, or of a database that perdure doesn't know.
    """
    try:
        made = make_url(url.strip())
    except (ArgumentError, ValueError):
        msg = f"PERDURE_ARCHIVE_URL is no SQLAlchemy URL; {HOW}"
        raise ConfigurationError(msg) from None
    driver = DRIVERS.get(made.drivername)
    if driver is None:
        msg = f"the archive can't be kept in {made.drivername}; {HOW}"
        raise ConfigurationError(msg)
    made = made.set(drivername=driver)
    return _absolute(made) if driver == "sqlite" else made


def _absolute(url: URL) -> URL:
    """Return a URL that means the same file wherever the process goes.

    Raises:
        ConfigurationError: it names no file; what is in memory would be lost.
    """
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        msg = f"the archive needs a file of its own, and {url} names none; {HOW}"
        raise ConfigurationError(msg)
    return url.set(database=str(Path(url.database).expanduser().absolute()))


def engine_for(url: URL) -> Engine:
    """Return the engine for a URL. Nothing is connected yet.

    Raises:
        ConfigurationError: its driver is not installed.
    """
    try:
        engine = create_engine(url, hide_parameters=True, **_options(url))
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        msg = f"the archive's driver is not installed ({error}): pip install 'perdure[postgres]'"
        raise ConfigurationError(msg) from None
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _options(url: URL) -> dict[str, object]:
    if url.get_backend_name() == "sqlite":
        # A file is opened in no time, and nothing stays open for who forgets to close the archive.
        return {"connect_args": {"timeout": SQLITE_PATIENCE, "check_same_thread": False}, "poolclass": NullPool}
    patience = {} if "connect_timeout" in url.query else {"connect_timeout": 5}
    return {
        "connect_args": patience,
        "pool_size": THREADS,
        "max_overflow": 0,
        "pool_pre_ping": True,
        "isolation_level": "READ COMMITTED",  # a writer must see what was committed while it waited
    }


def _set_up_sqlite(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # transactions begin where SQLAlchemy says so
    # FULL: sessions let go of what is here, so that it must be on the disk.
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def file_of(url: URL) -> Path | None:
    """Return the file of a SQLite database; None for another one."""
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def make_file(engine: Engine) -> None:
    """Make the file of a SQLite database, for its owner alone, and let readers go on beside a writer.

    Raises:
        OSError: it can't be made.
    """
    file = file_of(engine.url)
    if file is None:
        return
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
    with engine.connect() as connection:
        driver = connection.connection.driver_connection  # outside of a transaction, which SQLite asks for here
        if driver is not None:
            _write_ahead(driver)


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Have the file be written ahead. Of several who want that at once, SQLite tells some to come again later."""
    until = time.monotonic() + SQLITE_PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(AGAIN)
        else:
            return
