"""The refund service over HTTP, in a process of its own."""

from __future__ import annotations

import asyncio
import signal
import uuid
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

import httpx
import pytest
import pytest_asyncio
from sqlalchemy import insert

from examples.refunds.processes import refund_service, until
from examples.refunds.records import Order
from examples.refunds.tables import open_engine, orders
from tests.examples.desk import Desk, desk_at, error_type, open_desk

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path


class Shared(NamedTuple):
    """One service for the tests of this file that leave it alone: starting one takes a second."""

    url: str
    database: Path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Shared]:
    database = tmp_path_factory.mktemp("desk") / "refunds.db"
    async with open_desk(database) as (desk, _):
        yield Shared(str(desk.http.base_url), database)


@pytest.fixture
async def desk(shared: Shared) -> AsyncGenerator[Desk]:
    async with desk_at(shared.url) as desk:
        yield desk


@pytest.fixture
def order(shared: Shared) -> str:
    """A new order of alice's: sold by the shop, which writes it into the service's file."""
    order_id = f"T{uuid.uuid4().hex[:8].upper()}"
    engine = open_engine(shared.database)
    with engine.connect() as connection, connection.begin():
        connection.execute(insert(orders), asdict(Order(order_id, "alice", 120_00)))
    engine.dispose()
    return order_id


async def test_many_attempts_of_one_operation_make_one_request(desk: Desk, order: str) -> None:
    answers = await asyncio.gather(*(desk.submit(order, "alice", key=order) for _ in range(20)))

    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
    assert sum("Idempotency-Replayed" in answer.headers for answer in answers) == 19
    assert len({answer.text for answer in answers}) == 1
    assert await desk.counts(order) == (1, 0)


async def test_many_operations_for_one_order_make_one_request_that_all_are_told_of(desk: Desk, order: str) -> None:
    """B69: no second request; the answer names the existing one."""
    answers = await asyncio.gather(*(desk.submit(order, "alice") for _ in range(20)))

    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
    assert [answer.json()["created"] for answer in answers].count(True) == 1
    assert len({answer.json()["request"]["request_id"] for answer in answers}) == 1
    assert await desk.counts(order) == (1, 0)


async def test_a_key_answers_as_it_did_whatever_has_happened_since(desk: Desk, order: str) -> None:
    first = await desk.submit(order, "alice", key=order)
    await desk.settle(first.json()["request"]["request_id"])

    again = await desk.submit(order, "alice", key=order)

    assert again.json() == first.json()
    assert (again.status_code, again.headers["Idempotency-Replayed"]) == (200, "true")


async def test_who_was_told_of_a_standing_request_is_told_so_again(desk: Desk, order: str) -> None:
    await desk.submit(order, "alice")

    told = await desk.submit(order, "alice", key=order)
    again = await desk.submit(order, "alice", key=order)

    assert told.json()["created"] is False
    assert (again.json(), again.headers["Idempotency-Replayed"]) == (told.json(), "true")


async def test_a_key_cannot_be_used_for_something_else(desk: Desk, order: str) -> None:
    await desk.submit(order, "alice", key=order)

    other_order = await desk.submit("A1043", "alice", key=order)
    other_reason = await desk.submit(order, "alice", "late", key=order)

    assert [other_order.status_code, other_reason.status_code] == [409, 409]
    assert error_type(other_order) == error_type(other_reason) == "idempotency_key_reused"
    assert await desk.counts(order) == (1, 0)


async def test_an_order_of_somebody_else_is_as_unknown_as_one_that_does_not_exist(desk: Desk, order: str) -> None:
    """B69: Bob asking about alice's request is told nothing about it."""
    await desk.submit(order, "alice")

    for others, nobodys in (
        (await desk.find(order, "bob"), await desk.find("A9999", "bob")),
        (await desk.submit(order, "bob"), await desk.submit("A9999", "bob")),
    ):
        assert others.status_code == nobodys.status_code == 404
        assert others.text.replace(order, "-") == nobodys.text.replace("A9999", "-")
    assert await desk.counts(order) == (1, 0)


async def test_a_request_is_paid_once_however_often_that_is_asked(desk: Desk, order: str) -> None:
    request_id = (await desk.submit(order, "alice")).json()["request"]["request_id"]
    await desk.staff(f"/requests/{request_id}/approve")

    answers = await asyncio.gather(*(desk.staff(f"/requests/{request_id}/pay") for _ in range(10)))

    assert sorted(answer.status_code for answer in answers) == [200] * 9 + [201]
    assert len({answer.text for answer in answers}) == 1
    assert await desk.counts(order) == (1, 1)


async def test_a_paid_order_is_not_refunded_again(desk: Desk, order: str) -> None:
    request_id = (await desk.submit(order, "alice")).json()["request"]["request_id"]
    await desk.settle(request_id)

    again = (await desk.submit(order, "alice")).json()

    assert (again["created"], again["request"]["request_id"], again["request"]["status"]) == (False, request_id, "paid")


async def test_a_rejected_request_makes_way_for_a_new_one(desk: Desk, order: str) -> None:
    request_id = (await desk.submit(order, "alice")).json()["request"]["request_id"]
    await desk.staff(f"/requests/{request_id}/reject")

    again = await desk.submit(order, "alice")

    assert again.status_code == 201
    found = (await desk.find(order, "alice")).json()["requests"]
    assert [item["status"] for item in found] == ["requested", "rejected"]


async def test_nothing_is_paid_that_was_not_approved(desk: Desk, order: str) -> None:
    request_id = (await desk.submit(order, "alice")).json()["request"]["request_id"]

    refused = await desk.staff(f"/requests/{request_id}/pay")

    assert (refused.status_code, error_type(refused)) == (409, "wrong_status")
    assert await desk.counts(order) == (1, 0)


@pytest.mark.parametrize("token", ["", "wrong", "f\u00fcr-tests"])
async def test_only_staff_approve_pay_and_read_the_books(desk: Desk, order: str, token: str) -> None:
    request_id = (await desk.submit(order, "alice")).json()["request"]["request_id"]
    header = {b"X-Staff-Token": token.encode()}

    answers = [
        *[await desk.http.post(f"/requests/{request_id}/{step}", headers=header) for step in ("approve", "pay")],
        await desk.http.post("/faults/release", headers=header),
        await desk.http.get("/ledger", headers=header),
    ]

    assert [(answer.status_code, error_type(answer)) for answer in answers] == [(403, "staff_only")] * 4


async def test_without_a_token_of_its_own_the_service_lets_no_staff_in(tmp_path: Path) -> None:
    async with open_desk(tmp_path / "refunds.db", {"REFUNDS_STAFF_TOKEN": ""}) as (desk, _):
        answer = await desk.staff("/requests/R-1/pay", token="")

    assert (answer.status_code, error_type(answer)) == (403, "staff_only")


BODIES = {
    "nothing": (b"", 400),
    "no JSON": (b"{", 400),
    "not UTF-8": (b'{"order_id": "\xff"}', 400),
    "half a character": (b'{"order_id": "A1042", "user_id": "alice", "reason": "\\ud800"}', 400),
    "a list": (b"[]", 422),
    "a missing field": (b'{"order_id": "A1042", "user_id": "alice"}', 422),
    "a field too many": (b'{"order_id": "A1042", "user_id": "alice", "reason": "x", "status": "paid"}', 422),
    "a number for text": (b'{"order_id": 1042, "user_id": "alice", "reason": "x"}', 422),
    "NUL": (b'{"order_id": "A1042", "user_id": "alice", "reason": "a\\u0000b"}', 422),
    "a blank reason": (b'{"order_id": "A1042", "user_id": "alice", "reason": " \\n "}', 422),
    "a long reason": (b'{"order_id": "A1042", "user_id": "alice", "reason": "' + b"x" * 3000 + b'"}', 422),
    "a strange order": (b'{"order_id": "A1042\' OR 1=1", "user_id": "alice", "reason": "x"}', 422),
    "an order with a line end": (b'{"order_id": "A1042\\n", "user_id": "alice", "reason": "x"}', 422),
    "megabytes": (b'"' + b"x" * 3_000_000 + b'"', 413),
    "deep nesting": (b"[" * 10_000, 400),
}


@pytest.mark.parametrize("name", BODIES)
async def test_bad_input_is_refused_with_a_reason_and_changes_nothing(desk: Desk, order: str, name: str) -> None:
    body, status = BODIES[name]
    body = body.replace(b"A1042", order.encode())
    answer = await desk.http.post("/requests", content=body, headers={"Idempotency-Key": "op-1"})
    standing = await desk.http.get("/requests", params={"order_id": order, "user_id": "alice"})

    assert answer.status_code == status
    assert answer.json()["error"]["message"]
    assert len(answer.content) < 2000
    assert standing.json()["requests"] == []


@pytest.mark.parametrize("key", ["", "two words", "k" * 201, "schl\u00fcssel"])
async def test_a_request_without_a_usable_key_is_refused(desk: Desk, key: str) -> None:
    body = {"order_id": "A1042", "user_id": "alice", "reason": "x"}
    answer = await desk.http.post("/requests", json=body, headers={b"Idempotency-Key": key.encode()})

    assert (answer.status_code, error_type(answer)) == (400, "idempotency_key_required")


@pytest.mark.parametrize("query", ["", "order_id=A1042", "order_id=A1042&user_id=", "order_id=%00&user_id=alice"])
async def test_a_question_that_lacks_something_is_refused(desk: Desk, query: str) -> None:
    answer = await desk.http.get(f"/requests?{query}")

    assert (answer.status_code, error_type(answer)) == (422, "invalid_request")


async def test_reasons_in_any_language_are_kept_as_they_are(desk: Desk, order: str) -> None:
    reason = "订单坏了\nzu spät 😀 e\u0301"
    await desk.submit(order, "alice", reason)

    (kept,) = (await desk.find(order, "alice")).json()["requests"]

    assert kept["reason"] == reason


async def test_the_ledger_outlives_its_process(tmp_path: Path) -> None:
    """B70: the ledger holds one payment, whatever dies."""
    async with open_desk(tmp_path / "refunds.db") as (desk, program):
        first = await desk.submit("A1042", "alice", key="op-1")
        await desk.settle(first.json()["request"]["request_id"])
        before = await desk.books()
        await program.kill()

    async with open_desk(tmp_path / "refunds.db") as (desk, program):
        again = await desk.submit("A1042", "alice", key="op-1")
        assert (again.json(), again.headers["Idempotency-Replayed"]) == (first.json(), "true")
        assert await desk.books() == before
        assert await desk.counts() == (1, 1)


async def test_an_answer_can_be_held_between_effect_and_answer(tmp_path: Path) -> None:
    async with open_desk(tmp_path / "refunds.db", {"REFUNDS_HOLD_AFTER_COMMIT": "1"}) as (desk, _):
        waiting = asyncio.create_task(desk.submit("A1042", "alice", key="op-1"))
        await until(desk.held, "an answer to be held")
        assert await desk.counts() == (1, 0)
        assert not waiting.done()

        again = await desk.submit("A1042", "alice", key="op-1")
        await desk.staff("/faults/release")

        assert (await waiting).json() == again.json()


async def test_nothing_is_held_for_a_caller_that_is_gone(tmp_path: Path) -> None:
    async with open_desk(tmp_path / "refunds.db", {"REFUNDS_HOLD_AFTER_COMMIT": "1"}) as (desk, _):
        waiting = asyncio.create_task(desk.submit("A1042", "alice"))
        await until(desk.held, "an answer to be held")
        waiting.cancel()

        async def none_held() -> bool:
            return not await desk.held()

        await until(none_held, "the caller's end to be noticed")
        assert await desk.counts() == (1, 0)


async def test_an_answer_can_be_lost_and_asked_for_again(tmp_path: Path) -> None:
    async with open_desk(tmp_path / "refunds.db", {"REFUNDS_DROP_AFTER_COMMIT": "1"}) as (desk, _):
        with pytest.raises(httpx.TransportError):
            await desk.submit("A1042", "alice", key="op-1")

        again = await desk.submit("A1042", "alice", key="op-1")

        assert again.json()["created"] is True
        assert await desk.counts() == (1, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_told_to_end_the_service_ends_in_order(tmp_path: Path, number: signal.Signals) -> None:
    async with open_desk(tmp_path / "refunds.db", {"REFUNDS_HOLD_AFTER_COMMIT": "1"}) as (desk, program):
        waiting = asyncio.create_task(desk.submit("A1042", "alice"))
        await until(desk.held, "an answer to be held")

        program.child.send_signal(number)

        assert (await waiting).status_code == 201
        assert await program.stop() == 0


async def test_a_port_that_is_taken_is_said_to_be(shared: Shared, tmp_path: Path) -> None:
    port = int(shared.url.rpartition(":")[2])
    log = tmp_path / "service.log"

    with pytest.raises(RuntimeError, match="ended with code 1"):
        async with refund_service(tmp_path / "refunds.db", port=port, log=log):
            pass

    assert log.read_text().startswith(f"can't listen on 127.0.0.1:{port}")
