"""The names that tools have inside (anything readable) and outside (what model providers accept)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from perdure.errors import ConfigurationError
from perdure.values import clean_text, digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_OUTSIDE = 64
"""Characters that OpenAI's function names may have; the other providers allow at least as many."""

MAX_INSIDE = 200
"""Characters; the name is an activity type and part of an activity id, which Temporal bounds at 1,000."""

RESERVED = "perdure."
"""Prefix of our own activities' types, which no tool may take."""

_REFUSED = re.compile(r"[^A-Za-z0-9_-]")


def outside_name(name: str) -> str:
    """Return the name that providers accept: `[A-Za-z0-9_-]`, at most 64 characters, the same every time."""
    clean = _REFUSED.sub("_", name)
    if len(clean) <= MAX_OUTSIDE and clean.strip("_"):
        return clean
    tail = digest(name.encode())[:8]
    return f"{clean[: MAX_OUTSIDE - 9]}_{tail}"


def outside_names(names: Iterable[str]) -> Mapping[str, str]:
    """Map outside names to inside ones.

    Raises:
        ConfigurationError: two tools would have the same name outside; rename one of them.
    """
    inside: dict[str, str] = {}
    for name in names:
        other = inside.setdefault(outside_name(name), name)
        if other != name:
            msg = f"the tools {other!r} and {name!r} are both {outside_name(name)!r} to a model; rename one of them"
            raise ConfigurationError(msg)
    return inside


def check_inside_name(name: str) -> None:
    """Refuse a tool name that can't be an activity type.

    Raises:
        ConfigurationError: blank, too long, or reserved.
    """
    if not name.strip() or len(name) > MAX_INSIDE or name.startswith(RESERVED) or name != clean_text(name):
        msg = f"{name!r} can't name a tool: 1 to {MAX_INSIDE} characters, not blank, not beginning with {RESERVED!r}"
        raise ConfigurationError(msg)
