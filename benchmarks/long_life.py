"""What a session costs that goes on and on: history, waking, latency, beside one that sends all of it each time."""

from __future__ import annotations

import json
import statistics
import time
import uuid
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError
from temporalio.worker import Worker

from benchmarks.naive import NaiveSession, naive_answer
from perdure import Agent, App, ModelRequest, SessionHandle
from perdure.connection import connect
from perdure.models import Purpose
from perdure.testing import ScriptedModel, Served, serve

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from temporalio.client import Client, WorkflowHandle

SAID = 2_000
"""Bytes that a turn says, and as many that it is answered."""

COMPACT_OVER = 20_000
"""Tokens from which the session that lives for thousands of turns has older messages put into a summary."""

MARKS = (1, 10, 25, 50, 100, 150, 200, 300, 500, 750, 1_000, 1_500, 2_000, 3_000, 4_000, 5_000)
"""Turns after which is measured."""

LOOKED_BACK = 20
"""Turns whose median latency is told."""


def _answer(request: ModelRequest) -> str:
    if request.purpose is Purpose.SUMMARY:
        return "They talked about numbers.".ljust(SAID, ".")
    return request.messages[-1].text[::-1]


def _question(number: int) -> str:
    return f"question {number} ".ljust(SAID, "x")


@asynccontextmanager
async def _serving(compact_over: int | None = None) -> AsyncGenerator[Served]:
    agent = Agent("bench", ScriptedModel(_answer), compact_over=compact_over, queue_limit=10_000)
    async with serve(App([agent])) as served:
        yield served


async def history_ratio(turns: int, *, ask: bool) -> float:
    """Return the bytes of all history of a session over the bytes that were said in it."""
    async with _serving() as served:
        session = served.sessions.session("bench", uuid.uuid4().hex, "user")
        for number in range(turns):
            if ask:
                await session.ask(_question(number), timeout=60)
            else:
                receipt = await session.submit(_question(number))
                if number % 10 == 0 or number == turns - 1:
                    await session.result(receipt.turn_id, timeout=60)
        return await _history_bytes(served.client, session.workflow_id) / (2 * SAID * turns)


async def wakings(turns: int, times: int = 5) -> float:
    """Return the median milliseconds of the first query after a session was evicted, `turns` turns old."""
    async with _serving() as served:
        session = served.sessions.session("bench", uuid.uuid4().hex, "user")
        for number in range(turns):
            await session.ask(_question(number), timeout=60)
        return statistics.median([await _waking(served, session) for _ in range(times)])


async def _waking(served: Served, session: SessionHandle) -> float:
    """Return the milliseconds of the first query on a worker that has never seen the session."""
    await served.stop_worker()
    await served.start_worker()
    other = served.sessions.session("bench", uuid.uuid4().hex, "user")
    await other.ask("hello", timeout=60)  # the worker itself is awake
    begun = time.perf_counter()
    await session.view()
    return (time.perf_counter() - begun) * 1000


async def _history_bytes(client: Client, workflow_id: str) -> int:
    total, run_id = 0, (await client.get_workflow_handle(workflow_id).describe()).run_id
    while run_id:
        events = [
            event async for event in client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history_events()
        ]
        total += sum(event.ByteSize() for event in events)
        run_id = events[0].workflow_execution_started_event_attributes.continued_execution_run_id
    return total


@dataclass(frozen=True)
class Point:
    """What a session is like after so many turns.

    `run_bytes` is the history of its present run, `carried_bytes` what that run began with, both in bytes; the others
    are milliseconds.
    """

    turns: int
    run_bytes: int
    carried_bytes: int
    waking_ms: float
    turn_ms: float


async def curve(turns: int) -> list[Point]:
    """Live a session that has its older messages summed up, and measure it at the marks."""
    async with _serving(COMPACT_OVER) as served:
        session = served.sessions.session("bench", uuid.uuid4().hex, "user")

        async def look(times: list[float], done: int) -> Point:
            view = await session.view()
            size = await _carried(served, session)
            waking = await _waking(served, session)
            return Point(done, view.history_size, size, waking, statistics.median(times[-LOOKED_BACK:]))

        return await _lived(turns, lambda text: session.ask(text, timeout=60), look)


async def _carried(served: Served, session: SessionHandle) -> int:
    """Return the bytes of the session that the present run began with, wherever they lie."""
    first = await anext(served.client.get_workflow_handle(session.workflow_id).fetch_history_events())
    payloads = list(first.workflow_execution_started_event_attributes.input.payloads)
    return sum(len(json.dumps(value)) for value in await served.client.data_converter.decode(payloads))


async def naive_curve(turns: int) -> list[Point]:
    """Live a session that sends all of it each time, until Temporal ends it."""
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(_serving())
        client = await connect(served.address)
        handle = await client.start_workflow(NaiveSession.run, id=f"naive-{uuid.uuid4().hex}", task_queue="naive")

        def worker() -> Worker:
            return Worker(client, task_queue="naive", workflows=[NaiveSession], activities=[naive_answer])

        running = worker()
        await running.__aenter__()

        async def look(times: list[float], done: int) -> Point:
            nonlocal running
            size = (await handle.describe()).raw_description.workflow_execution_info.history_size_bytes
            await running.__aexit__(None, None, None)
            running = worker()
            await running.__aenter__()
            begun = time.perf_counter()
            await cast("Any", handle).query(NaiveSession.said)
            waking = (time.perf_counter() - begun) * 1000
            return Point(done, size, 0, waking, statistics.median(times[-LOOKED_BACK:]))

        try:
            return await _lived(turns, lambda text: _ask_naive(handle, text), look)
        finally:
            await running.__aexit__(None, None, None)


async def _ask_naive(handle: WorkflowHandle[Any, Any], text: str) -> object:
    return await cast("Any", handle).execute_update(NaiveSession.ask, text)


async def _lived(
    turns: int, ask: Callable[[str], Awaitable[object]], look: Callable[[list[float], int], Awaitable[Point]]
) -> list[Point]:
    points: list[Point] = []
    times: list[float] = []
    for number in range(1, turns + 1):
        begun = time.perf_counter()
        try:
            await ask(_question(number))
        except (RPCError, WorkflowUpdateFailedError):  # Temporal has ended it
            return points
        times.append((time.perf_counter() - begun) * 1000)
        if number in MARKS:
            points.append(await look(times, number))
    return points
