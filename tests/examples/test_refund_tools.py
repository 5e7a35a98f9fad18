"""The tools, against a running refund service."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import httpx
import pytest

from examples.refunds.tools import query_task, submit_refund_request
from perdure.operations import Effect
from perdure.tools import ToolContext, ToolError
from tests.examples.desk import Desk, open_desk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path


Answer = Callable[[httpx.Request], httpx.Response]


@dataclass(frozen=True)
class Call:
    """Who calls, under which id, and what answers: the running service, or something made up."""

    user_id: str | None = "alice"
    operation_id: str = "op-1"
    answer: Answer | None = None

    async def query(self, order_id: str) -> dict[str, Any]:
        async with self._context() as ctx:
            return await query_task(ctx, order_id)

    async def submit(self, order_id: str, reason: str = "broken") -> dict[str, Any]:
        async with self._context() as ctx:
            return await submit_refund_request(ctx, order_id, reason)

    @contextlib.asynccontextmanager
    async def _context(self) -> AsyncGenerator[ToolContext]:
        transport = httpx.MockTransport(self.answer) if self.answer else None
        async with httpx.AsyncClient(headers={"Idempotency-Key": self.operation_id}, transport=transport) as http:
            yield ToolContext(
                agent_id="support",
                session_id="s-1",
                user_id=self.user_id,
                turn_id="t-1",
                run_id="r-1",
                operation_id=self.operation_id,
                http=http,
                read_state=_no_state,
            )


async def _no_state() -> NoReturn:
    raise NotImplementedError


@pytest.fixture
async def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Desk]:
    async with open_desk(tmp_path / "refunds.db") as (desk, _):
        monkeypatch.setenv("REFUNDS_URL", str(desk.http.base_url))
        yield desk


async def test_the_customer_is_the_sessions_user_and_no_argument() -> None:
    for tool in (query_task, submit_refund_request):
        assert "user_id" not in tool.arguments.model_json_schema()["properties"]
    assert (query_task.effect, submit_refund_request.effect) == (Effect.READ, Effect.IDEMPOTENT)


async def test_a_call_that_is_made_again_makes_one_request(desk: Desk) -> None:
    first = await Call(operation_id="op-1").submit("A1042")
    again = await Call(operation_id="op-1").submit("A1042")
    other = await Call(operation_id="op-2").submit("A1042")

    assert again == first
    assert (first["created"], other["created"]) == (True, False)
    assert other["request"]["request_id"] == first["request"]["request_id"]
    assert await desk.counts() == (1, 0)


async def test_a_look_up_gives_the_record_as_it_is_now(desk: Desk) -> None:
    """B68: the answer comes from the refund service's record."""
    assert (await Call().query("A1042"))["requests"] == []
    request_id = (await Call().submit("A1042"))["request"]["request_id"]
    await desk.settle(request_id)

    (request,) = (await Call().query("A1042"))["requests"]

    assert (request["request_id"], request["status"], request["amount"]) == (request_id, "paid", "120.00")


async def test_bob_is_told_nothing_about_alices_order(desk: Desk) -> None:
    """B69: Bob asking about alice's request is told nothing about it."""
    await Call().submit("A1042")

    told: set[str] = set()
    for order_id in ("A1042", "A9999"):
        for call in (Call(user_id="bob").query(order_id), Call(user_id="bob", operation_id="op-2").submit(order_id)):
            with pytest.raises(ToolError) as refused:
                await call
            told.add(str(refused.value).replace(order_id, "-"))
            assert not refused.value.retryable
    assert len(told) == 1
    assert await desk.counts() == (1, 0)


async def test_without_a_user_nothing_is_asked() -> None:
    for call in (Call(user_id=None).query("A1042"), Call(user_id=None).submit("A1042")):
        with pytest.raises(ToolError, match="nobody is signed in"):
            await call


async def test_arguments_that_the_service_refuses_are_explained(desk: Desk) -> None:
    with pytest.raises(ToolError, match="order_id") as refused:
        await Call().query("what's that?\0")
    assert not refused.value.retryable

    with pytest.raises(ToolError, match="reason") as refused:
        await Call().submit("A1042", "x" * 5000)
    assert not refused.value.retryable
    assert await desk.counts() == (0, 0)


def _breaks(request: httpx.Request) -> httpx.Response:
    msg = "connection reset"
    raise httpx.ReadError(msg, request=request)


def _always(status: int, *, json: object = None, text: str | None = None) -> Answer:
    return lambda _: httpx.Response(status, json=json, text=text)


@pytest.mark.parametrize(
    "answer",
    [_breaks, _always(500), _always(503, json={"error": {}}), _always(200, text="<html>"), _always(200, json=[])],
    ids=["transport", "500", "503", "a page", "a list"],
)
async def test_no_usable_answer_may_pass_and_says_that_nothing_is_known(answer: Answer) -> None:
    for call in (Call(answer=answer).query("A1042"), Call(answer=answer).submit("A1042")):
        with pytest.raises(ToolError, match="not known") as failed:
            await call
        assert failed.value.retryable


async def test_a_page_of_somebody_else_is_no_statement_about_an_order() -> None:
    with pytest.raises(ToolError, match="refused: HTTP 404"):
        await Call(answer=_always(404, json={"detail": "no such page"})).query("A1042")
