from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given, strategies as st

from perdure.providers.retry_after import LONGEST, retry_after

NOW = datetime(2026, 10, 21, 7, 28, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        (" 7 ", 7),
        ("1.5", 1.5),
        (".25", 0.25),
        ("30s", 30),
        ("599", 599),
        ("86400", 600),
        ("9" * 5_000, 600),
        ("Wed, 21 Oct 2026 07:28:30 GMT", 30),
        ("Wednesday, 21-Oct-26 07:28:30 GMT", 30),
        ("Wed Oct 21 07:28:30 2026", 30),
        ("Wed, 21 Oct 2026 09:28:30 +0200", 30),
        ("Wed, 21 Oct 2026 07:27:00 GMT", 0),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 600),
        ("5, 20", 20),
        ("120, 60", 120),
        ("5, Wed, 21 Oct 2026 07:28:30 GMT", 30),
        ("wed, 21 oct 2026 07:28:30 gmt, 5", 30),
        ("soon, 3", 3),
    ],
)
def test_each_form_of_retry_after_becomes_a_bounded_delay(value: str, seconds: float) -> None:
    """B83: seconds, a fraction, a date in each of its three forms, past, too far, a list."""
    assert retry_after({"retry-after": value}, NOW) == timedelta(seconds=seconds)


@pytest.mark.parametrize("value", ["", "soon", "-5", "NaN", "inf", "1e3", "1:30", "Wed, 99 Foo 2026", "٣", ","])
def test_nonsense_in_retry_after_is_as_good_as_none(value: str) -> None:
    """B83: the worker's own backoff holds then."""
    assert retry_after({"retry-after": value}, NOW) is None


def test_milliseconds_are_read_before_seconds() -> None:
    """B83: OpenAI sends both, and the finer one is meant."""
    assert retry_after({"retry-after-ms": "250", "retry-after": "1"}, NOW) == timedelta(milliseconds=250)
    assert retry_after({"retry-after-ms": "nonsense", "retry-after": "1"}, NOW) == timedelta(seconds=1)
    assert retry_after({}, NOW) is None


@given(st.text(max_size=60) | st.from_regex(r"[0-9.,: +\-A-Za-z]{0,40}"))
def test_no_text_in_retry_after_gives_an_error_or_an_unbounded_delay(value: str) -> None:
    """B83."""
    for name in ("retry-after", "retry-after-ms"):
        wait = retry_after({name: value}, NOW)
        assert wait is None or timedelta() <= wait <= LONGEST


@given(st.integers(min_value=-100_000, max_value=100_000))
def test_a_date_says_the_same_as_the_seconds_until_it(seconds: int) -> None:
    """B83."""
    date = format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)
    assert retry_after({"retry-after": date}, NOW) == retry_after({"retry-after": str(max(seconds, 0))}, NOW)
