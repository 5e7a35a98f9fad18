"""What an interrupt takes, from the request to the receipt, and what it leaves: measured at random moments of turns."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure import Agent, App, Delta, Effect, ModelRequest, ModelResponse, ToolCall, tool
from perdure.commands import Partial
from perdure.contract import ModelCall
from perdure.errors import CommandRefused
from perdure.providers.openai_request import request_body
from perdure.requests import build_request
from perdure.testing import serve
from tests.support.openai_validator import problems

if TYPE_CHECKING:
    from perdure import Message, SessionHandle
    from perdure.models import Emit

MOMENTS = 50
LATENCIES = 40
LATE = "and something said too late"


@tool(effect=Effect.READ)
async def look(seconds: float) -> str:
    """Read for a while."""
    await asyncio.sleep(seconds)
    return "seen"


@tool(effect=Effect.IDEMPOTENT)
async def change(seconds: float) -> str:
    """Change something for a while."""
    await asyncio.sleep(seconds)
    return "changed"


@tool
async def pay(seconds: float) -> str:
    """Pay for a while."""
    await asyncio.sleep(seconds)
    return "paid"


class Talks:
    """A model that calls tools and talks for long. When it is cancelled it goes on, and says something too late."""

    def __init__(self, dice: random.Random) -> None:
        """Throw these dice."""
        self.dice = dice

    async def complete(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Answer in many pieces, or with calls."""
        if request.messages[-1].text == "be quick":
            return ModelResponse("quick")
        if request.messages[-1].text == "say nothing":
            await asyncio.Event().wait()
        if request.messages[-1].text != "talk" and self.dice.random() < 0.6:
            names = self.dice.choices(["look", "change", "pay"], k=self.dice.randint(1, 3))
            calls = tuple(ToolCall(name, {"seconds": self.dice.random() / 2}) for name in names)
            return ModelResponse("let me see", calls, finish_reason="tool_calls")
        try:
            for _ in range(100):
                await emit(Delta("word "))
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            await emit(Delta(LATE))
        return ModelResponse(f"words, {LATE}")


@dataclass(frozen=True)
class Interrupts:
    """Seconds to the receipt without and with what was said until then, and what was wrong afterwards."""

    discard: list[float]
    keep: list[float]
    late_answers: int
    refused_contexts: int
    stuck: int

    @property
    def discard_p50(self) -> float:
        """The median without."""
        return statistics.median(self.discard)

    @property
    def discard_p95(self) -> float:
        """The 95th percentile without."""
        return percentile(self.discard)

    @property
    def keep_p95(self) -> float:
        """The 95th percentile with."""
        return percentile(self.keep)


def percentile(times: list[float]) -> float:
    """Return the 95th percentile."""
    return statistics.quantiles(times, n=20)[-1]


async def interrupts(seed: int = 1) -> Interrupts:
    """Measure on a server of its own."""
    dice = random.Random(seed)  # noqa: S311  # dice, and no secrets
    agent = Agent("bench", Talks(dice), tools=[look, change, pay])
    async with serve(App([agent]), storage=None, archive_url=None) as served:
        discard = await latencies(served.sessions.session("bench", "discard"), Partial.DISCARD)
        keep = await latencies(served.sessions.session("bench", "keep"), Partial.KEEP)
        late, refused, stuck = 0, 0, 0
        for number in range(MOMENTS):
            session = served.sessions.session("bench", f"moment-{number}")
            await session.submit("work")
            await asyncio.sleep(dice.random())
            await session.interrupt(message="stop", partial=dice.choice(list(Partial)))
            late_here, refused_here, stuck_here = await aftermath(session, agent)
            late, refused, stuck = late + late_here, refused + refused_here, stuck + stuck_here
    return Interrupts(discard, keep, late, refused, stuck)


async def latencies(session: SessionHandle, partial: Partial) -> list[float]:
    """Return the seconds from interrupts to their receipts, while a model talks."""
    times: list[float] = []
    for _ in range(LATENCIES):
        receipt = await session.submit("talk")
        await asyncio.sleep(0.1)
        begun = time.perf_counter()
        interrupted = await session.interrupt(partial=partial)
        times.append(time.perf_counter() - begun)
        assert interrupted.turn_id == receipt.turn_id
        assert (await session.turn(receipt.turn_id)).status == "interrupted"
    return times


async def aftermath(session: SessionHandle, agent: Agent) -> tuple[int, int, int]:
    """Return how many late answers an interrupted session has, whether its context is refused, and whether it is stuck.

    Everything of the turn has ended by then: an answer that could come late has come.
    """
    for _ in range(100):
        description = await session.client.get_workflow_handle(session.workflow_id).describe()
        if not description.raw_description.pending_activities:
            break
        await asyncio.sleep(0.05)
    entries = [entry async for entry in session.transcript()]
    late = sum(LATE in str(entry.data) for entry in entries)
    refused = len(refusals(agent, (await session.state()).context))
    try:
        stuck = (await session.ask("be quick", timeout=20)).output != "quick"
    except (TimeoutError, CommandRefused):
        stuck = True
    return late, refused, int(stuck)


def refusals(agent: Agent, context: tuple[Message, ...]) -> list[str]:
    """Return what an OpenAI-compatible server would refuse in a context, each tool call's one result included."""
    call = ModelCall.model_validate(
        {
            "agent_id": agent.id,
            "session_id": "s",
            "turn_id": "t",
            "run_id": "r",
            "step": 1,
            "operation_id": "o",
            "base": {"position": 0, "digest": ""},
            "head": {"position": 0, "digest": ""},
        }
    )
    return problems(request_body("model", build_request(agent, call, "", context)))
