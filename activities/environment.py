"""What a worker lends to the tools that it runs, and the context that each call is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx
from temporalio import activity

from perdure.tools import ToolContext

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from concurrent.futures import Executor
    from datetime import timedelta

    from activities.outputs import ResultStore
    from activities.wanting import AskWanted
    from perdure.contract import ToolInvocation
    from perdure.state import AgentState
    from perdure.tools import Tool

IDEMPOTENCY_KEY = "Idempotency-Key"
"""The header's name, as the IETF draft draft-ietf-httpapi-idempotency-key-header has it."""

CONNECT_SECONDS = 10
"""How long a service may take to accept a connection. Before that nothing can have happened there."""


@dataclass(frozen=True)
class ToolEnvironment:
    """What a worker lends to the tools that it runs."""

    resources: Mapping[type, object]
    transport: httpx.AsyncBaseTransport
    threads: Executor
    read_state: Callable[[str], Awaitable[AgentState]]
    ask_wanted: AskWanted
    store: ResultStore | None = field(default=None)
    inline_limit: int | None = None

    def context(self, tool: Tool, invocation: ToolInvocation) -> ToolContext:
        """Return the context of one attempt of a call."""
        workflow_id = activity.info().workflow_id or ""
        return ToolContext(
            agent_id=invocation.agent_id,
            session_id=invocation.session_id,
            user_id=invocation.user_id,
            turn_id=invocation.turn_id,
            run_id=invocation.run_id,
            attributes=invocation.attributes,
            resources=self.resources,
            operation_id=invocation.operation_id,
            attempt=activity.info().attempt,
            http=_client(self.transport, invocation.operation_id, tool.timeout),
            read_state=lambda: self.read_state(workflow_id),
        )


def _client(transport: httpx.AsyncBaseTransport, operation_id: str, timeout: timedelta) -> httpx.AsyncClient:
    """Return a client that sends the operation id with each request, and is as patient as its tool.

    It shares the worker's connections, and must not be closed.
    """

    async def identify(request: httpx.Request) -> None:  # httpx awaits its hooks
        request.headers[IDEMPOTENCY_KEY] = operation_id

    patience = httpx.Timeout(timeout.total_seconds(), connect=CONNECT_SECONDS)
    hooks = {"request": [identify]}
    return httpx.AsyncClient(transport=transport, event_hooks=hooks, timeout=patience, follow_redirects=False)
