"""Lives in which people are asked, and in which the state is changed: recorded by `tests.record_histories`."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from perdure import Agent, Decision, Effect, Outcome, ToolCall, ToolContext, ToolError, TurnStatus, tool
from perdure.changes import AddRule, SetPermissionMode
from perdure.models import Purpose
from perdure.permissions import PermissionBehavior, PermissionMode, PermissionRule
from perdure.testing import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from perdure import Interaction, ModelRequest, SessionHandle

REFUND = ToolCall("refund", {"order_id": "A1"})


@tool(effect=Effect.ONCE, approval="ask", subject=lambda arguments: str(arguments["order_id"]))
async def refund(order_id: str) -> str:
    """Refund an order."""
    return f"refunded {order_id}"


@tool(effect=Effect.READ)
async def read(what: str = "it") -> str:
    """Read something."""
    return f"read {what}"


@tool(external=True)
def ship(order_id: str) -> str:
    """Ship an order; the warehouse does it."""
    raise NotImplementedError


tried: list[str] = []


async def look_up(ctx: ToolContext) -> Outcome:
    """Say what became of a transfer: of the first try nothing, of the others nobody knows."""
    return Outcome.did_not_happen() if len(tried) == 1 else Outcome.unknown()


@tool(effect=Effect.ONCE, reconcile=look_up)
async def transfer(ctx: ToolContext) -> str:
    """Transfer money, and lose the answer twice."""
    tried.append(ctx.operation_id)
    if len(tried) < 3:
        msg = "the answer was lost"
        raise ToolError(msg, uncertain=True)
    return "transferred"


def speak(request: ModelRequest) -> str | list[ToolCall]:
    """Ask for what the user's last message names, and end with the results."""
    if request.purpose is Purpose.SUMMARY:
        return "they talked"
    last = request.messages[-1]
    if last.results:
        return "done"
    match last.text.split(" ")[0]:
        case "refund":
            return [REFUND, ToolCall("read"), ToolCall("refund", {"order_id": "B2"})]
        case "small":
            return [REFUND]
        case "ship":
            return [ToolCall("ship", {"order_id": "A1"}), ToolCall("ship", {"order_id": "B2"}), ToolCall("read")]
        case "transfer":
            return [ToolCall("transfer")]
        case "plan":
            todos = {"todos": [{"content": "read it", "status": "in_progress"}]}
            return [ToolCall("plan_enter"), ToolCall("todo_write", todos), REFUND, ToolCall("read")]
        case "leave":
            return [ToolCall("plan_exit")]
        case _:
            return "well " * 40


def agents() -> list[Agent]:
    """Return the agents of these lives."""
    tools = [refund, read, ship, transfer]
    patience, reminder = timedelta(seconds=2), timedelta(seconds=0.8)
    return [
        Agent("asking", ScriptedModel(speak), tools=tools, builtins=["todo", "plan"]),
        Agent("hasty", ScriptedModel(speak), tools=tools, approval_timeout=patience, approval_reminder=reminder),
        Agent("short", ScriptedModel(speak), tools=tools, compact_over=300),
    ]


async def _asked(session: SessionHandle) -> Interaction:
    return (await session.view()).interactions[0]


async def _completed(session: SessionHandle, turn_id: str) -> None:
    while (await session.turn(turn_id)).status is not TurnStatus.COMPLETED:
        await asyncio.sleep(0.05)


async def approved(session: SessionHandle) -> None:
    """Two calls that ask: one approved and remembered, one denied by signal; the next one does not ask."""
    await session.ask("refund both", turn_id="t-1")
    request = await _asked(session)
    await session.respond(request.request_id, {request.calls[0].call_id: Decision(True)}, remember=True, actor="bob")
    workflow = session.client.get_workflow_handle(session.workflow_id)
    answer = {"request_id": (await _asked(session)).request_id, "approve": False, "reason": "not this one"}
    await workflow.signal("respond", answer)
    await _completed(session, "t-1")
    await session.ask("small one", turn_id="t-2")


async def expired(session: SessionHandle) -> None:
    """A question that is brought up twice, and that nobody answers."""
    await session.ask("small one", turn_id="t-1")
    await _completed(session, "t-1")


async def outside(session: SessionHandle) -> None:
    """Two calls that somebody outside carries out, one of which fails; and one whose turn is cancelled meanwhile."""
    await session.ask("ship it", turn_id="t-1")
    request = await _asked(session)
    one, two = (call.call_id for call in request.calls)
    await session.respond(request.request_id, result={one: {"tracking": 5}})
    await session.respond(request.request_id, result={two: ToolError("no stock")})
    await _completed(session, "t-1")
    await session.ask("ship it again", turn_id="t-2")
    await session.cancel("t-2")


async def reconciled(session: SessionHandle) -> None:
    """A call that is lost twice: its tool says that it did not happen, then that it can't tell, then somebody says."""
    tried.clear()
    await session.ask("transfer it", turn_id="t-1")
    (operation,) = (await session.view()).uncertain
    await session.reconcile({operation.operation_id: Outcome.did_not_happen()}, reason="I looked")
    await _completed(session, "t-1")


async def planned(session: SessionHandle) -> None:
    """Plan mode, entered and left; changes of the state in between, and a context that is cleared."""
    await session.ask("plan it", turn_id="t-1")
    rule = PermissionRule(tool_name="refund", behavior=PermissionBehavior.DENY)
    await session.change_state(lambda _: [AddRule(rule), SetPermissionMode(PermissionMode.ACCEPT_EDITS)], reason="r")
    await session.ask("leave it", turn_id="t-2")
    await session.respond((await _asked(session)).request_id, approve=True)
    await _completed(session, "t-2")
    await session.clear_context()
    await session.ask("refund it", turn_id="t-3")


async def compacted(session: SessionHandle) -> None:
    """A conversation over summaries that are due, and one that is asked for."""
    for number in range(8):
        await session.ask(f"talk {number}", turn_id=f"t-{number}")
    await session.compact()
    while (await session.view()).compacting:
        await asyncio.sleep(0.05)
    await session.ask("talk on", turn_id="on")


PEOPLE: dict[str, tuple[str, Callable[[SessionHandle], Awaitable[None]]]] = {
    "approved": ("asking", approved),
    "expired": ("hasty", expired),
    "outside": ("asking", outside),
    "reconciled": ("asking", reconciled),
    "planned": ("asking", planned),
    "compacted": ("short", compacted),
}
"""The lives by name, each with the agent that it is lived with."""
