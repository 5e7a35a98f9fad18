"""The refund service's HTTP side: what may be asked, and how a refusal is said. The ledger decides."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse
from starlette.routing import Route

from examples.refunds.records import NewRequest, Question, Status
from examples.refunds.refusals import HANDLERS, BadRequest, invalid

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from examples.refunds.faults import Faults
    from examples.refunds.ledger import Ledger

MAX_BODY = 16 * 1024
"""Bytes of a request body. A reason has at most 2,000 characters."""

REPLAYED = {"Idempotency-Replayed": "true"}
"""The header of an answer that was given before."""

STAFF_TOKEN = "X-Staff-Token"  # noqa: S105  # the header's name, not a token
STAFF_TOKEN_VARIABLE = "REFUNDS_STAFF_TOKEN"  # noqa: S105  # the variable's name, not a token

_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_Body = TypeVar("_Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """One method an endpoint."""

    ledger: Ledger
    faults: Faults
    staff_token: str | None

    async def submit(self, request: Request) -> Response:
        """`POST /requests`: 201 for a new request, 200 with the one that stands or with an answer given before."""
        key = request.headers.get("Idempotency-Key", "")
        if not _KEY.fullmatch(key):
            text = "send an Idempotency-Key header: 1 to 200 printable ASCII characters, the same for each attempt"
            raise BadRequest(400, "idempotency_key_required", text)
        new = _read(NewRequest, await _body(request))
        answer = await run_in_threadpool(self.ledger.submit, key, new)
        body = {"created": answer.created, "request": answer.request.public()}
        if answer.replayed:
            return JSONResponse(body, 200, REPLAYED)
        response = JSONResponse(body, 201 if answer.created else 200)
        return await self.faults.after_commit(request, response) if answer.created else response

    async def recall(self, request: Request) -> Response:
        """`GET /operations/{id}`: what an operation was answered, for whoever has lost that; 404 if it was not."""
        said = await run_in_threadpool(self.ledger.recall, request.path_params["operation_id"])
        if said is None:
            raise BadRequest(404, "operation_not_found", "no operation of this id has taken effect")
        return JSONResponse({"created": said.created, "request": said.request.public()})

    async def find(self, request: Request) -> Response:
        """`GET /requests?order_id=&user_id=`: a user's own order and its refund requests."""
        question = _question(request)
        order, found = await run_in_threadpool(self.ledger.find, question.order_id, question.user_id)
        return JSONResponse({"order": order.public(), "requests": [item.public() for item in found]})

    async def approve(self, request: Request) -> Response:
        """`POST /requests/{id}/approve`: staff only."""
        return await self._move(request, Status.APPROVED)

    async def reject(self, request: Request) -> Response:
        """`POST /requests/{id}/reject`: staff only."""
        return await self._move(request, Status.REJECTED)

    async def _move(self, request: Request, status: Status) -> Response:
        self._staff_only(request)
        moved, before = await run_in_threadpool(self.ledger.move, request.path_params["request_id"], status)
        return JSONResponse({"request": moved.public()}, 200, REPLAYED if before else None)

    async def pay(self, request: Request) -> Response:
        """`POST /requests/{id}/pay`: staff only; pays once, however often it is asked."""
        self._staff_only(request)
        paid, payment, before = await run_in_threadpool(self.ledger.pay, request.path_params["request_id"])
        body = {"request": paid.public(), "payment": payment.public()}
        return JSONResponse(body, 200 if before else 201, REPLAYED if before else None)

    async def books(self, request: Request) -> Response:
        """`GET /ledger`: staff only; everything, and how much of it there is."""
        self._staff_only(request)
        books = await run_in_threadpool(self.ledger.books)
        parts = {"orders": books.orders, "requests": books.requests, "payments": books.payments}
        said: dict[str, Any] = {name: [item.public() for item in items] for name, items in parts.items()}
        return JSONResponse(said | {"counts": {name: len(items) for name, items in parts.items()}})

    async def health(self, _: Request) -> Response:
        """`GET /health`: whether the ledger can be read, and how many answers are held back."""
        await run_in_threadpool(self.ledger.check)
        return JSONResponse({"status": "ok", "held": self.faults.held})

    async def release(self, request: Request) -> Response:
        """`POST /faults/release`: staff only; lets held answers go."""
        self._staff_only(request)
        self.faults.release()
        return JSONResponse({"status": "released"})

    def _staff_only(self, request: Request) -> None:
        if self.staff_token is None:
            text = f"staff can't come in: the service was started without {STAFF_TOKEN_VARIABLE}"
            raise BadRequest(403, "staff_only", text)
        given = request.headers.get(STAFF_TOKEN, "").encode("latin-1")
        if not hmac.compare_digest(given, self.staff_token.encode()):
            raise BadRequest(403, "staff_only", f"this is for staff: send the token in the {STAFF_TOKEN} header")

    def app(self) -> Starlette:
        """Return the ASGI app."""
        routes = [
            Route("/requests", self.submit, methods=["POST"]),
            Route("/requests", self.find, methods=["GET"]),
            Route("/operations/{operation_id}", self.recall, methods=["GET"]),
            Route("/requests/{request_id}/approve", self.approve, methods=["POST"]),
            Route("/requests/{request_id}/reject", self.reject, methods=["POST"]),
            Route("/requests/{request_id}/pay", self.pay, methods=["POST"]),
            Route("/ledger", self.books),
            Route("/health", self.health),
            Route("/faults/release", self.release, methods=["POST"]),
        ]
        return Starlette(routes=routes, exception_handlers=HANDLERS)


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise BadRequest(413, "too_large", f"a request has at most {MAX_BODY} bytes")
    return bytes(body)


def _read(kind: type[_Body], body: bytes) -> _Body:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise invalid(error) from error


def _question(request: Request) -> Question:
    try:
        return Question.model_validate(dict(request.query_params))
    except ValidationError as error:
        raise invalid(error) from error
