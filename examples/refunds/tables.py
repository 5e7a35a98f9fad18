"""The ledger's tables and the way to its file. What must never happen is a constraint here, not a hope in the code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import (
    URL,
    CheckConstraint,
    Column,
    Connection,
    Engine,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    create_engine,
    event,
)

from examples.refunds.records import Status

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

metadata = MetaData()

orders = Table(
    "orders",
    metadata,
    Column("order_id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("amount_cents", Integer, nullable=False),
    Column("currency", Text, nullable=False),
    CheckConstraint("amount_cents > 0"),
)

requests = Table(
    "requests",
    metadata,
    Column("request_id", Text, primary_key=True),
    Column("order_id", Text, ForeignKey("orders.order_id"), nullable=False),
    Column("user_id", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("amount_cents", Integer, nullable=False),
    Column("currency", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("operation_id", Text, nullable=False, unique=True),
    Column("created_at", Text, nullable=False),
    Column("updated_at", Text, nullable=False),
    CheckConstraint(f"status IN ({', '.join(repr(str(status)) for status in Status)})"),
)

Index(
    "one_standing_request_per_order",
    requests.c.order_id,
    unique=True,
    sqlite_where=requests.c.status != str(Status.REJECTED),
)
# A paid request still stands: an order is not refunded a second time.

payments = Table(
    "payments",
    metadata,
    Column("payment_id", Text, primary_key=True),
    Column("request_id", Text, ForeignKey("requests.request_id"), nullable=False, unique=True),
    Column("amount_cents", Integer, nullable=False),
    Column("currency", Text, nullable=False),
    Column("paid_at", Text, nullable=False),
)

answers = Table(
    "answers",
    metadata,
    Column("operation_id", Text, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    Column("answer", Text, nullable=False),
)
"""What each idempotency key was answered, so that a lost answer can be given again word for word."""

PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON")
"""FULL, since a ledger must not lose its last entry when the power goes."""

BUSY_SECONDS = 20
"""How long a writer waits for its turn before it gives up and the service answers 503."""

WRITES = "ledger_writes"
"""The execution option of a connection that is going to write."""


def open_engine(file: Path) -> Engine:
    """Open the ledger's file, and make it with its tables when it is not there."""
    engine = create_engine(URL.create("sqlite", database=str(file)), connect_args={"timeout": BUSY_SECONDS})
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    with engine.connect().execution_options(**{WRITES: True}) as connection, connection.begin():
        metadata.create_all(connection)
    return engine


def _configure(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # transactions begin where we say so, not where the driver guesses
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    # A writer takes its lock before it reads, so that what it read still holds when it writes.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get(WRITES) else "BEGIN")
