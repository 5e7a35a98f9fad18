"""Records the lives in `tests/histories/`, each once: `python -m tests.record_histories [NAME ...]`.

A history that is there already is left alone: it is what sessions out there have lived, and must replay for ever.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure import Agent, App, Delta, Effect, ModelError, ModelRequest, ModelResponse, SessionHandle, ToolCall, tool
from perdure.testing import DEFAULT, Served, record_history, serve
from tests.support.lived import PEOPLE, agents

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


@tool(effect=Effect.READ)
async def gaze() -> None:
    """Read without end."""
    await asyncio.Event().wait()


class Actor:
    """A model that plays the part that the user's last message names."""

    def __init__(self) -> None:
        """Begin."""
        self.speaking = asyncio.Event()
        self.go_on = asyncio.Event()

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
            case "slow" if request.step == 1:
                self.speaking.set()
                await self.go_on.wait()
            case "gaze":
                return ModelResponse(tool_calls=(ToolCall("gaze"),))
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


async def speaking(session: SessionHandle, actor: Actor, turn_id: str) -> None:
    """Have a turn run whose model call has said something."""
    actor.speaking.clear()
    await session.submit("stream it", turn_id=turn_id)
    await actor.speaking.wait()


async def resumed(session: SessionHandle, actor: Actor) -> None:
    """A turn interrupted and resumed, twice, and then cancelled; one that is resumed to its end."""
    await speaking(session, actor, "t-1")
    await session.interrupt(message="stream it", actor="bob")
    for number in range(2):
        actor.speaking.clear()
        await session.resume("t-1", run_id=f"r-{number}")
        await actor.speaking.wait()
        await session.interrupt(message="stream it", partial="discard")
    await session.cancel("t-1")
    await speaking(session, actor, "t-2")
    await session.interrupt(message="answer", partial="discard")
    await session.resume("t-2")
    await session.result("t-2")


async def steered(session: SessionHandle, actor: Actor) -> None:
    """Input that joined a running turn before and during its last model call, and input that waited for the next."""
    await session.submit("slow", turn_id="t-1")
    await actor.speaking.wait()
    await session.steer("slow", actor="bob")
    await session.inject("by the way")
    await session.submit("also this", turn_id="t-2", on_busy="steer")
    actor.go_on.set()
    await session.result("t-1")
    await session.inject("and this")
    await session.ask("hello", turn_id="t-3")


async def paused(session: SessionHandle, actor: Actor) -> None:
    """A pause in the middle of a step, with a queue; another one on an idle session."""
    await session.submit("tools please", turn_id="t-1")
    await session.pause("lunch")
    await session.submit("hello", turn_id="t-2")
    while (view := await session.view()).active is None or view.active.doing != "held":
        await asyncio.sleep(0.05)
    await session.unpause()
    await session.result("t-2")
    await session.pause()
    await session.submit("hello again", turn_id="t-3")
    await session.unpause()
    await session.result("t-3")
    del actor


async def busy(session: SessionHandle, actor: Actor) -> None:
    """Turns that are interrupted, rolled back and overtaken by submits, and a queue that is parked."""
    await speaking(session, actor, "t-1")
    await session.submit("later", turn_id="t-2")
    await session.ask("at once", turn_id="t-3", on_busy="interrupt")
    await session.result("t-2")
    await speaking(session, actor, "t-4")
    await session.submit("later", turn_id="t-5")
    await session.submit("only this", turn_id="t-6", on_busy="latest")
    await session.ask("forget that", turn_id="t-7", on_busy="rollback")
    await session.result("t-6")
    actor.speaking.clear()
    await session.submit("stream it", turn_id="t-8", after_interrupt="park")
    await actor.speaking.wait()
    await session.submit("parked", turn_id="t-9")
    await session.interrupt()
    await session.cancel("t-8")
    await session.result("t-9")


async def timed_out(session: SessionHandle, actor: Actor) -> None:
    """A turn whose time is over while a tool reads, and one that is in time."""
    await session.ask("hello", turn_id="t-0")
    await session.ask("gaze at it", turn_id="t-1")
    await session.ask("hello", turn_id="t-2")
    del actor


async def settled_late(session: SessionHandle, actor: Actor) -> None:
    """A session closed while it pays: it ends when that has settled."""
    await session.submit("pay it", turn_id="t-1")
    await actor.speaking.wait()
    await asyncio.sleep(0.3)
    await session.close("enough")
    workflow = session.client.get_workflow_handle(session.workflow_id)
    while (await workflow.describe()).close_time is None:
        await asyncio.sleep(0.05)


async def renewed(session: SessionHandle, actor: Actor) -> None:
    """A session that continues as new in the moment in which it has answered a command."""
    await session.ask("hello", turn_id="t-1")
    for number in range(12):
        await session.inject(f"note {number}")
    await session.ask("hello again", turn_id="t-2")
    del actor


async def moved_on(session: SessionHandle, _: Actor) -> None:
    """A session that somebody asked to go on in a new run, as `perdure upgrade` does; the run that was left."""
    await session.ask("hello", turn_id="t-1")
    await session.renew()
    await session.ask("hello again", turn_id="t-2")


def _alone(life: Callable[[SessionHandle], Awaitable[None]]) -> Life:
    """Return a life that needs nobody's part played."""

    async def lived(session: SessionHandle, _: Actor) -> None:
        await life(session)

    return lived


async def kept(session: SessionHandle, _: Actor) -> None:
    """Hand over to the archive when it falls idle, then begin a new run."""
    await session.ask("hello")
    first = await run_now(session)
    await session.ask("tools")
    while await run_now(session) == first:
        await asyncio.sleep(0.05)


async def came_back(session: SessionHandle, _: Actor) -> None:
    """Be closed, and come back from the archive with what was said."""
    await session.ask("hello", turn_id="t-1")
    await session.close("done")
    await session.client.get_workflow_handle(session.workflow_id).result()
    await session.ask("hello again", turn_id="t-2")
    await session.ask("hello", turn_id="t-1")


async def blind(session: SessionHandle, _: Actor) -> None:
    """Begin and be closed while the archive is down, and open again where it is."""
    await session.ask("hello", turn_id="t-1")
    await session.close("done")
    await session.ask("hello again", turn_id="t-2")


LIVES: dict[str, tuple[str, Life]] = {name: (agent, _alone(life)) for name, (agent, life) in PEOPLE.items()} | {
    life.__name__: ("stranger" if life is unknown_agent else "actor", life)
    for life in (
        *(text, tools, failed, interrupted, uncertain, malformed, carried, closed, cancelled, unknown_agent),
        *(resumed, steered, paused, busy, timed_out, settled_late, renewed, moved_on),
        *(kept, came_back, blind),
    )
}
HURRIED = {"timed_out"}
"""Lives of the agent whose turns have little time."""

LEFT = {"renewed", "moved_on", "kept"}
"""Lives of which the last run but one is kept."""

RENEWED = {"carried", "renewed"}
"""Lives on a server that suggests a new run every few events."""


ARCHIVED: dict[str, dict[str, Any]] = {
    "kept": {"archive_url": DEFAULT, "renew_idle_events": 20, "renew_events": 1_000},
    "came_back": {"archive_url": DEFAULT},
    "blind": {"archive_url": "postgresql://127.0.0.1:1/none"},
}
"""Lives with an archive, or with one that is down."""


async def record(served: Served, actor: Actor, name: str) -> None:
    """Live a life and record its last run; of one that continues as new while it is asked, the one before that."""
    agent, life = LIVES[name]
    agent = "hurried" if name in HURRIED else agent
    actor.speaking.clear()
    session = served.sessions.session(agent, f"life-{name}", "alice")
    await life(session, actor)
    run_id = await run_before(session) if name in LEFT else None
    await record_history(session, FOLDER / f"{name}.json", run_id=run_id)


async def run_now(session: SessionHandle) -> str:
    """Return Temporal's id of the present run."""
    return (await session.client.get_workflow_handle(session.workflow_id).describe()).run_id


async def run_before(session: SessionHandle) -> str:
    """Return Temporal's id of the run that the present one continues."""
    workflow = session.client.get_workflow_handle(session.workflow_id)
    first = await anext(workflow.fetch_history_events())
    return first.workflow_execution_started_event_attributes.continued_execution_run_id


async def main(names: list[str]) -> None:
    """Record what is missing, or what is named."""
    actor = Actor()
    tools = [look, book, hang, pay, gaze]
    hurried = Agent("hurried", actor, tools=tools, turn_timeout=timedelta(seconds=2))
    app = App([Agent("actor", actor, tools=tools), hurried, *agents()])
    wanted = names or [name for name in LIVES if not (FOLDER / f"{name}.json").exists()]
    for name in wanted:
        config = {"limit.historyCount.suggestContinueAsNew": 25} if name in RENEWED else {}
        settings: dict[str, Any] = {"archive_url": None} | ARCHIVED.get(name, {})
        async with serve(app, dynamic_config=config, storage=None, **settings) as served:
            await record(served, actor, name)
        print(name)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
