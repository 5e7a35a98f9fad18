"""The ledger: what is true about refunds, whatever anybody says in a chat. It blocks: call it in threads."""

from __future__ import annotations

import json
import secrets
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, RowMapping, Select, func, insert, select, update
from sqlalchemy.dialects.sqlite import insert as insert_or

from examples.refunds.records import (
    LIMIT_CENTS,
    MOVES,
    SEED,
    Books,
    KeyReused,
    NewRequest,
    Order,
    OrderNotFound,
    OverLimit,
    Payment,
    RefundRequest,
    RequestNotFound,
    Status,
    Submitted,
    WrongStatus,
    money,
)
from examples.refunds.tables import WRITES, answers, open_engine, orders, payments, requests

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


class Ledger:
    """Refund requests and payments in one SQLite file. Safe to use from many threads and processes."""

    def __init__(self, file: Path) -> None:
        """Open the ledger; a new one knows the orders of `SEED`."""
        self._engine = open_engine(file)
        with self._writing() as connection:
            connection.execute(insert_or(orders).on_conflict_do_nothing(), [asdict(order) for order in SEED])

    def close(self) -> None:
        """Let go of the file."""
        self._engine.dispose()

    def submit(self, operation_id: str, new: NewRequest) -> Submitted:
        """Record a refund request. An operation id that was used before is answered as it was then.

        Raises:
            KeyReused: the operation id was used for another request.
            OrderNotFound: no such order of this user.
            OverLimit: it is over the limit, and no person has agreed.
        """
        fingerprint = json.dumps(new.model_dump(), sort_keys=True)
        with self._writing() as connection:
            said = _first(connection, select(answers).where(answers.c.operation_id == operation_id))
            if said is not None:
                return _again(said, fingerprint)
            order = _order(connection, new.order_id, new.user_id)
            standing = _first(connection, _standing(order.order_id))
            if standing is None and order.amount_cents > LIMIT_CENTS and not new.approved:
                msg = f"a refund over {money(LIMIT_CENTS)} {order.currency} needs a person's approval"
                raise OverLimit(msg)
            answer = Submitted(standing is None, _request(standing) if standing else _fresh(operation_id, order, new))
            if answer.created:
                connection.execute(insert(requests), asdict(answer.request))
            text = json.dumps({"created": answer.created, "request": asdict(answer.request)})
            connection.execute(
                insert(answers), {"operation_id": operation_id, "fingerprint": fingerprint, "answer": text}
            )
            return answer

    def recall(self, operation_id: str) -> Submitted | None:
        """Return the answer that an operation was given, or None when it has never got here."""
        with self._reading() as connection:
            said = _first(connection, select(answers).where(answers.c.operation_id == operation_id))
        if said is None:
            return None
        answer = json.loads(said["answer"])
        return Submitted(answer["created"], _request(answer["request"]), replayed=True)

    def find(self, order_id: str, user_id: str) -> tuple[Order, tuple[RefundRequest, ...]]:
        """Return an order of this user and its refund requests, the newest first.

        Raises:
            OrderNotFound: no such order of this user.
        """
        wanted = requests.c.order_id == order_id, requests.c.user_id == user_id
        with self._reading() as connection:
            order = _order(connection, order_id, user_id)
            rows = connection.execute(select(requests).where(*wanted).order_by(requests.c.created_at.desc()))
            return order, tuple(_request(row) for row in rows.mappings())

    def move(self, request_id: str, status: Status) -> tuple[RefundRequest, bool]:
        """Approve or reject a request; the second value says whether that had been done before.

        Raises:
            RequestNotFound: no such request.
            WrongStatus: it can't get there from where it is.
        """
        with self._writing() as connection:
            return _move(connection, request_id, status)

    def pay(self, request_id: str) -> tuple[RefundRequest, Payment, bool]:
        """Pay an approved request, once: asked again, it returns the payment that was made, and True.

        Raises:
            RequestNotFound: no such request.
            WrongStatus: it is not approved.
        """
        with self._writing() as connection:
            request, before = _move(connection, request_id, Status.PAID)
            if not before:
                payment = Payment(
                    f"P-{secrets.token_hex(4).upper()}", request_id, request.amount_cents, request.currency, _now()
                )
                connection.execute(insert(payments), asdict(payment))
            row = connection.execute(select(payments).where(payments.c.request_id == request_id)).mappings().one()
            return request, Payment(**row), before

    def books(self) -> Books:
        """Return everything, as of one moment."""
        with self._reading() as connection:
            return Books(
                tuple(Order(**row) for row in connection.execute(select(orders)).mappings()),
                tuple(_request(row) for row in connection.execute(select(requests)).mappings()),
                tuple(Payment(**row) for row in connection.execute(select(payments)).mappings()),
            )

    def check(self) -> int:
        """Return the number of orders: a cheap question that fails when the file can't be read."""
        with self._reading() as connection:
            return connection.execute(select(func.count()).select_from(orders)).scalar_one()

    @contextmanager
    def _writing(self) -> Generator[Connection]:
        with self._engine.connect().execution_options(**{WRITES: True}) as connection, connection.begin():
            yield connection

    @contextmanager
    def _reading(self) -> Generator[Connection]:
        with self._engine.connect() as connection, connection.begin():
            yield connection


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _first(connection: Connection, query: Select[Any]) -> RowMapping | None:
    return connection.execute(query).mappings().first()


def _request(row: RowMapping | dict[str, Any]) -> RefundRequest:
    fields: dict[str, Any] = {**row, "status": Status(row["status"])}
    return RefundRequest(**fields)


def _standing(order_id: str) -> Select[Any]:
    return select(requests).where(requests.c.order_id == order_id, requests.c.status != str(Status.REJECTED))


def _order(connection: Connection, order_id: str, user_id: str) -> Order:
    row = _first(connection, select(orders).where(orders.c.order_id == order_id, orders.c.user_id == user_id))
    if row is None:
        msg = f"this user has no order {order_id}"
        raise OrderNotFound(msg)
    return Order(**row)


def _fresh(operation_id: str, order: Order, new: NewRequest) -> RefundRequest:
    now = _now()
    return RefundRequest(
        request_id=f"R-{secrets.token_hex(4).upper()}",
        order_id=order.order_id,
        user_id=order.user_id,
        reason=new.reason,
        amount_cents=order.amount_cents,
        currency=order.currency,
        status=Status.REQUESTED,
        operation_id=operation_id,
        created_at=now,
        updated_at=now,
    )


def _again(said: RowMapping, fingerprint: str) -> Submitted:
    if said["fingerprint"] != fingerprint:
        msg = "this Idempotency-Key was used for another request; use a new key for a new request"
        raise KeyReused(msg)
    answer = json.loads(said["answer"])
    return Submitted(answer["created"], _request(answer["request"]), replayed=True)


def _move(connection: Connection, request_id: str, status: Status) -> tuple[RefundRequest, bool]:
    row = _first(connection, select(requests).where(requests.c.request_id == request_id))
    if row is None:
        msg = f"there is no refund request {request_id}"
        raise RequestNotFound(msg)
    request = _request(row)
    if request.status is status:
        return request, True
    if request.status not in MOVES[status]:
        msg = f"{request_id} is {request.status}; only one that is {' or '.join(sorted(MOVES[status]))} can be {status}"
        raise WrongStatus(msg)
    change = {"status": str(status), "updated_at": _now()}
    connection.execute(update(requests).where(requests.c.request_id == request_id).values(**change))
    return _request({**row, **change}), False
