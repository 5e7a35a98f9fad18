"""The app that the command line is tried with: what is said decides what the agent does."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perdure import Agent, App, Delta, Effect, ModelRequest, ModelResponse, Purpose, ToolCall, ToolError, tool
from perdure.testing import Reply, ReplyLike, ScriptedModel

if TYPE_CHECKING:
    from perdure.models import Emit

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[31mred \x9b1m [bold]not bold[/bold] :smile: \u202eesrever\r gone"
"""Text that would rename and clear a terminal, colour it, and hide a part of itself."""

LARGE = "large " * 50_000
"""More than is kept in history."""


@tool(effect=Effect.READ)
async def look_up(order_id: str) -> str:
    """Look an order up."""
    return f"order {order_id} is on its way"


@tool(effect=Effect.ONCE, approval="ask", subject=lambda arguments: str(arguments["order_id"]))
async def refund(order_id: str, amount: int = 5) -> str:
    """Refund an order."""
    return f"refunded {amount} for {order_id}"


@tool(external=True)
def ship(order_id: str) -> str:
    """Ship an order; the warehouse does it."""
    raise NotImplementedError


@tool(effect=Effect.ONCE)
async def lose(what: str) -> str:
    """Do something, and lose the answer the first time."""
    lost[what] += 1
    if lost[what] == 1:
        msg = "the answer was lost"
        raise ToolError(msg, uncertain=True)
    return f"did {what}"


lost: dict[str, int] = defaultdict(int)


@dataclass
class Gate:
    """Where a model call waits, half an answer spoken, until a test lets it go on."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)


gates: dict[str, Gate] = defaultdict(Gate)
"""The gates by the name that is said behind `hold`."""


class Model:
    """A model by the script below, that can be held."""

    def __init__(self) -> None:
        """Begin the script."""
        self._scripted = ScriptedModel(answer)

    async def complete(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Answer."""
        match request.messages[-1].text.split():
            case ["hold", name]:
                await emit(Delta("half"))
                gates[name].reached.set()
                await gates[name].opened.wait()
                return ModelResponse(f"held {name}")
            case _:
                return await self._scripted.complete(request, emit)


def calls_for(words: list[str]) -> list[ToolCall]:
    """Return the calls that a person's words ask for."""
    match words:
        case ["refund", *orders]:
            return [ToolCall("refund", {"order_id": order}) for order in orders]
        case ["ship"]:
            return [ToolCall("ship", {"order_id": "A1042"})]
        case ["lose", what]:
            return [ToolCall("lose", {"what": what})]
        case ["look"]:
            return [ToolCall("look_up", {"order_id": "A1042"})]
        case _:
            return []


def answer(request: ModelRequest) -> ReplyLike:
    """Answer by the first word."""
    said = request.messages[-1].text
    if request.purpose is Purpose.SUMMARY:
        return "they talked"
    if calls := calls_for(said.split()):
        return calls
    match said.split()[:1]:
        case ["slow"]:
            return Reply(chunks=["half"] + [""] * 6000, chunk_delay=0.05)
        case ["fail"]:
            return LookupError("no such luck")
        case ["hostile"]:
            return HOSTILE
        case ["large"]:
            return LARGE
        case []:
            results = request.messages[-1].results
            return results[-1].text if results and results[-1].name != "look_up" else "it is on its way"
        case _:
            return f"you said {said}"


app = App(agents=[Agent(id="support", model=Model(), tools=[look_up, refund, ship, lose])])
not_an_app = 42
