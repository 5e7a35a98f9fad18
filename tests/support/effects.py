"""A system of record for tests: a real HTTP service that counts effects by idempotency key and can hold its answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from starlette.requests import Request


@dataclass
class Effects:
    """What the service has seen: `calls` counts requests by tool, `keys` holds their keys in order."""

    url: str = ""
    calls: Counter[str] = field(default_factory=Counter[str])
    keys: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    async def called(self, tool: str, times: int = 1) -> bool:
        """Tell whether a tool was called so often; for `until`."""
        return self.calls[tool] >= times

    async def handle(self, request: Request) -> JSONResponse:
        """Take an effect, then answer when it is let."""
        tool = request.path_params["tool"]
        self.calls[tool] += 1
        self.keys.setdefault(tool, []).append(request.headers.get("Idempotency-Key", ""))
        await self.answers.wait()
        return JSONResponse({"tool": tool, "calls": self.calls[tool]})


@asynccontextmanager
async def effects() -> AsyncGenerator[Effects]:
    """Serve for the length of a test, on a free port."""
    service = Effects()
    app = Starlette(routes=[Route("/{tool}", service.handle, methods=["POST"])])
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    server.capture_signals = _no_signals  # type: ignore[method-assign]  # the test's own handlers stay
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    service.url = f"http://127.0.0.1:{port}"
    try:
        yield service
    finally:
        service.answers.set()
        server.should_exit = True
        server.force_exit = True
        await task


@contextmanager
def _no_signals() -> Generator[None]:
    yield
