"""The support agent's tools: doors to the refund service, which alone knows what is true about a refund.

Whose refunds they are is the session's user, never something that a model or a customer says.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn, cast

import httpx

from perdure import Effect, Outcome, ToolContext, ToolError, tool

REFUNDS_URL = "REFUNDS_URL"
"""The variable that holds the refund service's address."""

DEFAULT_URL = "http://127.0.0.1:8765"

OVER_LIMIT = "over_limit"
"""The service's type of a refusal that a person's approval helps against."""

SECONDS = httpx.Timeout(30, connect=5)
"""Longer than the service waits for its ledger, so that its own answer comes first."""


@tool(effect=Effect.READ)
async def query_task(ctx: ToolContext, order_id: str) -> dict[str, Any]:
    """Look up what the refund service has on record for one of the customer's orders.

    Returns the order and its refund requests with their present status: requested, approved, paid or rejected.
    Only this record says how far a refund is; look again each time that the customer asks.
    """
    asked = {"order_id": order_id, "user_id": _customer(ctx)}
    return await _answer(ctx, order_id, "GET", params=asked)


@tool(effect=Effect.IDEMPOTENT)
async def submit_refund_request(ctx: ToolContext, order_id: str, reason: str) -> dict[str, Any]:
    """Open a refund request for one of the customer's orders. It is paid only after a person has approved it.

    Returns the request. `created` is false when the order has a request already: then that one is returned.
    """
    body: dict[str, str | bool] = {"order_id": order_id, "user_id": _customer(ctx), "reason": reason}
    return await _answer(ctx, order_id, "POST", body=body)


async def _look_up(ctx: ToolContext) -> Outcome:
    """Say what became of a submit whose answer was lost: the service knows operations by their ids."""
    try:
        answer = await ctx.http.get(f"{_service()}/operations/{ctx.operation_id}", timeout=SECONDS)
    except httpx.TransportError as error:
        _no_answer(type(error).__name__, error)
    if answer.is_success:
        return Outcome.happened(_json(answer))
    return Outcome.did_not_happen() if answer.status_code == 404 else Outcome.unknown()


@tool(effect=Effect.ONCE, approval="safety", subject=lambda arguments: str(arguments["order_id"]), reconcile=_look_up)
async def submit_large_refund(ctx: ToolContext, order_id: str, reason: str) -> dict[str, Any]:
    """Open a refund request for an order over the limit, after submit_refund_request was refused for that.

    A person is asked before it runs. Returns the request, as submit_refund_request does.
    """
    body: dict[str, str | bool] = {"order_id": order_id, "user_id": _customer(ctx), "reason": reason, "approved": True}
    try:
        return await _answer(ctx, order_id, "POST", body=body)
    except ToolError as error:
        error.uncertain = error.retryable  # no answer: it may have been recorded
        raise


def _customer(ctx: ToolContext) -> str:
    if ctx.user_id is None:
        msg = "nobody is signed in to this conversation, and refunds belong to a customer"
        raise ToolError(msg)
    return ctx.user_id


async def _answer(
    ctx: ToolContext,
    order_id: str,
    method: str,
    *,
    params: dict[str, str] | None = None,
    body: dict[str, str | bool] | None = None,
) -> dict[str, Any]:
    """Ask the refund service. `ctx.http` sends the operation id along, so that asking twice does nothing twice.

    Raises:
        ToolError: it refused, or gave no answer that can be used; the latter may pass.
    """
    try:
        answer = await ctx.http.request(method, f"{_service()}/requests", params=params, json=body, timeout=SECONDS)
    except httpx.TransportError as error:
        _no_answer(type(error).__name__, error)
    if answer.status_code >= 500:
        _no_answer(f"HTTP {answer.status_code}")
    said = _json(answer)
    if answer.is_success:
        return said
    if answer.status_code == 404 and _error(said).get("type") == "order_not_found":
        msg = f"the refund service knows no order {order_id} of this customer"
        raise ToolError(msg)
    if _error(said).get("type") == OVER_LIMIT:
        msg = f"{_error(said).get('message')}; call submit_large_refund, which asks for it"
        raise ToolError(msg)
    msg = f"the refund service refused: {_error(said).get('message') or f'HTTP {answer.status_code}'}"
    raise ToolError(msg)


def _service() -> str:
    return os.environ.get(REFUNDS_URL, DEFAULT_URL).rstrip("/")


def _no_answer(what: str, error: Exception | None = None) -> NoReturn:
    msg = f"no answer from the refund service ({what}); what it has on record is not known now"
    raise ToolError(msg, retryable=True) from error


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        said = answer.json()
    except ValueError as error:
        _no_answer("not JSON", error)
    if not isinstance(said, dict):
        _no_answer("not a JSON object")
    return cast("dict[str, Any]", said)


def _error(said: dict[str, Any]) -> dict[str, Any]:
    error = said.get("error")
    return cast("dict[str, Any]", error) if isinstance(error, dict) else {}
