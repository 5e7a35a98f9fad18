"""Operations whose outcome is unknown, on the real server: their tools are asked, then people."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, cast

import pytest

from perdure import Agent, App, Effect, Outcome, SessionStatus, ToolCall, ToolContext, ToolError, TurnStatus, tool
from perdure.errors import InvalidCommand, NotResumable, UncertainOperations
from perdure.testing import ScriptedModel, serve
from tests.support.stage import Stage
from tests.support.world import AT_ONCE, failed_tasks_ever, fresh, until, world

if TYPE_CHECKING:
    from pathlib import Path

    from perdure import SessionHandle, Tool
    from worker.embedded import EmbeddedServer

PAY = ToolCall("pay", {})


class Ledger:
    """A system of record: what it has, by operation id, and what it is asked."""

    def __init__(self) -> None:
        self.payments: dict[str, int] = {}
        self.asked = 0
        self.silent = 0
        """How many more questions it fails to answer."""

    def pays(self, *, first: bool) -> Tool:
        """Return a tool that loses its answer after it has paid or, the first time, before it has."""

        async def reconcile(ctx: ToolContext) -> Outcome:
            self.asked += 1
            if self.silent:
                self.silent -= 1
                msg = "the ledger is down"
                raise ConnectionError(msg)
            if ctx.operation_id in self.payments:
                return Outcome.happened({"paid": self.payments[ctx.operation_id]})
            return Outcome.did_not_happen()

        tries: list[str] = []

        @tool(effect=Effect.ONCE, reconcile=reconcile)
        async def pay(ctx: ToolContext) -> str:
            """Pay."""
            tries.append(ctx.operation_id)
            if first and len(tries) == 1:
                msg = "the connection broke before anything was sent, or after; who knows"
                raise ToolError(msg, uncertain=True)
            assert ctx.operation_id not in self.payments, "paid twice"
            self.payments[ctx.operation_id] = 500
            if not first:
                msg = "the connection broke"
                raise ToolError(msg, uncertain=True)
            return "paid"

        return pay


@pytest.mark.parametrize("first", [False, True])
async def test_a_tool_settles_its_own_lost_call_from_the_system_of_record(server: EmbeddedServer, first: bool) -> None:  # noqa: FBT001
    """B34: it had happened, or it had not and is run under the same id; nobody is asked, and nothing is paid twice."""
    ledger = Ledger()
    ledger.silent = 1
    agent = Agent("a", ScriptedModel([[PAY], "done"]), tools=[ledger.pays(first=first)])
    async with world(server, App([agent])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        result = await session.ask("pay", timeout=30)
        assert (result.status, result.output) == (TurnStatus.COMPLETED, "done")
        assert list(ledger.payments.values()) == [500]
        assert ledger.asked == 2
        (block,) = (await session.state()).context[2].results
        assert (block.state, block.text) == ("success", "paid" if first else '{"paid":500}')
        assert await failed_tasks_ever(session) == 0


class Unusual(BaseException):
    """What no library catches."""


@pytest.mark.parametrize("fault", ["nothing", "text", "exit", "unusual", "cancelled"])
async def test_a_tool_that_can_not_tell_is_not_believed_and_people_are_asked(
    server: EmbeddedServer, fault: str
) -> None:
    """B34: whatever its `reconcile` does, the call stays open and the session can be used."""

    async def reconcile(ctx: ToolContext) -> Outcome:
        del ctx
        match fault:
            case "exit":
                sys.exit("the ledger's library gave up")
            case "unusual":
                raise Unusual
            case "cancelled":
                raise asyncio.CancelledError
            case "text":
                return cast("Outcome", "did_not_happen")
            case _:
                return cast("Outcome", None)

    calls: list[str] = []

    @tool(effect=Effect.ONCE, reconcile=reconcile)
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        calls.append(ctx.operation_id)
        msg = "the answer was lost"
        raise ToolError(msg, uncertain=True)

    agent = Agent("a", ScriptedModel([[PAY], "done"]), tools=[pay])
    async with world(server, App([agent])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        result = await session.ask("pay", timeout=60)
        assert result.status is TurnStatus.SUSPENDED
        (operation,) = (await session.view()).uncertain
        await session.reconcile({operation.operation_id: Outcome.happened({"paid": 5})}, reason="the bank says so")
        result = await session.result(result.turn_id)
        assert (result.status, len(calls)) == (TurnStatus.COMPLETED, 1)
        assert await failed_tasks_ever(session) == 0


def losing(*, effect: Effect = Effect.ONCE) -> tuple[Tool, list[str]]:
    """Return a tool that loses the answer of its first call, and the operations that it was called for."""
    operations: list[str] = []

    @tool(effect=effect)
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        operations.append(ctx.operation_id)
        if len(operations) == 1:
            msg = "the answer was lost"
            raise ToolError(msg, uncertain=True)
        return "paid"

    return pay, operations


@pytest.mark.parametrize(
    ("outcome", "text", "calls"),
    [
        (Outcome.happened({"paid": 5}), '{"paid":5}', 1),
        (Outcome.did_not_happen(), "paid", 2),
        (Outcome.unresolved("the bank is closed"), "the bank is closed", 1),
    ],
)
async def test_somebody_says_what_became_of_a_call_and_the_turn_goes_on_in_a_new_run(
    server: EmbeddedServer, outcome: Outcome, text: str, calls: int
) -> None:
    """B34: with exactly the outstanding ids; one that did not happen is run under the same id."""
    pay, operations = losing()
    async with world(server, App([Agent("a", ScriptedModel([[PAY], "done"]), tools=[pay])])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        result = await session.ask("pay", timeout=30)
        view = await session.view()
        assert (result.status, view.status) == (TurnStatus.SUSPENDED, SessionStatus.NEEDS_RECONCILIATION)
        assert [one.operation_id for one in view.uncertain] == operations
        with pytest.raises(UncertainOperations):
            await session.cancel(result.turn_id)
        with pytest.raises((UncertainOperations, NotResumable)):
            await session.resume(result.turn_id)
        for wrong in ({}, {"another": outcome}, {operations[0]: outcome, "another": outcome}):
            with pytest.raises(InvalidCommand):
                await session.reconcile(wrong, reason="I looked")
        with pytest.raises(InvalidCommand):
            await session.reconcile({operations[0]: Outcome.unknown()}, reason="I looked")
        with pytest.raises(InvalidCommand):
            await session.reconcile({operations[0]: outcome}, reason=" ")
        receipt = await session.reconcile({operations[0]: outcome}, reason="I looked", actor="bob")
        assert (receipt.turn_id, receipt.disposition) == (result.turn_id, "started")
        done = await session.result(result.turn_id, timeout=30)
        assert (done.status, done.run_id) == (TurnStatus.COMPLETED, receipt.run_id)
        assert text in (await session.state()).context[2].results[0].text
        assert operations == [operations[0]] * calls
        assert (await session.view()).status is SessionStatus.ACTIVE


async def test_an_operation_that_outlives_its_turn_is_asked_about_when_it_is_lost(server: EmbeddedServer) -> None:
    """B25, B34: while it runs nobody can say what became of it; then the tool says it, and the turn can be resumed."""
    stage, begun, finish = Stage(), asyncio.Event(), asyncio.Event()
    paid: list[str] = []

    async def reconcile(ctx: ToolContext) -> Outcome:
        return Outcome.happened("paid") if ctx.operation_id in paid else Outcome.unknown()

    @tool(effect=Effect.ONCE, reconcile=reconcile, timeout=timedelta(seconds=60))
    async def pay(ctx: ToolContext) -> str:
        """Pay, slowly, and lose the answer."""
        begun.set()
        await finish.wait()
        paid.append(ctx.operation_id)
        msg = "the answer was lost"
        raise ToolError(msg, uncertain=True)

    async with world(server, App([Agent("a", stage, tools=[pay])])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        await session.submit("pay", turn_id="t-1")
        (await stage.call(1)).answer("", PAY)
        await begun.wait()
        await session.interrupt()
        (operation,) = (await session.view()).uncertain
        with pytest.raises(InvalidCommand, match="still under way"):
            await session.reconcile({operation.operation_id: Outcome.did_not_happen()}, reason="I guess")
        finish.set()
        await until(lambda: _settled(session))
        await session.resume("t-1")
        (await stage.call(2)).answer("done")
        assert (await session.result("t-1", timeout=30)).status is TurnStatus.COMPLETED
        assert len(paid) == 1


async def _settled(session: SessionHandle) -> bool:
    return not (await session.view()).uncertain


async def test_a_session_with_an_open_question_is_found_also_when_its_turn_is_over(server: EmbeddedServer) -> None:
    """B34: somebody must act, and no turn waits for it."""
    stage, begun, finish = Stage(), asyncio.Event(), asyncio.Event()

    @tool(effect=Effect.ONCE)
    async def pay() -> str:
        """Pay, slowly, and lose the answer."""
        begun.set()
        await finish.wait()
        msg = "the answer was lost"
        raise ToolError(msg, uncertain=True)

    async with world(server, App([Agent("a", stage, tools=[pay])])) as served:
        session = served.sessions.session("a", fresh(), "alice")
        await session.submit("pay", turn_id="t-1")
        (await stage.call(1)).answer("", PAY)
        await begun.wait()
        await session.interrupt()
        finish.set()

        async def waiting() -> bool:
            found = [info.key async for info in served.sessions.list(status="needs_reconciliation")]
            return session.key in found

        await until(waiting)
        (operation,) = (await session.view()).uncertain
        receipt = await session.reconcile({operation.operation_id: Outcome.did_not_happen()}, reason="I looked")
        assert (receipt.turn_id, receipt.disposition) == ("t-1", "settled")
        await session.resume("t-1")
        (await stage.call(2)).answer("done")
        await session.result("t-1", timeout=30)
        assert await failed_tasks_ever(session) == 0


async def test_a_session_renews_itself_while_its_tool_is_being_asked_and_asks_again(tmp_path: Path) -> None:
    """B58: a question may take as long as a lost worker's tool may; it must not keep a session from a new run."""
    asked, answer = asyncio.Event(), asyncio.Event()
    questions: list[str] = []

    async def reconcile(ctx: ToolContext) -> Outcome:
        questions.append(ctx.operation_id)
        asked.set()
        await answer.wait()
        return Outcome.happened("paid")

    @tool(effect=Effect.ONCE, reconcile=reconcile, timeout=timedelta(seconds=60))
    async def pay() -> str:
        """Pay, and lose the answer."""
        msg = "the answer was lost"
        raise ToolError(msg, uncertain=True)

    app = App([Agent("a", ScriptedModel([[PAY], "done"]), tools=[pay])])
    config = AT_ONCE | {"limit.historyCount.suggestContinueAsNew": 25}
    async with serve(app, dynamic_config=config, data_dir=tmp_path) as served:
        session = served.sessions.session("a", fresh(), "alice")
        await session.submit("pay", turn_id="t-1")
        await asked.wait()
        workflow = served.client.get_workflow_handle(session.workflow_id)
        first = (await workflow.describe()).run_id
        for number in range(12):
            await session.inject(f"note {number}")

        async def renewed() -> bool:
            return (await workflow.describe()).run_id != first

        await until(renewed)
        answer.set()
        assert (await session.result("t-1", timeout=30)).status is TurnStatus.COMPLETED
        assert len(set(questions)) == 1
        assert await failed_tasks_ever(session) == 0
