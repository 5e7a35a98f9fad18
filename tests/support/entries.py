"""Transcript entries that say what a test wants."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

from perdure import SessionKey, TranscriptEntry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.values import FrozenDict

START = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

_NUMBERS = itertools.count(1)


def fresh_key(user_id: str | None = "alice", agent_id: str = "support") -> SessionKey:
    """Return the key of a session that no other test has."""
    return SessionKey(agent_id, f"archived-{next(_NUMBERS)}", user_id)


def moment(seq: int) -> datetime:
    """Return when entry `seq` was made."""
    return START + timedelta(seconds=seq)


def said(seq: int, text: str = "hello", turn_id: str | None = "t-1") -> TranscriptEntry:
    """Return an entry in which somebody said something."""
    data = cast("FrozenDict", {"content": [{"type": "text", "text": text}]})
    return TranscriptEntry(seq=seq, at=moment(seq), kind="input", turn_id=turn_id, run_id="r-1", actor="bob", data=data)


def numbers(entries: Iterable[TranscriptEntry]) -> list[int]:
    """Return the sequence numbers of entries."""
    return [entry.seq for entry in entries]
