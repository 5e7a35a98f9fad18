"""What the demonstration runs on: a Temporal server, the refund service and workers, each a process of its own."""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from examples.refunds.endpoints import STAFF_TOKEN, STAFF_TOKEN_VARIABLE
from examples.refunds.faults import HOLD
from examples.refunds.processes import Program, refund_service
from examples.refunds.tools import REFUNDS_URL
from perdure import SessionHandle, Sessions
from perdure.contract import TASK_QUEUE
from worker.embedded import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

MODEL = "PERDURE_MODEL"
"""Set to nothing: the demonstration is told with the offline model, whatever the shell's own choice is."""

APP = "examples.refunds.app:app"

HEARTBEAT_SECONDS = 3
"""How soon the loss of a worker is noticed: in a demonstration people wait for it. The default is 30."""


@dataclass(frozen=True)
class Stage:
    """Everything that runs, and where it is."""

    server: EmbeddedServer
    sessions: Sessions
    staff: httpx.AsyncClient
    folder: Path

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncGenerator[Program]:
        """Run a worker: `perdure worker examples.refunds.app:app`."""
        env = {
            "TEMPORAL_ADDRESS": self.server.address,
            "TEMPORAL_NAMESPACE": self.server.namespace,
            "PERDURE_HOME": str(self.folder),
            "PERDURE_HEARTBEAT_TIMEOUT": str(HEARTBEAT_SECONDS),
            "PERDURE_TASK_QUEUE": TASK_QUEUE,
            MODEL: "",
            REFUNDS_URL: str(self.staff.base_url),
        }
        async with await Program.start(
            "the worker", "perdure", "worker", APP, env=env, log=self.folder / "worker.log"
        ) as program:
            yield program

    async def books(self) -> dict[str, Any]:
        """Read the ledger, as staff."""
        return (await self.staff.get("/ledger")).raise_for_status().json()

    async def held(self) -> bool:
        """Whether the service holds back an answer: the effect is there, and nobody has been told."""
        return (await self.staff.get("/health")).raise_for_status().json()["held"] > 0

    async def decide(self, request_id: str, step: str) -> None:
        """Approve or pay a request, as staff."""
        (await self.staff.post(f"/requests/{request_id}/{step}")).raise_for_status()

    async def attempts(self, session: SessionHandle, tool: str) -> int:
        """Return how often a tool was started, by the session's history: the highest number of an attempt."""
        workflow = self.sessions.client.get_workflow_handle(session.workflow_id)
        scheduled: set[int] = set()
        attempts = [0]
        async for event in workflow.fetch_history_events():
            if event.activity_task_scheduled_event_attributes.activity_type.name == tool:
                scheduled.add(event.event_id)
            started = event.activity_task_started_event_attributes
            if started.scheduled_event_id in scheduled:
                attempts.append(started.attempt)
        return max(attempts)

    def ui(self, session: SessionHandle) -> str:
        """Return where the Temporal UI shows a session."""
        return f"{self.server.ui_address}/namespaces/{self.server.namespace}/workflows/{quote(session.workflow_id)}"


@contextlib.asynccontextmanager
async def set_up(folder: Path) -> AsyncGenerator[Stage]:
    """Start a Temporal server and a refund service that will hold back its first answer. All data is in `folder`."""
    token = secrets.token_urlsafe()
    settings = {STAFF_TOKEN_VARIABLE: token, HOLD: "1"}
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(EmbeddedServer(folder / "temporal"))
        _, url = await stack.enter_async_context(
            refund_service(folder / "refunds.db", settings, log=folder / "refunds.log")
        )
        staff = await stack.enter_async_context(httpx.AsyncClient(base_url=url, headers={STAFF_TOKEN: token}))
        sessions = await stack.enter_async_context(Sessions.connect(server.address, server.namespace))
        yield Stage(server, sessions, staff, folder)
