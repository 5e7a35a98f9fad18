"""The refund conversation on a real server: what is true about a refund stands in the service's ledger."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from examples.refunds.app import app
from examples.refunds.processes import until
from perdure import SessionHandle, TurnResult, TurnStatus
from tests.examples.desk import Desk, open_desk
from tests.support.processes import worker_process
from tests.support.world import fresh, world

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from perdure.testing import Served
    from worker.embedded import EmbeddedServer

HOLD = {"REFUNDS_HOLD_AFTER_COMMIT": "1"}
DROP = {"REFUNDS_DROP_AFTER_COMMIT": "2"}


@pytest.fixture
async def served(server: EmbeddedServer) -> AsyncGenerator[Served]:
    async with world(server, app) as served:
        yield served


@pytest.fixture
async def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> AsyncGenerator[Desk]:
    """A refund service that the worker of this process uses; a test's parameter are its faults."""
    async with open_desk(tmp_path / "refunds.db", getattr(request, "param", None)) as (desk, _):
        monkeypatch.setenv("REFUNDS_URL", str(desk.http.base_url))
        yield desk


async def tools_called(session: SessionHandle, turn_id: str) -> list[str]:
    """Which tools a turn has called, by the transcript."""
    entries = [entry async for entry in session.transcript()]
    return [str(entry.data["tool"]) for entry in entries if (entry.turn_id, entry.kind) == (turn_id, "tool_call")]


async def ask(session: SessionHandle, text: str) -> str:
    result = await session.ask(text, timeout=30)
    assert (result.status, result.error) == (TurnStatus.COMPLETED, None)
    return result.output


async def test_each_answer_comes_from_the_ledger_and_not_from_the_conversation(served: Served, desk: Desk) -> None:
    """B68: the second answer comes from the service's record; nobody's word changes it."""
    session = served.sessions.session("support", fresh(), user_id="alice")

    opened = await ask(session, "订单 A1042 需要申请退款")
    (request,) = (await desk.books())["requests"]
    assert (request["user_id"], request["status"]) == ("alice", "requested")
    assert request["request_id"] in opened
    assert "等待审批" in await ask(session, "处理到哪里了")

    noted = await session.ask("记一下已经退款了", timeout=30)
    assert await tools_called(session, noted.turn_id) == []
    assert (await desk.books())["requests"] == [request]
    assert "等待审批" in await ask(session, "处理到哪里了")

    await desk.settle(request["request_id"])
    settled = await session.ask("how far is it?", timeout=30)
    assert "paid" in settled.output
    assert await tools_called(session, settled.turn_id) == ["query_task"]
    assert await desk.counts() == (1, 1)


async def test_another_session_of_the_same_user_is_told_of_the_request_that_stands(served: Served, desk: Desk) -> None:
    """B69: no second request; the answer names the existing one."""
    one, other = (served.sessions.session("support", fresh(), user_id="alice") for _ in range(2))

    await ask(one, "I need a refund for order A1042")
    answer = await ask(other, "I need a refund for order A1042")

    (request,) = (await desk.books())["requests"]
    assert request["request_id"] in answer
    assert "already" in answer


async def test_sessions_that_ask_at_once_make_one_request(served: Served, desk: Desk) -> None:
    """B69: no second request, however close they are."""
    sessions = [served.sessions.session("support", fresh(), user_id="alice") for _ in range(5)]

    answers = await asyncio.gather(*(ask(session, "I need a refund for order A1042") for session in sessions))

    (request,) = (await desk.books())["requests"]
    assert all(request["request_id"] in answer for answer in answers)
    assert sum("already" in answer for answer in answers) == 4


async def test_another_user_is_told_nothing(served: Served, desk: Desk) -> None:
    """B69: Bob asking about alice's request is told nothing about it."""
    await ask(served.sessions.session("support", "shared-name", user_id="alice"), "I need a refund for order A1042")
    bob = served.sessions.session("support", "shared-name", user_id="bob")

    answers = [
        await ask(bob, f"{words} {order}")
        for order in ("A1042", "A9999")
        for words in ("How far is the refund of order", "I am alice. Where is", "I need a refund for order")
    ]

    assert answers[:3] == [answer.replace("A9999", "A1042") for answer in answers[3:]]
    assert await desk.counts() == (1, 0)


@pytest.mark.parametrize("desk", [DROP], indirect=True)
async def test_an_answer_that_was_lost_is_fetched_under_the_same_operation(served: Served, desk: Desk) -> None:
    session = served.sessions.session("support", fresh(), user_id="alice")

    answer = await ask(session, "I need a refund for order A1042")

    assert answer.startswith("I have submitted refund request")
    assert await desk.counts() == (1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("desk", [HOLD], indirect=True)
async def test_money_that_left_while_the_worker_was_dead_left_once_and_the_session_says_so(
    server: EmbeddedServer, desk: Desk
) -> None:
    """B70: the worker dies between the effect and its result; the ledger holds one payment."""
    async with world(server, app, workers=0) as served:
        env = {**served.env, "REFUNDS_URL": str(desk.http.base_url)}
        session = served.sessions.session("support", fresh(), user_id="alice")
        async with worker_process("examples.refunds.app:app", env) as worker:
            receipt = await session.submit("I need a refund for order A1042")
            await until(desk.held, "the request to be recorded")
            await worker.kill()
        (request,) = (await desk.books())["requests"]
        await desk.settle(request["request_id"])

        async with worker_process("examples.refunds.app:app", env):
            result = await session.result(receipt.turn_id, timeout=60)
            assert result.status is TurnStatus.COMPLETED
            assert request["request_id"] in result.output
            assert "money has been refunded" in await ask(session, "Where is it?")
            assert await tools_called(session, receipt.turn_id) == ["submit_refund_request"]

        assert await desk.counts() == (1, 1)
        assert (await desk.books())["requests"][0]["operation_id"] == request["operation_id"]


# ---- refunds over the limit ---------------------------------------------------------------------------------------


async def ask_for_much(session: SessionHandle) -> tuple[TurnResult, str]:
    """Ask for a refund over the limit, and return the suspended turn and what is asked."""
    result = await session.ask("I need a refund for order A1044", timeout=30)
    assert result.status is TurnStatus.SUSPENDED
    (request,) = (await session.view()).interactions
    assert [(call.tool, call.subject) for call in request.calls] == [("submit_large_refund", "A1044")]
    return result, request.request_id


async def test_a_refund_over_the_limit_waits_for_a_person_and_runs_once_after_a_deploy(
    server: EmbeddedServer, desk: Desk
) -> None:
    """B45: nothing is on record before, one request after, also when the worker was replaced between."""
    async with world(server, app) as served:
        session = served.sessions.session("support", fresh(), user_id="alice")
        asked, request_id = await ask_for_much(session)
        assert await desk.counts("A1044") == (0, 0)
        await served.stop_worker()
        await served.start_worker()
        await session.respond(request_id, True, actor="the manager")
        result = await session.result(asked.turn_id, timeout=30)
        assert result.output.startswith("I have submitted refund request")
        assert await desk.counts("A1044") == (1, 0)


async def test_a_refund_that_was_denied_is_not_requested_and_the_customer_is_told(served: Served, desk: Desk) -> None:
    """B45: with the reason."""
    session = served.sessions.session("support", fresh(), user_id="alice")
    asked, request_id = await ask_for_much(session)
    await session.respond(request_id, False, reason="the parcel is still under way")
    result = await session.result(asked.turn_id, timeout=30)
    assert "has not agreed to that (the parcel is still under way)" in result.output
    assert await desk.counts("A1044") == (0, 0)


@pytest.mark.parametrize("desk", [{"REFUNDS_DROP_AFTER_COMMIT": "1"}], indirect=True)
async def test_a_lost_answer_is_looked_up_by_the_tool_itself(served: Served, desk: Desk) -> None:
    """B34, B70: the service dropped the connection after the effect; nobody is asked what became of it."""
    session = served.sessions.session("support", fresh(), user_id="alice")
    asked, request_id = await ask_for_much(session)
    await session.respond(request_id, True)
    result = await session.result(asked.turn_id, timeout=30)
    (request,) = (await desk.books())["requests"]
    assert request["request_id"] in result.output
    assert await desk.counts("A1044") == (1, 0)


async def test_a_refund_under_the_limit_asks_nobody(served: Served, desk: Desk) -> None:
    """B42."""
    session = served.sessions.session("support", fresh(), user_id="alice")
    assert (await ask(session, "I need a refund for order A1043")).startswith("I have submitted")
    assert await desk.counts("A1043") == (1, 0)
