"""What a provider's refusal means: whether another try can help, when, and in words that hold no secret.

https://platform.openai.com/docs/guides/error-codes
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from perdure.models import ModelError
from perdure.providers.loose import as_index, as_list, as_object, as_text
from perdure.providers.retry_after import retry_after
from perdure.values import clean_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

MAX_MESSAGE = 300
"""Characters of a provider's own words in an error: it is kept with the turn, and some servers send whole pages."""

RETRYABLE = frozenset({408, 409, 425, 429})
"""Statuses below 500 that mean a bad moment and not a bad request."""

NO_QUOTA = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
"""Codes that come with status 429 and that no waiting mends."""

FINAL = NO_QUOTA | {
    "authentication_error",
    "content_filter",
    "content_policy_violation",
    "context_length_exceeded",
    "invalid_api_key",
    "invalid_request_error",
    "model_not_found",
    "not_found_error",
    "permission_denied",
    "permission_error",
    "request_too_large",
}
"""Codes and types of errors inside a stream, which has no status any more, that would come again at the next try."""

_KEY_LIKE = re.compile(r"\b(?:sk|pk|rk|gsk|xai|key|api)[-_][\w*.\-]{6,}|\bbearer\s+\S+", re.IGNORECASE)
_KNOWN_START = 8
_REDACTED = "[redacted]"
_ADVICE = {
    400: "",
    401: "; check the API key (OPENAI_API_KEY)",
    403: "; check what the API key (OPENAI_API_KEY) may use",
    404: "; check the model's name and the base URL (OPENAI_BASE_URL)",
}


@dataclass(frozen=True, slots=True)
class Complaint:
    """Words errors about one provider's answer. What it words never holds one of the `secrets`."""

    host: str
    content_type: str = ""
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def words(self, what: str) -> str:
        """Return a sentence about the provider."""
        return f"the model provider at {self.host} {what}"

    def clean(self, text: str) -> str:
        """Return a provider's words on one short line, with keys taken out.

        A key is taken out before the text is cut, and also when only its beginning stands there.
        """
        line = " ".join("".join(char if char.isprintable() else " " for char in clean_text(text)).split())
        for secret in self.secrets:
            if secret:
                line = re.sub(re.escape(secret[:_KNOWN_START]) + r"\S*", _REDACTED, line, flags=re.IGNORECASE)
        line = _KEY_LIKE.sub(_REDACTED, line)
        return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE - 1]}…"

    def no_answer(self) -> ModelError:
        """Return the error for a successful answer in which there is no chat completion."""
        kind = self.content_type.partition(";")[0].strip().lower()
        if kind in {"", "text/event-stream"} or kind.endswith("json"):
            return ModelError(self.words("ended its answer before it began one"), retryable=True)
        what = f"answered with {self.clean(kind)}, which is no chat completion; check the base URL (OPENAI_BASE_URL)"
        return ModelError(self.words(what))


def http_error(status: int, headers: Mapping[str, str], body: bytes, complaint: Complaint, now: datetime) -> ModelError:
    """Return the error for an answer whose status is not a success.

    Args:
        status: The HTTP status.
        headers: The headers, found in any case.
        body: As much of the body as was read.
        complaint: Words the error.
        now: The time, for a `Retry-After` that is a date.
    """
    document = _loads(body)
    told = _told(document)
    if document is None:
        told = _Told(message=_page(body, complaint.content_type))
    retryable = _may_pass(status) and not told.names(NO_QUOTA)
    what = told.words(f"answered {status}", complaint) + ("" if retryable else _advice(status))
    wait = retry_after(headers, now) if retryable else None
    return ModelError(complaint.words(what), retryable, wait, status)


def answer_error(chunk: object, complaint: Complaint, *, named_error: bool = False) -> ModelError | None:
    """Return the error that a chunk of an answer, or a whole one, reports; None when it reports none.

    Args:
        chunk: The JSON that was sent.
        complaint: Words the error.
        named_error: Whether the event's name says that it is an error.
    """
    fields = as_object(chunk)
    is_error = named_error or fields.get("object") == "error" or fields.get("type") == "error"
    if not fields.get("error") and not is_error:
        return None
    told = _told(chunk)
    status = _status(fields)
    retryable = not told.names(FINAL) if status is None else _may_pass(status) and not told.names(NO_QUOTA)
    return ModelError(
        complaint.words(told.words("reported an error in its answer", complaint)), retryable, status=status
    )


def _may_pass(status: int) -> bool:
    return status in RETRYABLE or status >= 500  # noqa: PLR2004  # the server errors of HTTP


def _advice(status: int) -> str:
    if 300 <= status < 400:  # noqa: PLR2004  # the redirections of HTTP
        return "; it redirects, which is not followed with a key: set the base URL (OPENAI_BASE_URL) to where it leads"
    return _ADVICE.get(status, "")


def _status(fields: Mapping[str, object]) -> int | None:
    error = as_object(fields.get("error"))
    given = (error.get("code"), error.get("status"), fields.get("code"), fields.get("status_code"))
    return next((code for value in given if (code := as_index(value)) and 400 <= code <= 599), None)  # noqa: PLR2004  # HTTP's errors


@dataclass(frozen=True, slots=True)
class _Told:
    """What a provider said about an error."""

    code: str = ""
    kind: str = ""
    message: str = ""

    def names(self, codes: frozenset[str]) -> bool:
        return self.code in codes or self.kind in codes

    def words(self, what: str, complaint: Complaint) -> str:
        code = self.code or self.kind
        named = f"{what} ({complaint.clean(code)})" if code else what
        return f"{named}: {complaint.clean(self.message)}" if self.message else named


def _told(document: object) -> _Told:
    """Find an error's codes and words, wherever they stand in the document."""
    if isinstance(document, str):
        return _Told(message=document)
    fields = as_object(next(iter(as_list(document)), document))  # some servers wrap the error in a list
    error = fields.get("error")
    if isinstance(error, str):
        return _Told(as_text(fields.get("code")), message=as_text(fields.get("message")) or error)
    inner = as_object(error) or fields
    given = next((value for name in ("message", "detail", "error", "msg") if (value := inner.get(name))), "")
    message = given if isinstance(given, str) else json.dumps(given)
    return _Told(as_text(inner.get("code")), as_text(inner.get("type")), message)


def _loads(body: bytes) -> object:
    try:
        return cast("object", json.loads(body))
    except (ValueError, RecursionError):
        return None


def _page(body: bytes, content_type: str) -> str:
    if "html" in content_type.lower() or body.lstrip()[:1] == b"<":
        return "a web page in place of an answer"
    return body.decode(errors="replace")
