from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from perdure.providers.openai_errors import Complaint, http_error

if TYPE_CHECKING:
    from perdure.models import ModelError

NOW = datetime(2026, 10, 21, 7, 28, tzinfo=UTC)
KEY = "sk-proj-abcdefgh12345678"
PLAIN_KEY = "Zq7abcdefgh9999"


def error(status: int, body: object = None, content_type: str = "application/json", **headers: str) -> ModelError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return http_error(status, named, data, Complaint("provider.test", content_type, (KEY, PLAIN_KEY)), NOW)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529, 599])
def test_a_bad_moment_is_tried_again_when_the_provider_says(status: int) -> None:
    """B83."""
    made = error(status, {"error": {"message": "busy"}}, retry_after="7")
    assert (made.retryable, made.status, made.retry_after) == (True, status, timedelta(seconds=7))


@pytest.mark.parametrize("status", [300, 307, 400, 401, 402, 403, 404, 405, 413, 422, 451])
def test_a_bad_request_is_final(status: int) -> None:
    """B83: and a wait that comes with it means nothing."""
    made = error(status, {"error": {"message": "no"}}, retry_after="7")
    assert (made.retryable, made.status, made.retry_after) == (False, status, None)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": "insufficient_quota", "message": "pay"}},
        {"error": {"type": "insufficient_quota", "code": "429", "message": "pay"}},
        [{"error": {"type": "insufficient_quota", "message": "pay"}}],
    ],
)
def test_no_waiting_mends_an_empty_account(body: object) -> None:
    """B83."""
    assert not error(429, body, retry_after="7").retryable


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "the words", "code": 5}},
        {"error": "the words"},
        {"message": "the words", "object": "error"},
        {"detail": "the words"},
        {"detail": [{"msg": "the words"}]},
        [{"error": {"message": "the words"}}],
        b"the words",
    ],
)
def test_the_providers_words_are_found_wherever_they_stand(body: object) -> None:
    """B79."""
    assert "provider.test answered 400: " in str(error(400, body))
    assert "the words" in str(error(400, body))


@pytest.mark.parametrize(
    ("status", "advice"),
    [(401, "OPENAI_API_KEY"), (404, "OPENAI_BASE_URL"), (307, "redirects"), (302, "OPENAI_BASE_URL")],
)
def test_a_refusal_that_a_person_can_mend_says_how(status: int, advice: str) -> None:
    """B79."""
    assert advice in str(error(status))


def test_a_page_is_not_quoted() -> None:
    """B79: a proxy's page, retried only when the proxy says that the server is down."""
    page = b"<!doctype html><h1>Bad gateway</h1>"
    assert "web page" in str(error(502, page, "text/html"))
    assert error(502, page, "text/html").retryable
    assert not error(404, page, "").retryable
    assert "<h1>" not in str(error(404, page, ""))


@pytest.mark.parametrize(
    "echo",
    [
        KEY,
        KEY.upper(),
        PLAIN_KEY,
        PLAIN_KEY.upper(),
        f"{PLAIN_KEY[:11]}...",
        KEY[:12] + "***" + KEY[-4:],
        f"Bearer {KEY}",
        "x" * 290 + KEY,
        "Bearer another-token-of-somebody",
        "sk-somebody-elses-key",
        f"{KEY[:9]}\u0000",
    ],
)
def test_no_key_is_shown_though_the_provider_echoes_it(echo: str) -> None:
    """B77: the whole of it, its beginning, in other letters, at the place where the message is cut, anybody's."""
    shown = str(error(401, {"error": {"message": f"Incorrect API key provided: {echo}.", "code": echo}}))
    for secret in ("abcdefgh", "ABCDEFGH", "another-token", "somebody"):
        assert secret not in shown
    assert "sk-proj" not in shown.lower()


@given(
    st.text(alphabet=st.characters(exclude_categories=())) | st.text("\x1b[31m\n\r\t\0\u202e", max_size=20),
    st.integers(300, 599),
)
def test_any_words_become_one_short_line(words: str, status: int) -> None:
    """B77: no control characters, which could paint a terminal or forge a line of a log."""
    for body in ({"error": {"message": words, "code": words}}, words.encode(errors="replace")):
        shown = str(error(status, body))
        assert shown.isprintable()


def test_long_words_are_cut() -> None:
    """B77: an error is kept with its turn."""
    assert len(str(error(400, {"error": {"message": "x" * 5_000, "code": "y" * 5_000}}))) < 1_000


@given(
    st.binary(max_size=200),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["error", "message", "code", "type", "detail"]), inner, max_size=4)
        ),
    ),
)
def test_any_body_can_be_reported(raw: bytes, document: object) -> None:
    """B77."""
    for body in (raw, document):
        assert error(429, body).status == 429
