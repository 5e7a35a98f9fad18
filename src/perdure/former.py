"""What a session remembers of a turn that ended long ago: a fingerprint of some forty bytes.

It is enough to recognise a repeated submit, to refuse a run id that was used, and to say how the turn ended. All else
of it is in the archive.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from perdure.results import TurnStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.turns import TurnRecord

DIGEST_BYTES = 9
"""Of each id: 72 bits, twelve characters. Two of a thousand turns are taken for one in one of 10^16 sessions."""

WIDTH = DIGEST_BYTES * 4 // 3

_LETTERS = {status: letter for letter, status in zip("qrcsifxj", TurnStatus, strict=True)}
_STATUSES = {letter: status for status, letter in _LETTERS.items()}


@dataclass(frozen=True, slots=True)
class Former:
    """A turn that ended long ago. Its ids are known by their digests only."""

    turn: str
    input: str
    status: TurnStatus
    runs: str

    @classmethod
    def of(cls, record: TurnRecord) -> Self:
        """Return what is kept of a record."""
        runs = dict.fromkeys((record.run_id, *(run.run_id for run in record.runs)))
        return cls(short(record.turn_id), short(record.input_digest), record.status, "".join(map(short, runs)))

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `str` has written."""
        end = 2 * WIDTH
        return cls(text[:WIDTH], text[WIDTH:end], _STATUSES[text[end]], text[end + 1 :])

    def __str__(self) -> str:
        """Return the form that a session carries."""
        return f"{self.turn}{self.input}{_LETTERS[self.status]}{self.runs}"


def short(text: str) -> str:
    """Return the digest that a fingerprint has of an id."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:DIGEST_BYTES]).decode()


def find_former(former: Iterable[str], turn_id: str) -> Former | None:
    """Return the fingerprint of a turn, if it is there."""
    wanted = short(turn_id)
    return next((Former.read(one) for one in former if one.startswith(wanted)), None)


def has_run(former: Iterable[str], run_id: str) -> bool:
    """Tell whether a run id was used by one of these turns."""
    wanted = short(run_id)
    return any(one.startswith(wanted, at) for one in former for at in range(2 * WIDTH + 1, len(one), WIDTH))
