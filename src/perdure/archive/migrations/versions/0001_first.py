"""Sessions, entries and checkpoints."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "perdure_sessions",
        sa.Column("workflow_id", sa.String, primary_key=True),
        sa.Column("agent_id", sa.String, nullable=False),
        sa.Column("user_id", sa.String),
        sa.Column("session_id", sa.String, nullable=False),
    )
    op.create_index("perdure_sessions_of_user", "perdure_sessions", ["user_id", "agent_id"])
    op.create_table(
        "perdure_entries",
        sa.Column("workflow_id", sa.String, _session(), primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("turn_id", sa.String),
        sa.Column("run_id", sa.String),
        sa.Column("actor", sa.String),
        sa.Column("entry", sa.Text, nullable=False),
    )
    op.create_index("perdure_entries_of_turn", "perdure_entries", ["workflow_id", "turn_id"])
    op.create_table(
        "perdure_checkpoints",
        sa.Column("workflow_id", sa.String, _session(), primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("session", sa.Text, nullable=False),
    )


def _session() -> sa.ForeignKey:
    return sa.ForeignKey("perdure_sessions.workflow_id", ondelete="CASCADE")
