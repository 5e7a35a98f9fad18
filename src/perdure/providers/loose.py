"""Reading what another server wrote, where nothing has the type that the documentation says.

A value of the wrong type reads as if it were not there. Nothing here raises.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast


def as_object(value: object) -> Mapping[str, object]:
    """Return a JSON object, an empty one for anything else."""
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def as_list(value: object) -> Sequence[object]:
    """Return a JSON array, an empty one for anything else."""
    return cast("list[object]", value) if isinstance(value, list) else ()


def as_text(value: object) -> str:
    """Return a string, an empty one for anything else."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    """Return a whole number that is not negative, 0 for anything else."""
    match value:
        case bool():
            return 0
        case int():
            return max(value, 0)
        case float() if math.isfinite(value):
            return max(int(value), 0)
        case _:
            return 0


def as_index(value: object) -> int | None:
    """Return a position, which some servers write as a string, or None."""
    match value:
        case bool():
            return None
        case int():
            return value
        case str() if value.isdecimal() and value.isascii():
            return int(value[:9])
        case _:
            return None
