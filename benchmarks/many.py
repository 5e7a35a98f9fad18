"""Many open sessions on one server and one worker: the worker's memory while they come, and that each answers again."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from rich.table import Table

from perdure import Agent, App, ModelRequest
from perdure.testing import ScriptedModel, serve
from tests.support.processes import worker_process

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from perdure import SessionHandle

DOCS = Path(__file__).parents[1] / "docs"
MIB = 1024**2
AT_ONCE = 64
"""Turns in flight at a moment."""
CACHED = 1_000
"""Sessions that the worker keeps in memory; the default."""
STEPS = 10
"""How often the worker's memory is looked at in each round."""


def _answer(request: ModelRequest) -> str:
    return f"turn {sum(message.role.value == 'user' for message in request.messages)}"


app = App([Agent("many", ScriptedModel(_answer))])


@dataclass(frozen=True)
class Look:
    """The worker after so many turns of a round.

    `worker_mib` is its resident memory, `turn_ms` the median of the turns since the last look.
    """

    round: str
    turns: int
    worker_mib: float
    turn_ms: float


async def many(console: Console, count: int) -> list[Look]:
    """Open sessions by one turn each, then wake each by another; raise if one answers wrongly."""
    async with serve(app, workers=0) as served, worker_process("benchmarks.many:app", served.env) as worker:
        process = psutil.Process(worker.pid)
        sessions = [served.sessions.session("many", uuid.uuid4().hex, f"user-{number}") for number in range(count)]
        looks: list[Look] = []
        for name, expected in (("open", "turn 1"), ("wake", "turn 2")):
            for part in range(STEPS):
                some = sessions[part * count // STEPS : (part + 1) * count // STEPS]
                times = await _ask(some, expected)
                looks.append(
                    Look(
                        name,
                        (part + 1) * count // STEPS,
                        process.memory_info().rss / MIB,
                        statistics.median(times) * 1000,
                    )
                )
                console.print(f"{name}: {looks[-1].turns} of {count}, worker {looks[-1].worker_mib:.0f} MiB")
        return looks


async def _ask(sessions: Iterable[SessionHandle], expected: str) -> list[float]:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(session: SessionHandle) -> float:
        async with places:
            begun = time.perf_counter()
            result = await session.ask("hello", timeout=120)
            if result.output != expected:
                msg = f"{session.workflow_id} answered {result.output!r} and not {expected!r}"
                raise AssertionError(msg)
            return time.perf_counter() - begun

    async with asyncio.TaskGroup() as group:
        turns = [group.create_task(one(session)) for session in sessions]
    return [turn.result() for turn in turns]


def show_many(console: Console, count: int) -> None:
    """Measure, print a table and keep it in `docs/`."""
    looks = asyncio.run(many(console, count))
    shown = Table(title=f"{count} open sessions, one worker with {CACHED} in its cache")
    for column in ("round", "sessions", "worker, MiB", f"turn, ms ({AT_ONCE} at once)"):
        shown.add_column(column, justify="right")
    for look in looks:
        shown.add_row(look.round, f"{look.turns}", f"{look.worker_mib:.0f}", f"{look.turn_ms:.0f}")
    console.print(shown)
    (DOCS / "many-sessions.json").write_text(json.dumps([asdict(look) for look in looks], indent=2) + "\n")
