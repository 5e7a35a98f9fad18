"""A caller of the refund service, for tests: customers, staff, and a service of one's own."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from examples.refunds.processes import Program, refund_service

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

TOKEN = "for-tests-only"  # noqa: S105  # opens nothing but a service that a test started


@dataclass(eq=False)
class Desk:
    http: httpx.AsyncClient

    async def submit(self, order_id: str, user_id: str, reason: str = "broken", *, key: str = "") -> httpx.Response:
        body = {"order_id": order_id, "user_id": user_id, "reason": reason}
        return await self.http.post("/requests", json=body, headers={"Idempotency-Key": key or str(uuid.uuid4())})

    async def find(self, order_id: str, user_id: str) -> httpx.Response:
        return await self.http.get("/requests", params={"order_id": order_id, "user_id": user_id})

    async def staff(self, path: str, token: str = TOKEN) -> httpx.Response:
        return await self.http.post(path, headers={"X-Staff-Token": token})

    async def settle(self, request_id: str) -> None:
        (await self.staff(f"/requests/{request_id}/approve")).raise_for_status()
        (await self.staff(f"/requests/{request_id}/pay")).raise_for_status()

    async def books(self) -> dict[str, Any]:
        answer = await self.http.get("/ledger", headers={"X-Staff-Token": TOKEN})
        return answer.raise_for_status().json()

    async def counts(self, order_id: str = "A1042") -> tuple[int, int]:
        """Requests and payments of one order."""
        books = await self.books()
        requests = [item["request_id"] for item in books["requests"] if item["order_id"] == order_id]
        return len(requests), sum(payment["request_id"] in requests for payment in books["payments"])

    async def held(self) -> bool:
        return (await self.http.get("/health")).json()["held"] > 0


@contextlib.asynccontextmanager
async def desk_at(url: str) -> AsyncGenerator[Desk]:
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        yield Desk(http)


@contextlib.asynccontextmanager
async def open_desk(
    database: Path, env: Mapping[str, str] | None = None, *, port: int = 0
) -> AsyncGenerator[tuple[Desk, Program]]:
    """Start a refund service of one's own."""
    settings = {"REFUNDS_STAFF_TOKEN": TOKEN, **(env or {})}
    async with refund_service(database, settings, port=port) as (program, url), desk_at(url) as desk:
        yield desk, program


def error_type(answer: httpx.Response) -> str:
    return answer.json()["error"]["type"]
