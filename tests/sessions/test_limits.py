"""Time-outs and other limits: nothing that hangs, or never ends, can hold a session."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from perdure import Agent, App, Delta, Effect, ModelRequest, ModelResponse, SessionHandle, ToolCall, TurnStatus
from perdure.errors import ConfigurationError
from perdure.messages import flaws
from perdure.testing import Reply, ScriptedModel
from tests.support.stage import Prop, Stage
from tests.support.world import fresh, nothing_pending, until, world

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from perdure import Tool
    from perdure.models import Emit, Model
    from worker.embedded import EmbeddedServer

SHORT = timedelta(seconds=1)


@asynccontextmanager
async def limited(
    server: EmbeddedServer, model: Model, *tools: Tool, **limits: object
) -> AsyncGenerator[SessionHandle]:
    """Serve an agent with these limits, and give a session with it."""
    agent = Agent("a", model, tools=tools, **limits)  # type: ignore[arg-type]
    async with world(server, App([agent])) as served:
        yield served.sessions.session("a", fresh(), "alice")


async def check_failed(session: SessionHandle, turn_id: str, kind: str) -> None:
    """Check that a turn fails with an error of this type, and leaves a valid context."""
    result = await session.result(turn_id, timeout=60)
    assert result.error is not None
    assert (result.status, result.error.type) == (TurnStatus.FAILED, kind), result.error
    assert not list(flaws((await session.state()).context))


async def test_a_turn_that_takes_too_long_fails_in_its_first_model_call(server: EmbeddedServer) -> None:
    """Design 4.2: the limit holds from the first call on, before the session has heard of it; the next turn runs."""
    async with limited(server, stage := Stage(), turn_timeout=SHORT) as session:
        await session.submit("think for ever", turn_id="t-1")
        call = await stage.call(1)
        await call.say("half of ")
        await check_failed(session, "t-1", "turn_timeout")
        await asyncio.wait_for(call.cancelled.wait(), 30)
        assert [message.text for message in (await session.state()).context] == ["think for ever"]
        await session.submit("hello", turn_id="t-2")
        (await stage.call(2)).answer("hello")
        assert (await session.result("t-2", timeout=30)).output == "hello"


@pytest.mark.parametrize("effect", Effect)
async def test_a_turn_that_takes_too_long_fails_while_a_tool_runs(server: EmbeddedServer, effect: Effect) -> None:
    """B25 and design 4.2: what only reads is cancelled, what has an effect is uncertain until it settles."""
    prop = Prop(effect, "act")
    async with limited(server, stage := Stage(), prop.tool(), turn_timeout=SHORT) as session:
        await session.submit("act", turn_id="t-1")
        (await stage.call(1)).answer("", ToolCall("act"))
        await check_failed(session, "t-1", "turn_timeout")
        view = await session.view()
        assert [each.tool for each in view.uncertain] == ([] if effect is Effect.READ else ["act"])
        prop.finish.set()
        await until(lambda: nothing_pending(session))
        assert (await session.view()).uncertain == ()
        await session.resume("t-1")
        (await stage.call(2)).answer("done")
        assert (await session.result("t-1", timeout=30)).status is TurnStatus.COMPLETED


async def test_a_pause_does_not_count_against_the_time_of_a_turn(server: EmbeddedServer) -> None:
    """B19: whoever was held goes on with the time that was left."""
    look = Prop(Effect.READ, "look")
    async with limited(server, stage := Stage(), look.tool(), turn_timeout=timedelta(seconds=3)) as session:
        await session.submit("go", turn_id="t-1")
        first = await stage.call(1)
        await session.pause()
        first.answer("", ToolCall("look"))
        await look.begun.wait()
        look.finish.set()

        async def held() -> bool:
            active = (await session.view()).active
            return active is not None and active.doing == "held"

        await until(held)
        await asyncio.sleep(3)  # what is tested is that time goes by
        assert (await session.turn("t-1")).status is TurnStatus.RUNNING
        await session.unpause()
        (await stage.call(2)).answer("done")
        assert (await session.result("t-1", timeout=30)).status is TurnStatus.COMPLETED


class Falls:
    """A model that says something, falls silent in its first calls, and answers in a later one."""

    def __init__(self, silent: int) -> None:
        """Fall silent so often."""
        self.silent = silent
        self.calls = 0

    async def complete(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Say something, then nothing."""
        del request
        self.calls += 1
        await emit(Delta("well, "))
        if self.calls <= self.silent:
            await asyncio.Event().wait()
        return ModelResponse("well, hello")


async def test_a_model_that_falls_silent_is_asked_again(server: EmbeddedServer) -> None:
    """A call that hangs counts as failed, and another one may help."""
    async with limited(server, model := Falls(1), model_timeout=SHORT) as session:
        assert (await session.ask("hello", timeout=60)).output == "well, hello"
        assert model.calls == 2


async def test_a_model_that_falls_silent_each_time_fails_the_turn(server: EmbeddedServer) -> None:
    """The attempts are the agent's, and what was half said is dropped (B22)."""
    async with limited(server, model := Falls(9), model_timeout=SHORT, model_attempts=2) as session:
        receipt = await session.submit("hello")
        await check_failed(session, receipt.turn_id, "ModelError")
        result = await session.result(receipt.turn_id)
        assert result.error is not None
        assert "said nothing for 1 s" in result.error.message
        assert model.calls == 2


async def test_a_model_that_goes_on_speaking_is_not_silent(server: EmbeddedServer) -> None:
    """However long the whole answer takes."""
    model = ScriptedModel([Reply(chunks=["a"] * 8, chunk_delay=0.3)])
    async with limited(server, model, model_timeout=SHORT) as session:
        assert (await session.ask("hello", timeout=60)).output == "a" * 8
        assert len(model.requests) == 1


async def test_the_steps_of_a_turn_are_bounded_for_each_of_its_runs(server: EmbeddedServer) -> None:
    """B21, B30: a turn that needed too many steps can be resumed, and takes as many again."""
    look = Prop(Effect.READ, "look")
    look.finish.set()
    model = ScriptedModel([ToolCall("look"), ToolCall("look"), ToolCall("look"), "done"])
    async with limited(server, model, look.tool(), max_steps=2) as session:
        receipt = await session.submit("look around", turn_id="t-1")
        await check_failed(session, receipt.turn_id, "max_steps")
        await session.resume("t-1")
        result = await session.result("t-1", timeout=30)
        assert (result.status, result.output, result.steps) == (TurnStatus.COMPLETED, "done", 4)


@pytest.mark.parametrize(
    "options",
    [
        {"turn_timeout": timedelta(0)},
        {"model_timeout": timedelta(seconds=-1)},
        {"after_interrupt": "stop"},
        {"after_failure": ""},
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_when_the_agent_is_made(options: dict[str, object]) -> None:
    """The error names what is wrong."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        Agent("a", "openai:x", **options)  # type: ignore[arg-type]
