"""What is measured: each case drives perdure and the bare workflow on one server, by turns, and gives plain numbers."""

from __future__ import annotations

import asyncio
import statistics
import time
import uuid
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from temporalio.worker import Worker

from benchmarks.bare import BareSession, bare_answer
from perdure import Agent, AgentState, App, Effect, Message, ModelRequest, Role, ToolCall, tool
from perdure.connection import connect
from perdure.testing import ReplyLike, ScriptedModel, Served, serve

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from temporalio.client import Client

WARM_UP = 10
"""Turns that are not counted: imports, caches and the server's own first steps."""

LONG_STEPS = 100
LONG_CHARACTERS = 836_000


@tool(effect=Effect.READ)
async def fetch(page: int) -> str:
    """Return 5 KB."""
    return f"{page}: ".ljust(5_000, "x")


def answer(request: ModelRequest) -> ReplyLike:
    """Answer at once, or, when asked to read, fetch page after page."""
    reading = next(message for message in reversed(request.messages) if message.role is Role.USER).text == "read"
    if reading and request.step < LONG_STEPS:
        return ToolCall("fetch", {"page": request.step})
    return f"heard {request.messages[-1].text[:40]}"


@dataclass(frozen=True)
class Bench:
    """One server with a worker of each kind."""

    served: Served
    client: Client

    async def ours(self) -> Callable[[str], Awaitable[object]]:
        """Return a new session's way to ask."""
        return self.served.sessions.session("bench", uuid.uuid4().hex, "user").ask

    async def bare(self) -> Callable[[str], Awaitable[object]]:
        """Return a new bare workflow's way to ask."""
        handle = await self.client.start_workflow(BareSession.run, id=f"bare-{uuid.uuid4().hex}", task_queue="bare")

        async def ask(text: str) -> object:
            return await cast("Any", handle).execute_update(BareSession.ask, text)

        return ask


@asynccontextmanager
async def bench() -> AsyncGenerator[Bench]:
    """Start a server, one worker of ours and one bare worker."""
    app = App([Agent("bench", ScriptedModel(answer), tools=[fetch], max_steps=LONG_STEPS)])
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(serve(app, storage=None, archive_url=None))
        client = await connect(served.address)
        worker = Worker(client, task_queue="bare", workflows=[BareSession], activities=[bare_answer])
        await stack.enter_async_context(worker)
        yield Bench(served, client)


async def latency(bench: Bench, turns: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each text turn, ours and bare, taken in turn on one session each."""
    ours, bare = await bench.ours(), await bench.bare()
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(WARM_UP + turns):
        for ask, kept in zip((ours, bare), times, strict=True):
            begun = time.perf_counter()
            await ask(f"question {number}")
            if number >= WARM_UP:
                kept.append(time.perf_counter() - begun)
    return times


async def throughput(bench: Bench, sessions: int, turns: int) -> tuple[float, float]:
    """Return turns a second of many sessions side by side, ours and bare: the medians of rounds taken in turn."""
    rounds: tuple[list[float], list[float]] = ([], [])
    asks = ([await bench.ours() for _ in range(sessions)], [await bench.bare() for _ in range(sessions)])

    async def talk(ask: Callable[[str], Awaitable[object]]) -> None:
        for number in range(turns):
            await ask(f"question {number}")

    for number in range(4):
        for kind, kept in zip(asks, rounds, strict=True):
            begun = time.perf_counter()
            await asyncio.gather(*(talk(ask) for ask in kind))
            if number:
                kept.append(sessions * turns / (time.perf_counter() - begun))
    return statistics.median(rounds[0]), statistics.median(rounds[1])


async def events_per_turn(bench: Bench) -> tuple[int, int]:
    """Return what one text turn costs in history events, ours and bare."""
    session = bench.served.sessions.session("bench", uuid.uuid4().hex, "user")
    bare = await bench.client.start_workflow(BareSession.run, id=f"bare-{uuid.uuid4().hex}", task_queue="bare")

    async def ask_bare(text: str) -> object:
        return await cast("Any", bare).execute_update(BareSession.ask, text)

    counts: list[int] = []
    for ask, workflow_id in ((session.ask, session.workflow_id), (ask_bare, bare.id)):
        await ask("first")
        before = await _events(bench.client, workflow_id)
        await ask("second")
        counts.append(await _events(bench.client, workflow_id) - before)
    return counts[0], counts[1]


async def _events(client: Client, workflow_id: str) -> int:
    return len([event async for event in client.get_workflow_handle(workflow_id).fetch_history_events()])


@dataclass(frozen=True)
class LongTurn:
    """What the public long-turn case came to."""

    status: str
    model_calls: int
    history_bytes: int
    seconds: float


async def long_turn(bench: Bench) -> LongTurn:
    """209,000 tokens of conversation, then one turn of 100 model calls with tool results of 5 KB."""
    roles = (Role.USER, Role.ASSISTANT)
    text = "word " * (LONG_CHARACTERS // 5 // 100)
    context = tuple(Message(id=f"m-{number}", role=roles[number % 2], content=text) for number in range(100))
    session_id = uuid.uuid4().hex
    session = await bench.served.sessions.create(
        "bench", session_id, "user", state=AgentState(session_id=session_id, context=context)
    )
    begun = time.perf_counter()
    result = await session.ask("read", timeout=300)
    seconds = time.perf_counter() - begun
    view = await session.view()
    return LongTurn(result.status.value, result.steps, view.history_size, seconds)
