"""The database brought to the form that this version knows, by alembic."""

from __future__ import annotations

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


def migrate(connection: Connection) -> None:
    """Bring a database to the newest form, in the transaction of `connection`. Several may try at once: one does it.

    Raises:
        ConfigurationError: the database was made by a newer version.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    config = Config()
    config.set_main_option("script_location", "perdure.archive:migrations")
    config.attributes["connection"] = connection
    scripts = ScriptDirectory.from_config(config)
    now = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()
    if now == scripts.get_current_head():
        return
    if now is not None and now not in {script.revision for script in scripts.walk_revisions()}:
        msg = (
            f"the archive is of a newer version of perdure (its form is {now!r}); install that, or name another archive"
        )
        raise ConfigurationError(msg)
    command.upgrade(config, "head")
