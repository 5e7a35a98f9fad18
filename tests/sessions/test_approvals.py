"""Approvals, external calls, plan mode and tool groups on the real server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from perdure import (
    Agent,
    App,
    Decision,
    Effect,
    PermissionBehavior,
    PermissionContext,
    PermissionMode,
    PermissionRule,
    RuntimeContext,
    SessionHandle,
    Sessions,
    SessionStatus,
    ToolCall,
    ToolError,
    ToolGroup,
    TurnStatus,
    Verdict,
    tool,
)
from perdure.changes import AddRule, SetActivatedGroups, SetPermissionMode
from perdure.errors import InteractionNotFound, InvalidCommand, SessionExists
from perdure.testing import ScriptedModel, serve
from tests.support.stage import Stage
from tests.support.world import failed_tasks_ever, fresh, until, world

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from perdure import Interaction, Tool
    from perdure.testing import Script
    from worker.embedded import EmbeddedServer

REFUND = ToolCall("refund", {"order_id": "A1", "amount": 500})


class Till:
    """Tools that pay, and what was paid."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []

    def tools(self) -> list[Tool]:
        """Return the tools."""

        def check(_: RuntimeContext, arguments: Mapping[str, int]) -> Verdict | None:
            if arguments["amount"] > 1000:
                return Verdict.deny("never that much")
            return Verdict.ask("over the limit") if arguments["amount"] > 100 else None

        @tool(effect=Effect.ONCE, check=check, subject=lambda arguments: str(arguments["order_id"]))
        async def refund(order_id: str, amount: int) -> str:
            """Refund an order."""
            self.paid.append((order_id, amount))
            return f"refunded {amount}"

        @tool(effect=Effect.READ)
        def look() -> str:
            """Look."""
            return "seen"

        @tool(external=True)
        def ship(order_id: str) -> str:
            """Ship an order; the warehouse does it."""
            raise NotImplementedError

        return [refund, look, ship]


@asynccontextmanager
async def talking(
    server: EmbeddedServer, script: Script, **options: object
) -> AsyncGenerator[tuple[SessionHandle, Till]]:
    """Serve an agent with a till, and give a session with it."""
    till = Till()
    agent = Agent("a", ScriptedModel(script), tools=till.tools(), **options)  # type: ignore[arg-type]
    async with world(server, App([agent])) as served:
        yield served.sessions.session("a", fresh(), "alice"), till


async def asked(session: SessionHandle) -> Interaction:
    """Return what the session asks, which is one thing."""
    (one,) = (await session.view()).interactions
    return one


# ---- approvals ------------------------------------------------------------------------------------------------------


async def test_a_call_over_the_limit_waits_for_a_person_and_runs_once(server: EmbeddedServer) -> None:
    """B44, B45: the list of all that waits shows it; answering it twice is refused (B82)."""
    async with talking(server, [[REFUND, ToolCall("look")], "done"]) as (session, till):
        result = await session.ask("refund it", timeout=30)
        assert (result.status, till.paid) == (TurnStatus.SUSPENDED, [])
        request = await asked(session)
        assert [(call.tool, call.subject, call.reason) for call in request.calls] == [
            ("refund", "A1", "over the limit")
        ]
        answers = await asyncio.gather(
            session.respond(request.request_id, True, actor="bob"),
            session.respond(request.request_id, False, actor="carol"),
            return_exceptions=True,
        )
        refused = [answer for answer in answers if isinstance(answer, InteractionNotFound)]
        assert len(refused) == 1
        assert ("bob" in str(refused[0])) != ("carol" in str(refused[0]))
        done = await session.result(result.turn_id, timeout=30)
        assert (done.output, done.run_id != result.run_id) == ("done", True)
        assert len(till.paid) == (1 if "bob" in str(refused[0]) else 0)
        kinds = [entry.kind async for entry in session.transcript()]
        assert kinds.count("answer") == kinds.count("interaction") == 1
        assert await failed_tasks_ever(session) == 0


async def test_an_approval_that_is_asked_before_a_deploy_is_answered_after_it_and_runs_once(
    server: EmbeddedServer,
) -> None:
    """B45, B64: the worker that asked is gone, and the new one has other instructions and another model."""
    till = Till()
    old = App([Agent("a", ScriptedModel([[REFUND]]), tools=till.tools())])
    new = App([Agent("a", ScriptedModel(["done by the new one"]), instructions="Be new.", tools=till.tools())])
    async with world(server, old) as served:
        session = served.sessions.session("a", fresh(), "alice")
        result = await session.ask("refund it", timeout=30)
        await served.stop_worker()
        await served.start_worker(new)
        await session.respond((await asked(session)).request_id, True)
        assert (await session.result(result.turn_id, timeout=30)).output == "done by the new one"
        assert till.paid == [("A1", 500)]
        assert await failed_tasks_ever(session) == 0


@pytest.mark.parametrize(
    ("arguments", "paid", "words"),
    [
        ({"order_id": "A1", "amount": 300}, [("A1", 300)], "refunded 300"),
        ({"order_id": "A1", "amount": 3000}, [], "never that much"),
        ({"order_id": "B9", "amount": 1}, [], "forbids this call"),
        ({"order_id": "A1", "amount": "a lot"}, [], "do not fit"),
    ],
)
async def test_arguments_that_a_person_has_edited_are_checked_again_and_deny_wins(
    server: EmbeddedServer, arguments: dict[str, object], paid: list[object], words: str
) -> None:
    """B45: against the schema, the deny rules and the tool's own check."""
    async with talking(server, [[REFUND], "done"]) as (session, till):
        result = await session.ask("refund it", timeout=30)
        forbidden = PermissionRule(tool_name="refund", rule_content="B*", behavior=PermissionBehavior.DENY)
        await session.change_state(lambda _: [AddRule(forbidden)], reason="B is blocked")
        request = await asked(session)
        decision = Decision(True, arguments=arguments)
        await session.respond(request.request_id, {request.calls[0].call_id: decision})
        await session.result(result.turn_id, timeout=30)
        assert till.paid == paid
        assert words in (await session.state()).context[2].results[0].text


async def test_what_was_approved_and_remembered_is_not_asked_again_in_this_session_only(server: EmbeddedServer) -> None:
    """B43, B46: rules of one session don't touch another's."""
    till = Till()
    agent = Agent("a", ScriptedModel(lambda request: _refund_once(request.messages)), tools=till.tools())
    async with world(server, App([agent])) as served:
        session, other = (served.sessions.session("a", fresh(), user) for user in ("alice", "bob"))
        first = await session.ask("refund it", timeout=30)
        await session.respond((await asked(session)).request_id, True, remember=True)
        assert (await session.result(first.turn_id, timeout=30)).status is TurnStatus.COMPLETED
        assert (await session.ask("again", timeout=30)).status is TurnStatus.COMPLETED
        assert (await other.ask("refund it", timeout=30)).status is TurnStatus.SUSPENDED
        assert len(till.paid) == 2


def _refund_once(messages: Sequence[object]) -> str | list[ToolCall]:
    last = messages[-1]
    return "done" if getattr(last, "results", ()) else [REFUND]


async def test_every_session_that_waits_for_a_person_is_found(server: EmbeddedServer) -> None:
    """B44: across users, and no more when it is answered."""
    async with talking(server, [[REFUND], "done"]) as (session, _):
        result = await session.ask("refund it", timeout=30)

        async def waiting() -> bool:
            found = [info async for info in Sessions(session.client).list(status="needs_approval")]
            return session.key in [info.key for info in found]

        await until(waiting)
        await session.respond((await asked(session)).request_id, False)
        await session.result(result.turn_id, timeout=30)

        async def over() -> bool:
            return not await waiting()

        await until(over)


async def test_a_question_is_brought_up_again_and_expires_on_temporals_clock() -> None:
    """B47: a week passes in seconds; an expired approval counts as denied."""
    till = Till()
    agent = Agent(
        "a",
        ScriptedModel([[REFUND], "as nobody agreed, nothing was paid"]),
        tools=till.tools(),
        approval_timeout=timedelta(days=7),
        approval_reminder=timedelta(days=2),
    )
    async with serve(App([agent]), time_skipping=True) as served:
        session = served.sessions.session("a", fresh(), "alice")
        result = await session.ask("refund it", timeout=30)
        done = await _completed(session, result.turn_id)
        assert done == "as nobody agreed, nothing was paid"
        assert till.paid == []
        entries = [entry async for entry in session.transcript()]
        assert [entry.data["reminders"] for entry in entries if entry.kind == "interaction"] == [0, 1, 2, 3]
        asked_at, answered_at = (next(e.at for e in entries if e.kind == kind) for kind in ("interaction", "answer"))
        assert answered_at - asked_at >= timedelta(days=7)


async def _completed(session: SessionHandle, turn_id: str) -> str:
    async def completed() -> bool:
        return (await session.turn(turn_id)).status is TurnStatus.COMPLETED

    await until(completed)
    return (await session.turn(turn_id)).output


# ---- permissions ----------------------------------------------------------------------------------------------------


async def test_a_new_session_has_its_agents_permissions_or_those_that_it_was_created_with(
    server: EmbeddedServer,
) -> None:
    """B41, B42: explore lets it look and denies the rest; a session without rules lets tools run."""
    explore = PermissionContext(mode=PermissionMode.EXPLORE)
    small = [ToolCall("refund", {"order_id": "A1", "amount": 1}), ToolCall("look")]
    till = Till()
    agent = Agent("a", ScriptedModel([small, "done"] * 2), tools=till.tools(), permissions=explore)
    async with world(server, App([agent])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        await session.ask("refund it", timeout=30)
        assert till.paid == []
        states = [result.state.value for result in (await session.state()).context[2].results]
        assert states == ["denied", "success"]
        assert (await session.state()).permission_context == explore
        created = await _created(served.sessions, PermissionContext())
        await created.ask("refund it", timeout=30)
        assert till.paid == [("A1", 1)]


async def _created(sessions: Sessions, permissions: PermissionContext) -> SessionHandle:
    created = await sessions.create("a", fresh(), "alice", permissions=permissions)
    with pytest.raises(SessionExists):
        await sessions.create("a", created.key.session_id, "alice")
    return created


async def test_a_change_of_mode_takes_effect_at_the_next_step_of_a_running_turn(server: EmbeddedServer) -> None:
    """B49."""
    stage, till = Stage(), Till()
    async with world(server, App([Agent("a", stage, tools=till.tools())])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        await session.submit("look, then refund", turn_id="t-1")
        call = await stage.call(1)
        await session.change_state(lambda _: [SetPermissionMode(PermissionMode.DONT_ASK)], reason="at night")
        call.answer("", REFUND, ToolCall("look"))
        (await stage.call(2)).answer("done")
        assert (await session.result("t-1", timeout=30)).status is TurnStatus.COMPLETED
        assert till.paid == []
        assert (await session.state()).context[2].results[0].state == "denied"


# ---- calls that somebody outside carries out ------------------------------------------------------------------------


async def test_somebody_outside_carries_a_call_out_and_gives_its_result_by_id(server: EmbeddedServer) -> None:
    """B39: also one that failed; invented ids are refused and leave it waiting."""
    ship = ToolCall("ship", {"order_id": "A1"})
    async with talking(server, [[ship, ship], "shipped"]) as (session, _):
        result = await session.ask("ship it", timeout=30)
        assert result.status is TurnStatus.SUSPENDED
        assert (await session.view()).status is SessionStatus.NEEDS_RESULT
        request = await asked(session)
        one, two = (call.call_id for call in request.calls)
        with pytest.raises(InvalidCommand):
            await session.respond(request.request_id, result={"invented": 1})
        first = await session.respond(request.request_id, result={one: {"tracking": 5}})
        assert first.disposition == "waiting"
        last = await session.respond(request.request_id, result={two: ToolError("no stock")}, actor="warehouse")
        assert (last.disposition, last.run_id != result.run_id) == ("started", True)
        assert (await session.result(result.turn_id, timeout=30)).output == "shipped"
        results = (await session.state()).context[2].results
        assert [(each.state.value, each.text) for each in results] == [
            ("success", '{"tracking":5}'),
            ("error", "no stock"),
        ]


# ---- plan mode, todos, tool groups ----------------------------------------------------------------------------------


async def test_a_session_in_plan_mode_reads_plans_and_acts_when_a_person_has_agreed(server: EmbeddedServer) -> None:
    """B50, B53, B55: the flag survives another worker; the model is told of plan and todos beside its context."""
    todos = [{"content": "refund A1", "status": "in_progress"}]
    small = ToolCall("refund", {"order_id": "A1", "amount": 1})
    script = [
        [ToolCall("plan_enter"), ToolCall("todo_write", {"todos": todos})],
        [small, ToolCall("look"), ToolCall("plan_write", {"content": "1. refund A1"})],
        [ToolCall("plan_exit", {"summary": "refund A1"})],
        [small],
        "done",
    ]
    till, model = Till(), ScriptedModel(script)
    async with world(server, App([Agent("a", model, tools=till.tools(), builtins=["todo", "plan"])])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        result = await session.ask("refund it", timeout=30)
        assert till.paid == []
        state = await session.state()
        assert (state.plan_mode_context.plan_active, state.plan_mode_context.plan) == (True, "1. refund A1")
        await served.stop_worker()
        await served.start_worker()
        await session.respond((await asked(session)).request_id, True)
        assert (await session.result(result.turn_id, timeout=30)).output == "done"
        assert till.paid == [("A1", 1)]
        told = model.requests[2].instructions
        assert "You are in plan mode" in told
        assert "[in_progress] refund A1" in told
        assert "plan mode" not in model.requests[4].instructions
        assert [spec.name for spec in model.requests[0].tools][-4:] == [
            *("todo_write", "plan_enter", "plan_write", "plan_exit"),
        ]
        assert not any("You are in plan mode" in message.text for message in (await session.state()).context)


async def test_groups_of_tools_are_switched_by_the_model_and_by_the_application_each_its_own(
    server: EmbeddedServer,
) -> None:
    """B9, B56: defaults of a fresh session, replacement by the model, and a persisted empty list means none."""

    def made(name: str, group: str | None) -> Tool:
        @tool(name=name, effect=Effect.READ, group=group)
        def act() -> str:
            """Act."""
            return name

        return act

    groups = [ToolGroup("web", active=True), ToolGroup("shop"), ToolGroup("secret", scope="external")]
    tools = [made("always", None), made("search", "web"), made("buy", "shop"), made("spy", "secret")]
    model = ScriptedModel(
        [[ToolCall("reset_equipped_tools", {"to_activate": ["shop"]}), ToolCall("buy")], "a", "b", "c"]
    )
    async with world(server, App([Agent("a", model, tools=tools, tool_groups=groups)])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        await session.ask("one", timeout=30)
        await session.change_state(
            lambda state: [SetActivatedGroups((*state.tool_context.activated_groups, "secret"))], reason="a guest"
        )
        await session.ask("two", timeout=30)
        await session.change_state(lambda _: [SetActivatedGroups(())], reason="none of them")
        await session.ask("three", timeout=30)
        names = [{spec.name for spec in request.tools} - {"reset_equipped_tools"} for request in model.requests]
        assert names == [{"always", "search"}, {"always", "buy"}, {"always", "buy", "spy"}, {"always"}]
        assert "there is no tool 'buy'" in (await session.state()).context[2].results[1].text
