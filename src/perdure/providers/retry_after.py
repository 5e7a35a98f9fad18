"""How long a server asks to wait, from the headers of its answer. Knows no clock: the caller says what time it is."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LONGEST = timedelta(minutes=10)
"""A longer wait is cut to this: a mistaken header must not put a conversation to sleep for days."""

_NUMBER = re.compile(r"\+?(\d+(?:\.\d*)?|\.\d+)s?", re.ASCII)


def retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """Return how long to wait before the next try, from nothing to `LONGEST`; None when the server does not say.

    Reads `retry-after-ms`, then `Retry-After` as seconds, with or without a fraction, or as an HTTP date. A header that
    was sent twice reads as a list: the longest wait in it counts. A date in the past means now; nonsense means nothing.

    Args:
        headers: The headers of the answer, found in any case or, in a plain dict, in lower case.
        now: The time, with its zone.
    """
    milliseconds = _longest(_number(item) for item in headers.get("retry-after-ms", "").split(","))
    if milliseconds is not None:
        return _bounded(milliseconds / 1000)
    # A date has a comma of its own. What stands before it, the day of the week, says nothing; the rest is a date.
    waits = _longest(_seconds(item, now) for item in headers.get("retry-after", "").split(","))
    return None if waits is None else _bounded(waits)


def _seconds(item: str, now: datetime) -> float | None:
    number = _number(item)
    return _until(item, now) if number is None else number


def _number(item: str) -> float | None:
    found = _NUMBER.fullmatch(item.strip())
    return float(found.group(1)) if found else None


def _until(item: str, now: datetime) -> float | None:
    try:
        then = parsedate_to_datetime(item.strip())
    except (ValueError, OverflowError):
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return max((then - now).total_seconds(), 0.0)


def _longest(waits: Iterable[float | None]) -> float | None:
    return max((wait for wait in waits if wait is not None), default=None)


def _bounded(seconds: float) -> timedelta:
    return timedelta(seconds=min(seconds, LONGEST.total_seconds()))
