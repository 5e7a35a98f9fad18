"""Workers and clients that go away: by a deploy, by termination, by a lost connection."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from perdure import Agent, App, Effect, ToolCall, TurnStatus
from perdure.errors import SessionClosed
from perdure.testing import ScriptedModel
from tests.apps.effectful import app as effectful
from tests.support.processes import ROOT, worker_process
from tests.support.stage import Prop, Stage
from tests.support.world import fresh, until, world

if TYPE_CHECKING:
    from tests.support.effects import Effects
    from worker.embedded import EmbeddedServer

EFFECTFUL = "tests.apps.effectful:app"


@pytest.mark.parametrize("tool", ["read", "idempotent", "once"])
async def test_a_deploy_lets_a_running_tool_finish_and_repeats_nothing(
    server: EmbeddedServer, service: Effects, tool: str
) -> None:
    """B40: a tool that ends within the grace time is not called again; the turn goes on at the next worker."""
    async with world(server, effectful, workers=0) as served:
        env = {**served.env, "EFFECTS_URL": service.url, "PERDURE_GRACEFUL_SHUTDOWN": "20"}
        session = served.sessions.session("a", fresh(), "alice")
        async with worker_process(EFFECTFUL, env) as first:
            await session.submit(tool, turn_id="t-1")
            await until(lambda: service.called(tool))
            stopping = asyncio.create_task(first.stop())
            async with worker_process(EFFECTFUL, env):
                service.answers.set()
                assert await stopping == 0
                result = await session.result("t-1", timeout=60)
        assert (result.status, service.calls[tool]) == (TurnStatus.COMPLETED, 1)


@pytest.mark.parametrize(
    ("tool", "calls", "status"),
    [
        ("read", 2, TurnStatus.COMPLETED),
        ("idempotent", 2, TurnStatus.COMPLETED),
        ("once", 1, TurnStatus.SUSPENDED),
    ],
)
async def test_a_tool_that_outlasts_the_grace_of_a_deploy_goes_on_elsewhere_by_its_effect(
    server: EmbeddedServer, service: Effects, tool: str, calls: int, status: TurnStatus
) -> None:
    """B40: repeated with the same key where that is allowed, and uncertain where it is not."""
    async with world(server, effectful, workers=0) as served:
        env = {**served.env, "EFFECTS_URL": service.url, "PERDURE_GRACEFUL_SHUTDOWN": "0.5"}
        session = served.sessions.session("a", fresh(), "alice")
        async with worker_process(EFFECTFUL, env) as first:
            await session.submit(tool, turn_id="t-1")
            await until(lambda: service.called(tool))
            assert await first.stop() == 0
        service.answers.set()
        async with worker_process(EFFECTFUL, env):
            result = await session.result("t-1", timeout=60)
        assert (result.status, service.calls[tool]) == (status, calls)
        assert len(set(service.keys[tool])) == 1


@pytest.mark.parametrize("effect", Effect)
async def test_a_terminated_session_leaves_no_tool_running(server: EmbeddedServer, effect: Effect) -> None:
    """Termination asks nobody, and still the tool is stopped with the next heartbeat."""
    prop = Prop(effect, "act")
    async with world(server, App([Agent("a", ScriptedModel([ToolCall("act")]), tools=[prop.tool()])])) as served:
        session = served.sessions.session("a", fresh())
        await session.submit("go")
        await asyncio.wait_for(prop.begun.wait(), 30)
        await served.client.get_workflow_handle(session.workflow_id).terminate()
        await asyncio.wait_for(prop.cancelled.wait(), 10)


async def test_a_terminated_session_leaves_no_model_call_running(server: EmbeddedServer) -> None:
    """The same for a model call: its connection is closed."""
    async with world(server, App([Agent("a", stage := Stage())])) as served:
        session = served.sessions.session("a", fresh())
        await session.submit("go")
        call = await stage.call(1)
        await served.client.get_workflow_handle(session.workflow_id).terminate()
        await asyncio.wait_for(call.cancelled.wait(), 10)


WAITER = """
import asyncio, sys
from perdure import Sessions

async def main() -> None:
    async with Sessions.connect(task_queue=sys.argv[2]) as sessions:
        session = sessions.session("a", sys.argv[1])
        print("asking", flush=True)
        await session.ask("go", turn_id="t-1")

asyncio.run(main())
"""


async def test_a_client_that_dies_while_it_waits_finds_its_turn_again(server: EmbeddedServer) -> None:
    """B73: by the turn's id, from another process; the turn itself never notices, and there is one of it."""
    async with world(server, App([Agent("a", stage := Stage())])) as served:
        session = served.sessions.session("a", fresh())
        client = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            WAITER,
            session.key.session_id,
            served.settings.task_queue,
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin", **served.env},
            stdout=asyncio.subprocess.PIPE,
        )
        call = await stage.call(1)
        client.kill()
        await client.wait()
        waiting = asyncio.create_task(session.ask("go", turn_id="t-1"))
        lost = asyncio.create_task(session.result("t-1"))
        await asyncio.sleep(0)
        lost.cancel()
        call.answer("gone well")
        assert (await waiting).output == "gone well"
        assert (await session.result("t-1")).output == "gone well"
        assert (await session.submit("go", turn_id="t-1")).disposition == "settled"
        assert (len(stage.calls), (await session.view()).turns) == (1, 1)


async def test_a_client_whose_server_goes_away_while_it_waits_finds_its_turn_again() -> None:
    """B73: the connection is lost with the server; when that is back, the turn has gone on."""
    from perdure.testing import serve  # noqa: PLC0415  # the only test here with a server of its own

    prop = Prop(Effect.IDEMPOTENT, "act")
    model = ScriptedModel([ToolCall("act"), "done"])
    async with serve(App([Agent("a", model, tools=[prop.tool()])]), archive_url=None) as served:
        session = served.sessions.session("a", fresh())
        await session.submit("go", turn_id="t-1")
        await asyncio.wait_for(prop.begun.wait(), 30)
        waiting = asyncio.create_task(session.result("t-1"))
        await served.kill_server()
        prop.finish.set()
        await served.start_server()
        await asyncio.wait({waiting}, timeout=60)
        result = await session.result("t-1", timeout=60)
        assert (result.status, result.output) == (TurnStatus.COMPLETED, "done")
        assert len(set(prop.operations)) == 1


async def test_a_terminated_sessions_turn_is_not_run_again_by_whoever_waits_for_it(server: EmbeddedServer) -> None:
    """B13: nobody knows what a `once` tool had done; a late retry must not do it again under another id."""
    pay = Prop(Effect.ONCE, "pay")
    model = ScriptedModel([ToolCall("pay"), ToolCall("pay"), "hello"])
    async with world(server, App([Agent("a", model, tools=[pay.tool()])])) as served:
        session = served.sessions.session("a", fresh())
        asking = asyncio.create_task(session.ask("pay", turn_id="t-1"))
        await asyncio.wait_for(pay.begun.wait(), 30)
        await served.client.get_workflow_handle(session.workflow_id).terminate()
        with pytest.raises(SessionClosed, match="may have happened"):
            await asyncio.wait_for(asking, 60)
        with pytest.raises(SessionClosed, match="new turn_id"):
            await session.submit("pay", turn_id="t-1")
        assert (len(pay.operations), len(model.requests)) == (1, 1)
        pay.finish.set()
        assert (await session.ask("hello", turn_id="t-2")).status is TurnStatus.COMPLETED
