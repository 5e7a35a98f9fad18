"""The database brought to the form that this version knows, by alembic."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from perdure.errors import ConfigurationError

if TYPE_CHECKING:
    from sqlalchemy import Connection

VERSION_TABLE = "perdure_archive_version"
"""Where alembic writes how far a database is. A name of ours, so that a database can hold other things too."""

LOCK = 5_301_964_217
"""The PostgreSQL advisory lock of who migrates. Any number will do, as long as it is always the same."""


_ONE_AT_A_TIME = threading.Lock()
"""Alembic keeps what it works on in globals of the process."""


def migrate(connection: Connection) -> None:
    """Bring a database to the newest form, in the transaction of `connection`. Several may try at once: one does it.

    Raises:
        ConfigurationError: the database was made by a newer version.
    """
    with _ONE_AT_A_TIME:
        _migrate(connection)


def _migrate(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    config = _config(connection)
    if check_form(connection) != ScriptDirectory.from_config(config).get_current_head():
        command.upgrade(config, "head")


def check_form(connection: Connection) -> str | None:
    """Return which form a database is of; None for one without an archive.

    Raises:
        ConfigurationError: it was made by a newer version.
    """
    now = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()
    scripts = ScriptDirectory.from_config(_config(connection))
    if now is not None and now not in {script.revision for script in scripts.walk_revisions()}:
        msg = (
            f"the archive is of a newer version of perdure (its form is {now!r}); install that, or name another archive"
        )
        raise ConfigurationError(msg)
    return now


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", "perdure.archive:migrations")
    config.attributes["connection"] = connection
    return config
