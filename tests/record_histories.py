"""Records the lives in `tests/histories/`, each once: `python -m tests.record_histories [NAME ...]`.

A history that is there already is left alone: it is what sessions out there have lived, and must replay for ever.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from perdure import Agent, App, Delta, Effect, ModelError, ModelRequest, ModelResponse, SessionHandle, ToolCall, tool
from perdure.testing import Served, record_history, serve

if TYPE_CHECKING:
    from perdure.models import Emit

FOLDER = Path(__file__).parent / "histories"


@tool(effect=Effect.READ)
async def look(what: str) -> str:
    """Look something up."""
    return f"{what}: 42"


@tool(effect=Effect.IDEMPOTENT)
async def book(what: str) -> dict[str, str]:
    """Book something."""
    return {"booked": what}


@tool(timeout=timedelta(milliseconds=200))
async def hang() -> None:
    """Never answer."""
    await asyncio.Event().wait()


@tool(effect=Effect.ONCE)
async def pay() -> str:
    """Take longer than an interrupt waits."""
    await asyncio.sleep(4)
    return "paid"


class Actor:
    """A model that plays the part that the user's last message names."""

    def __init__(self) -> None:
        """Begin."""
        self.speaking = asyncio.Event()

    async def complete(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Play."""
        last = request.messages[-1]
        match last.text.split(" ")[0]:
            case "fail":
                msg = "the provider refused"
                raise ModelError(msg)
            case "stream":
                await emit(Delta("half of it"))
                self.speaking.set()
                await asyncio.Event().wait()
            case "tools":
                calls = (ToolCall("look", {"what": "a"}), ToolCall("book", {"what": "b"}), ToolCall("look", {"no": 1}))
                return ModelResponse("let me see", calls, finish_reason="tool_calls")
            case "hang" | "pay" as name:
                self.speaking.set()
                return ModelResponse(tool_calls=(ToolCall(name),))
            case "many" if request.step < 8:
                return ModelResponse(tool_calls=(ToolCall("look", {"what": str(request.step)}),))
            case _ if last.results and request.step < 8 and request.messages[-3].text.startswith("many"):
                return ModelResponse(tool_calls=(ToolCall("look", {"what": str(request.step)}),))
            case _:
                pass
        await emit(Delta("done"))
        return ModelResponse("done")


Life = Callable[[SessionHandle, Actor], Awaitable[None]]


async def text(session: SessionHandle, _: Actor) -> None:
    """Two text turns, one by update and one by signal."""
    await session.ask("hello", turn_id="t-1")
    workflow = session.client.get_workflow_handle(session.workflow_id)
    await workflow.signal("submit_turn", {"input": "again", "turn_id": "t-2"})
    while (await session.view()).turns < 2:
        await asyncio.sleep(0.05)
    await session.result("t-2")


async def tools(session: SessionHandle, _: Actor) -> None:
    """A step of three calls side by side, one of them refused; then a queue."""
    await session.ask("tools please", turn_id="t-1")
    await asyncio.gather(*(session.ask(f"more {number}", turn_id=f"q-{number}") for number in range(3)))


async def failed(session: SessionHandle, _: Actor) -> None:
    """A turn that fails, and one after it."""
    await session.ask("fail now", turn_id="t-1")
    await session.ask("hello", turn_id="t-2")


async def interrupted(session: SessionHandle, actor: Actor) -> None:
    """A model call interrupted twice: its half kept, and dropped."""
    for number, partial in enumerate(("keep", "discard")):
        actor.speaking.clear()
        await session.submit("stream it", turn_id=f"t-{number}")
        await actor.speaking.wait()
        await session.interrupt(message="stop", partial=partial)
        await session.result(f"t-{number}")
    await session.ask("hello", turn_id="t-9")


async def uncertain(session: SessionHandle, actor: Actor) -> None:
    """A tool interrupted that settles later, and one whose outcome nobody knows."""
    await session.submit("pay it", turn_id="t-1")
    await actor.speaking.wait()
    await asyncio.sleep(0.3)
    await session.interrupt()
    await session.result("t-1")
    while (await session.view()).uncertain:
        await asyncio.sleep(0.05)
    await session.ask("hang on", turn_id="t-2")


async def malformed(session: SessionHandle, _: Actor) -> None:
    """Signals that can't be accepted."""
    await session.ask("hello", turn_id="t-1")
    workflow = session.client.get_workflow_handle(session.workflow_id)
    for name, argument in (("submit_turn", "text"), ("submit_turn", {"input": ""}), ("nothing", {}), ("close", 1)):
        await workflow.signal(name, argument)
    await session.ask("hello", turn_id="t-2")


async def carried(session: SessionHandle, _: Actor) -> None:
    """A turn of many steps that lives through several runs; the last one is recorded."""
    await session.ask("many steps", turn_id="t-1")
    await session.ask("hello", turn_id="t-2")


async def closed(session: SessionHandle, actor: Actor) -> None:
    """A session closed in the middle of a model call, with a queue."""
    await session.submit("stream it", turn_id="t-1")
    await session.submit("later", turn_id="t-2")
    await actor.speaking.wait()
    await session.close("enough")


async def cancelled(session: SessionHandle, actor: Actor) -> None:
    """A workflow cancelled by an operator."""
    await session.submit("stream it", turn_id="t-1")
    await actor.speaking.wait()
    workflow = session.client.get_workflow_handle(session.workflow_id)
    await workflow.cancel()
    while (await workflow.describe()).close_time is None:
        await asyncio.sleep(0.05)


async def unknown_agent(session: SessionHandle, _: Actor) -> None:
    """A session whose agent the worker does not have."""
    other = SessionHandle.of(session.client, session.workflow_id)
    await other.ask("hello", turn_id="t-1")


LIVES: dict[str, tuple[str, Life]] = {
    life.__name__: ("stranger" if life is unknown_agent else "actor", life)
    for life in (text, tools, failed, interrupted, uncertain, malformed, carried, closed, cancelled, unknown_agent)
}


async def record(served: Served, actor: Actor, name: str) -> None:
    """Live a life and record its last run."""
    agent, life = LIVES[name]
    actor.speaking.clear()
    session = served.sessions.session(agent, f"life-{name}", "alice")
    await life(session, actor)
    await record_history(session, FOLDER / f"{name}.json")


async def main(names: list[str]) -> None:
    """Record what is missing, or what is named."""
    actor = Actor()
    app = App([Agent("actor", actor, tools=[look, book, hang, pay])])
    wanted = names or [name for name in LIVES if not (FOLDER / f"{name}.json").exists()]
    for name in wanted:
        config = {"limit.historyCount.suggestContinueAsNew": 25} if name == "carried" else {}
        async with serve(app, dynamic_config=config, storage=None, archive_url=None) as served:
            await record(served, actor, name)
        print(name)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
