"""Which sessions were forgotten, so that nothing of them comes back."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table of what is not taken any more."""
    op.create_table(
        "perdure_forgotten",
        sa.Column("digest", sa.String, primary_key=True),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
    )
