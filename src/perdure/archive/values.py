"""What the archive answers with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A closed session as JSON, whose last entry is `seq`."""

    seq: int
    at: datetime
    data: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How much was removed."""

    sessions: int = 0
    entries: int = 0
    checkpoints: int = 0

    def __add__(self, other: Forgotten) -> Forgotten:
        """Add up."""
        return Forgotten(
            self.sessions + other.sessions, self.entries + other.entries, self.checkpoints + other.checkpoints
        )
