"""How the service says no: each refusal has an HTTP status, a type that programs can tell apart, and plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from examples.refunds.records import KeyReused, OrderNotFound, OverLimit, Refused, RequestNotFound, WrongStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import ValidationError
    from starlette.requests import Request
    from starlette.responses import Response

_STATUS = {KeyReused: 409, OverLimit: 409, WrongStatus: 409, OrderNotFound: 404, RequestNotFound: 404}


class BadRequest(Refused):
    """What was sent can't be used."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        """Make a refusal with its HTTP status and its type."""
        super().__init__(message)
        self.status, self.kind = status, kind


def invalid(error: ValidationError) -> BadRequest:
    """Return the refusal that says what is wrong with what was sent, without sending it back."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    if found[0]["type"] == "json_invalid":
        return BadRequest(400, "not_json", f"the body is not JSON: {found[0]['msg']}")
    lines = (f"{'.'.join(map(str, item['loc'])) or 'body'}: {item['msg']}" for item in found[:10])
    return BadRequest(422, "invalid_request", "; ".join(lines)[:1000])


def _error(status: int, kind: str, message: str) -> Response:
    return JSONResponse({"error": {"type": kind, "message": message}}, status)


def _refused(_: Request, error: Exception) -> Response:
    if isinstance(error, BadRequest):
        return _error(error.status, error.kind, str(error))
    return _error(*next((code, kind.type) for kind, code in _STATUS.items() if isinstance(error, kind)), str(error))


def _unavailable(_: Request, __: Exception) -> Response:
    return _error(503, "ledger_unavailable", "the ledger can't be read or written now; try again")


def _http(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return _error(status, "no_such_endpoint" if status in (404, 405) else "http_error", str(error))


def _broken(_: Request, __: Exception) -> Response:
    return _error(500, "internal_error", "something went wrong in the refund service")


HANDLERS: dict[type[Exception], Callable[[Request, Exception], Response]] = {
    Refused: _refused,
    SQLAlchemyError: _unavailable,
    HTTPException: _http,
    Exception: _broken,
}
"""What Starlette does with each kind of exception. The last one hides what happened: it is in the service's log."""
