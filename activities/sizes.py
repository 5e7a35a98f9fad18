"""What a payload may weigh when nothing is stored outside of history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.values import json_bytes

if TYPE_CHECKING:
    from pydantic import BaseModel


def too_large(model: BaseModel, limit: int | None) -> int | None:
    """Return the size of a payload that is above the limit, in bytes; None when it can travel."""
    if limit is None:
        return None
    size = json_bytes(model)
    return size if size > limit else None
