"""The app that the command line is tried with: what is said decides what the agent does."""

from __future__ import annotations

from perdure import Agent, App, Effect, ModelRequest, ToolCall, tool
from perdure.testing import Reply, ReplyLike, ScriptedModel

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b[31mred \x9b1m [bold]not bold[/bold] :smile: \u202eesrever\r gone"
"""Text that would rename and clear a terminal, colour it, and hide a part of itself."""

LARGE = "large " * 50_000
"""More than is kept in history."""


@tool(effect=Effect.READ)
async def look_up(order_id: str) -> str:
    """Look an order up."""
    return f"order {order_id} is on its way"


def answer(request: ModelRequest) -> ReplyLike:
    """Answer by the first word."""
    said = request.messages[-1].text
    match said.split()[:1]:
        case ["slow"]:
            return Reply(chunks=["half"] + [""] * 6000, chunk_delay=0.05)
        case ["fail"]:
            return LookupError("no such luck")
        case ["hostile"]:
            return HOSTILE
        case ["large"]:
            return LARGE
        case ["look"]:
            return ToolCall("look_up", {"order_id": "A1042"})
        case []:
            return "it is on its way"
        case _:
            return f"you said {said}"


app = App(agents=[Agent(id="support", model=ScriptedModel(answer), tools=[look_up])])
not_an_app = 42
