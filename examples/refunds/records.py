"""What the refund service knows, as values: orders, refund requests, payments, and why something is refused."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, StringConstraints


class Status(StrEnum):
    """How far a refund request is."""

    REQUESTED = "requested"
    APPROVED = "approved"
    PAID = "paid"
    REJECTED = "rejected"


MOVES = {
    Status.APPROVED: frozenset({Status.REQUESTED}),
    Status.REJECTED: frozenset({Status.REQUESTED, Status.APPROVED}),
    Status.PAID: frozenset({Status.APPROVED}),
}
"""From which states each state can be reached."""


OrderId = Annotated[str, StringConstraints(pattern=r"^[A-Z0-9][A-Z0-9-]{0,31}$")]
UserId = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,200}$")]
Reason = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=2000, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]*$"),
]


class NewRequest(BaseModel):
    """What somebody asks for. Nothing else may be in it: a misspelled field is refused, not ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    order_id: OrderId
    user_id: UserId
    reason: Reason
    approved: bool = False
    """Whether a person has agreed, which an order over the limit needs."""


class Question(BaseModel):
    """Which order somebody asks about, and who asks."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    order_id: OrderId
    user_id: UserId


@dataclass(frozen=True, slots=True)
class Order:
    """Something that was sold, to whom and for how much."""

    order_id: str
    user_id: str
    amount_cents: int
    currency: str = "EUR"

    def public(self) -> dict[str, Any]:
        """Return it as the service says it."""
        return {"order_id": self.order_id, "amount": money(self.amount_cents), "currency": self.currency}


@dataclass(frozen=True, slots=True)
class RefundRequest:
    """One row of the ledger. `operation_id` is the caller's key: the same for every attempt of one operation."""

    request_id: str
    order_id: str
    user_id: str
    reason: str
    amount_cents: int
    currency: str
    status: Status
    operation_id: str
    created_at: str
    updated_at: str

    def public(self) -> dict[str, Any]:
        """Return it as the service says it."""
        said = {key: value for key, value in asdict(self).items() if key != "amount_cents"}
        return said | {"amount": money(self.amount_cents)}


@dataclass(frozen=True, slots=True)
class Payment:
    """Money that left, at most once a request."""

    payment_id: str
    request_id: str
    amount_cents: int
    currency: str
    paid_at: str

    def public(self) -> dict[str, Any]:
        """Return it as the service says it."""
        said = {key: value for key, value in asdict(self).items() if key != "amount_cents"}
        return said | {"amount": money(self.amount_cents)}


@dataclass(frozen=True, slots=True)
class Submitted:
    """The answer to a new request: whether it was made, the request that stands, and whether this was said before."""

    created: bool
    request: RefundRequest
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Books:
    """Everything that the ledger holds, read at one moment."""

    orders: tuple[Order, ...]
    requests: tuple[RefundRequest, ...]
    payments: tuple[Payment, ...]


LIMIT_CENTS = 200_00
"""What may be asked for without a person's word."""

SEED = (
    Order("A1042", "alice", 120_00),
    Order("A1043", "alice", 35_50),
    Order("A1044", "alice", 480_00),
    Order("B2001", "bob", 79_90),
)
"""The orders that a new ledger knows."""


def money(cents: int) -> str:
    """Return an amount as people write it. Amounts are whole cents everywhere else: 0.1 + 0.2 has no place here."""
    return f"{cents // 100}.{cents % 100:02d}"


class Refused(Exception):
    """The service does not do what was asked, and nothing changed."""

    type: ClassVar[str]


class OrderNotFound(Refused):
    """No such order, or one of somebody else: the answer is the same, so that nobody learns which."""

    type = "order_not_found"


class OverLimit(Refused):
    """The order is over the limit, and no person has agreed."""

    type = "over_limit"


class RequestNotFound(Refused):
    """No such refund request."""

    type = "request_not_found"


class KeyReused(Refused):
    """The idempotency key was used before, for something else."""

    type = "idempotency_key_reused"


class WrongStatus(Refused):
    """The request is not in a state from which this step is possible."""

    type = "wrong_status"
