"""What is written to the archive, each in the transaction that it is given.

When a session is forgotten, an activity may be on its way that knows nothing of that. So whoever writes about a session
has it for itself, and what happened up to its being forgotten is not taken any more. A session of the same name that
begins later is.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import and_, delete, func, inspect, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from perdure.archive.tables import CHECKPOINTS, ENTRIES, FORGOTTEN, SESSIONS
from perdure.archive.values import Forgotten
from perdure.identity import SessionKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Table

    from perdure.archive.values import Checkpoint
    from perdure.results import TranscriptEntry

NUL = "\N{REPLACEMENT CHARACTER}"
"""What stands for NUL in a column: PostgreSQL has no place for it. The entry itself has it, escaped as JSON does."""

REMEMBERED = timedelta(days=30)
"""How long it is known that a session was forgotten: by far longer than an activity can be late."""


def append(connection: Connection, workflow_id: str, entries: Sequence[TranscriptEntry]) -> None:
    """Keep entries; one that is there already stays as it is."""
    until = _alone_with(connection, workflow_id)
    rows = [_row(workflow_id, entry) for entry in entries if until is None or entry.at > until]
    if rows:
        _know(connection, workflow_id)
        connection.execute(_insert(connection, ENTRIES).on_conflict_do_nothing(), rows)


def keep_checkpoint(connection: Connection, workflow_id: str, given: Checkpoint) -> None:
    """Keep a checkpoint in the place of an older one."""
    until = _alone_with(connection, workflow_id)
    if until is not None and given.at <= until:
        return
    _know(connection, workflow_id)
    new = {"seq": given.seq, "at": given.at, "session": given.data}
    kept = CHECKPOINTS.c
    newer = or_(kept.seq < given.seq, and_(kept.seq == given.seq, kept.at <= given.at))
    statement = _insert(connection, CHECKPOINTS).values(workflow_id=workflow_id, **new)
    connection.execute(statement.on_conflict_do_update(index_elements=["workflow_id"], set_=new, where=newer))


def forget(connection: Connection, workflow_id: str, until: datetime | None) -> Forgotten:
    """Remove a session, and take nothing of it any more up to `until` or the last of what there is."""
    before = _alone_with(connection, workflow_id)
    moments = [_last(connection, ENTRIES, workflow_id), _last(connection, CHECKPOINTS, workflow_id), before, until]
    known = [moment for moment in moments if moment is not None]
    connection.execute(delete(FORGOTTEN).where(FORGOTTEN.c.until < datetime.now(UTC) - REMEMBERED))
    if known:
        new = {"until": max(known)}
        statement = _insert(connection, FORGOTTEN).values(digest=_digest(workflow_id), **new)
        connection.execute(statement.on_conflict_do_update(index_elements=["digest"], set_=new))
    removed = [
        connection.execute(delete(table).where(table.c.workflow_id == workflow_id)).rowcount
        for table in (CHECKPOINTS, ENTRIES, SESSIONS)
    ]
    return Forgotten(*reversed(removed))


def forgotten_until(connection: Connection, workflow_id: str) -> datetime | None:
    """Return up to when a session was forgotten; an older form of the database knows of none."""
    return _until(connection, workflow_id) if inspect(connection).has_table(FORGOTTEN.name) else None


def column(text: str | None) -> str | None:
    """Return text as a column can hold it."""
    return None if text is None else text.replace("\0", NUL)


def _alone_with(connection: Connection, workflow_id: str) -> datetime | None:
    """Wait until nobody else writes about a session, and return up to when it was forgotten, if it was.

    SQLite has one writer at a time in any case.
    """
    if connection.dialect.name == "postgresql":
        number = int.from_bytes(hashlib.sha256(workflow_id.encode()).digest()[:8], "big", signed=True)
        connection.execute(select(func.pg_advisory_xact_lock(number)))
    return _until(connection, workflow_id)


def _until(connection: Connection, workflow_id: str) -> datetime | None:
    found = select(FORGOTTEN.c.until).where(FORGOTTEN.c.digest == _digest(workflow_id))
    return connection.execute(found).scalar_one_or_none()


def _digest(workflow_id: str) -> str:
    return hashlib.sha256(workflow_id.encode()).hexdigest()


def _last(connection: Connection, table: Table, workflow_id: str) -> datetime | None:
    return connection.execute(select(func.max(table.c.at)).where(table.c.workflow_id == workflow_id)).scalar_one()


def _insert(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """Return an insert that can say what to do about a row that is there: the two dialects have the same words."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def _know(connection: Connection, workflow_id: str) -> None:
    key = SessionKey.parse(workflow_id)
    row = {
        "workflow_id": workflow_id,
        "agent_id": column(key.agent_id),
        "user_id": column(key.user_id),
        "session_id": column(key.session_id),
    }
    connection.execute(_insert(connection, SESSIONS).values(row).on_conflict_do_nothing())


def _row(workflow_id: str, entry: TranscriptEntry) -> dict[str, object]:
    return {
        "workflow_id": workflow_id,
        "seq": entry.seq,
        "at": entry.at,
        "kind": entry.kind,
        "turn_id": column(entry.turn_id),
        "run_id": column(entry.run_id),
        "actor": column(entry.actor),
        "entry": entry.model_dump_json(),
    }
