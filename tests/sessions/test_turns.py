"""Turns on a real server: order, duplicates, bounds, failures."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from temporalio.client import WorkflowUpdateFailedError

from perdure import Agent, App, Effect, ModelError, ModelRequest, ToolCall, TurnStatus, Usage, tool
from perdure.errors import InvalidCommand, QueueFull, RunConflict, SessionBusy, SessionNotFound, TurnConflict
from perdure.messages import flaws
from perdure.testing import Reply, ScriptedModel, serve
from tests.support.world import AT_ONCE, events, failed_tasks, fresh, until, update, world

if TYPE_CHECKING:
    from worker.embedded import EmbeddedServer


class Gate:
    """A model that answers when it is let, and says which turns it has begun."""

    def __init__(self) -> None:
        """Begin closed."""
        self.open = asyncio.Event()
        self.begun: list[str] = []

    async def __call__(self, request: ModelRequest) -> str:
        """Answer by what was said last."""
        self.begun.append(request.turn_id)
        await self.open.wait()
        return f"heard {request.messages[-1].text}"


def echo(request: ModelRequest) -> str:
    return f"heard {request.messages[-1].text}"


async def test_a_text_turn_through_an_update_costs_eleven_events(server: EmbeddedServer) -> None:
    """As a bare update with one activity does (design, numbers to hold)."""
    async with world(server, App([Agent("a", ScriptedModel(echo))])) as served:
        session = served.sessions.session("a", fresh())
        await session.ask("one")
        before = len(await events(session))
        result = await session.ask("two")
        assert result.status is TurnStatus.COMPLETED
        assert len(await events(session)) - before == 11


async def test_turns_of_one_session_run_one_after_the_other_and_sessions_overlap(server: EmbeddedServer) -> None:
    """B11."""
    gate = Gate()
    async with world(server, App([Agent("a", ScriptedModel(gate))])) as served:
        one, other = (served.sessions.session("a", fresh()) for _ in range(2))
        first = await one.submit("first", turn_id="t-1")
        second = await one.submit("second", turn_id="t-2")
        await other.submit("elsewhere", turn_id="o-1")

        async def both_sessions_work() -> bool:
            return {"t-1", "o-1"} <= set(gate.begun)

        await until(both_sessions_work)
        assert (first.disposition, second.disposition, second.position) == ("started", "queued", 1)
        assert "t-2" not in gate.begun
        gate.open.set()
        await one.result("t-2", timeout=30)
        said = [message.text for message in (await one.state()).context]
        assert said == ["first", "heard first", "second", "heard second"]


async def test_a_repeated_submit_is_one_turn_and_another_input_is_a_conflict(server: EmbeddedServer) -> None:
    """B13."""
    model = ScriptedModel(echo)
    async with world(server, App([Agent("a", model)])) as served:
        session = served.sessions.session("a", fresh())
        first = await session.submit("hello", turn_id="t")
        result = await session.result("t", timeout=30)
        again = await session.submit("hello", turn_id="t")
        assert (again.turn_id, again.run_id, again.disposition) == ("t", first.run_id, "settled")
        assert await session.ask("hello", turn_id="t") == result
        with pytest.raises(TurnConflict, match="another input"):
            await session.submit("other", turn_id="t")
        workflow = served.client.get_workflow_handle(session.workflow_id)
        await workflow.signal("submit_turn", {"input": "hello", "turn_id": "t"})
        await workflow.signal("submit_turn", {"input": "other", "turn_id": "t"})
        await session.ask("end")
        view = await session.view()
        assert [rejection.error for rejection in view.rejections] == ["TurnConflict"]
        assert len(model.requests) == 2


async def test_the_turn_over_the_queues_bound_is_refused_and_nothing_accepted_is_lost(server: EmbeddedServer) -> None:
    """B15."""
    gate = Gate()
    async with world(server, App([Agent("a", ScriptedModel(gate), queue_limit=2)])) as served:
        session = served.sessions.session("a", fresh())
        gate.open.set()
        await session.ask("the agent's bound is known after its first answer")
        gate.open.clear()
        accepted = [await session.submit(f"{number}", turn_id=f"t-{number}") for number in range(3)]
        with pytest.raises(QueueFull, match="2 turns wait"):
            await session.submit("one too many")
        with pytest.raises(SessionBusy):
            await session.submit("not now", on_busy="reject")
        gate.open.set()
        for receipt in accepted:
            assert (await session.result(receipt.turn_id, timeout=30)).status is TurnStatus.COMPLETED


async def test_a_run_id_is_kept_when_given_generated_when_blank_and_refused_when_used(server: EmbeddedServer) -> None:
    """B32."""
    async with world(server, App([Agent("a", ScriptedModel(echo))])) as served:
        session = served.sessions.session("a", fresh())
        assert (await session.ask("one", run_id="my-run")).run_id == "my-run"
        blank = await session.ask("two", run_id="  ")
        assert blank.run_id is not None
        assert len(blank.run_id) == 32
        with pytest.raises(RunConflict, match="my-run"):
            await session.submit("three", run_id="my-run")


async def test_bad_submits_leave_no_event_and_the_next_good_one_runs(server: EmbeddedServer) -> None:
    """B16, by update."""
    async with world(server, App([Agent("a", ScriptedModel(echo))])) as served:
        session = served.sessions.session("a", fresh())
        await session.ask("hello")
        before = len(await events(session))
        for bad in ({"input": ""}, {"input": "x", "turn_id": " "}, {"input": "x", "on_busy": "maybe"}, {"inptu": "x"}):
            with pytest.raises(WorkflowUpdateFailedError):
                await update(session, "submit_turn", bad)
        with pytest.raises(WorkflowUpdateFailedError):
            await update(session, "no_such_command", {})
        with pytest.raises(WorkflowUpdateFailedError):
            await update(session, "submit_turn", {"input": "x"}, {})
        with pytest.raises(WorkflowUpdateFailedError):
            await update(session, "submit_turn", b"\xff")
        with pytest.raises(InvalidCommand, match="at most 200"):
            await session.submit("x", turn_id="t" * 201)
        assert len(await events(session)) == before
        assert (await session.ask("again")).status is TurnStatus.COMPLETED


async def test_a_failed_turn_keeps_the_users_message_and_drops_what_was_half_said(server: EmbeddedServer) -> None:
    """B22."""
    replies = iter([ModelError("the provider refused"), "fine"])
    model = ScriptedModel(lambda _: next(replies))
    async with world(server, App([Agent("a", model)])) as served:
        session = served.sessions.session("a", fresh())
        failed = await session.ask("first")
        assert failed.status is TurnStatus.FAILED
        assert failed.error is not None
        assert (failed.error.type, failed.error.message) == ("ModelError", "the provider refused")
        assert (await session.ask("second")).output == "fine"
        assert [message.text for message in (await session.state()).context] == ["first", "second", "fine"]


async def test_a_turn_that_needs_more_steps_than_allowed_is_failed_with_a_valid_context(server: EmbeddedServer) -> None:
    """B21."""

    @tool(effect=Effect.READ)
    def look() -> str:
        """Look."""
        return "nothing yet"

    model = ScriptedModel(lambda _: ToolCall("look"))
    async with world(server, App([Agent("a", model, tools=[look], max_steps=3)])) as served:
        session = served.sessions.session("a", fresh())
        result = await session.ask("look until you see something")
        assert result.error is not None
        assert (result.status, result.error.type, result.steps) == (TurnStatus.FAILED, "max_steps", 3)
        assert list(flaws((await session.state()).context)) == []


async def test_reading_creates_nothing_changes_nothing_and_leaves_no_event(server: EmbeddedServer) -> None:
    """B10."""
    async with world(server, App([Agent("a", ScriptedModel(echo))])) as served:
        session = served.sessions.session("a", fresh())
        for read in (session.state, session.view, session.close):
            with pytest.raises(SessionNotFound):
                await read()
        with pytest.raises(SessionNotFound):
            _ = [entry async for entry in session.transcript()]
        await session.ask("hello")
        before, state = len(await events(session)), await session.state()
        await session.view()
        await session.turn((await anext(session.transcript())).turn_id or "")
        assert [entry async for entry in session.transcript()]
        assert await session.state() == state
        assert len(await events(session)) == before


async def test_an_unknown_agent_fails_the_turn_and_the_session_goes_on_when_one_comes(server: EmbeddedServer) -> None:
    """B74."""
    async with world(server, App([Agent("sales", ScriptedModel(echo)), Agent("hr", ScriptedModel(echo))])) as served:
        session = served.sessions.session("support", fresh())
        result = await session.ask("hello")
        assert result.error is not None
        assert result.error.type == "UnknownAgent"
        assert "'sales', 'hr'" in result.error.message
        await served.stop_worker()
        await served.start_worker(App([Agent("support", ScriptedModel(echo))]))
        assert (await session.ask("anybody?")).output == "heard anybody?"
        assert await failed_tasks(session) == 0


async def test_three_hundred_turns_of_ten_clients_survive_a_new_run_every_few_events() -> None:
    """B12, B13 across continue-as-new."""
    model = ScriptedModel(echo)
    app = App([Agent("a", model, queue_limit=1000)])
    async with serve(app, dynamic_config=AT_ONCE | {"limit.historyCount.suggestContinueAsNew": 60}) as served:
        session = served.sessions.session("a", fresh())

        async def client(name: int) -> None:
            for number in range(30):
                receipt = await session.submit(f"{name}/{number}", turn_id=f"{name}-{number}")
                assert receipt.turn_id == f"{name}-{number}"

        await asyncio.gather(*(client(name) for name in range(10)))
        last = await session.ask("the end", turn_id="end", timeout=120)
        assert last.output == "heard the end"
        asked = [message.text for message in (await session.state()).context if message.role == "user"]
        assert len(asked) == len(set(asked)) == 301
        for name in range(10):
            mine = [text for text in asked if text.startswith(f"{name}/")]
            assert mine == [f"{name}/{number}" for number in range(30)]
        repeated = await session.submit("0/0", turn_id="0-0")
        assert repeated.disposition == "settled"
        with pytest.raises(TurnConflict):
            await session.submit("something else", turn_id="0-0")
        assert len(model.requests) == 301
        runs = [run async for run in served.client.list_workflows(f"WorkflowId = '{session.workflow_id}'")]
        assert len(runs) > 15


async def test_streamed_pieces_and_usage_arrive_in_the_result(server: EmbeddedServer) -> None:
    """An answer is the sum of its pieces."""
    model = ScriptedModel([Reply(chunks=["Hel", "lo"], usage=Usage(7, 2))])
    async with world(server, App([Agent("a", model)])) as served:
        result = await served.sessions.session("a", fresh()).ask("hi")
        assert (result.output, result.usage) == ("Hello", Usage(7, 2))
