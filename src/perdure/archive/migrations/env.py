"""What alembic runs to migrate; it is given the connection by `perdure.archive.migrating`."""

from alembic import context

from perdure.archive.migrating import VERSION_TABLE
from perdure.archive.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"], target_metadata=METADATA, version_table=VERSION_TABLE
)
with context.begin_transaction():
    context.run_migrations()
