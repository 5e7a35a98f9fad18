"""The archive's tables, and the engine that reaches them.

An entry is kept whole, as JSON; what stands beside it in columns is for finding it, and for people who read SQL.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Engine,
    ForeignKey,
    Index,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from perdure.errors import ConfigurationError

if TYPE_CHECKING:
    import sqlite3

    from sqlalchemy import Connection

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
    Column("at", DateTime(timezone=True), nullable=False),
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
    Column("at", DateTime(timezone=True), nullable=False),
    Column("session", Text, nullable=False),
)

DIALECTS = ("sqlite", "postgresql")

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
        made = make_url(url)
    except ArgumentError:
        msg = (
            "PERDURE_ARCHIVE_URL is no SQLAlchemy URL; write sqlite:////path/to/archive.db or postgresql://user@host/db"
        )
        raise ConfigurationError(msg) from None
    dialect = made.get_backend_name()
    if dialect not in DIALECTS:
        msg = f"the archive is kept in {' or '.join(DIALECTS)}, and not in {dialect}"
        raise ConfigurationError(msg)
    return made.set(drivername="postgresql+psycopg") if dialect == "postgresql" else made


def engine_for(url: URL) -> Engine:
    """Return the engine for a URL. Nothing is connected yet.

    Raises:
        ConfigurationError: its driver is not installed.
    """
    try:
        engine = create_engine(url, pool_pre_ping=True, json_serializer=None, **_options(url))
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        msg = f"the archive's driver is not installed ({error}): pip install 'perdure[postgres]'"
        raise ConfigurationError(msg) from None
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _options(url: URL) -> dict[str, object]:
    if url.get_backend_name() == "sqlite":
        return {"connect_args": {"timeout": SQLITE_PATIENCE, "check_same_thread": False}}
    return {"connect_args": {"connect_timeout": 5}, "pool_size": 4, "max_overflow": 4, "pool_timeout": 30}


def _set_up_sqlite(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # transactions begin where SQLAlchemy says so
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def file_of(url: URL) -> Path | None:
    """Return the file of a SQLite database; None for another one, or one in memory."""
    if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
        return None
    return Path(url.database)
