"""When a session begins a new run, which leaves the history of the old one behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.contract import Renewal


@dataclass(frozen=True, slots=True)
class RunSize:
    """How long a run's history is, in events and bytes, and how many bytes weighs what it began with."""

    events: int
    size: int
    carried: int
    suggested: bool = False
    """By Temporal, whose own limits come near."""


STORED_WEIGHT = 8
"""A session that is stored outside of history weighs so many times less: it costs a file then, and no history."""


def weight(carried: int, *, stored: bool) -> int:
    """Return how much a session of `carried` bytes weighs in the history of the run that begins with it."""
    return carried // STORED_WEIGHT if stored else carried


def renewal_due(rules: Renewal, run: RunSize, *, idle: bool) -> bool:
    """Tell whether it is time for a new run; an idle session takes the chance much earlier than one with work to do."""
    if run.suggested or run.events >= rules.events or run.size >= rules.size + run.carried:
        return True
    if not idle or run.events < rules.idle_events:
        return False
    return run.events >= rules.idle_most or run.size >= rules.idle_factor * run.carried
