"""The public long-turn case, and sessions that move between workers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from perdure import Agent, AgentState, App, Effect, Message, ModelRequest, Role, ToolCall, TurnStatus, tool
from perdure.testing import ReplyLike, ScriptedModel
from tests.sessions.test_turns import echo
from tests.support.world import failed_tasks, fresh, world

if TYPE_CHECKING:
    from worker.embedded import EmbeddedServer

STEPS = 100
CONVERSATION_CHARACTERS = 836_000
"""209,000 tokens at four characters each."""

MAX_HISTORY_BYTES = 2_500_000


@tool(effect=Effect.READ)
async def fetch(page: int) -> str:
    """Return 5 KB."""
    return f"{page}: ".ljust(5_000, "x")


def fetch_all(request: ModelRequest) -> ReplyLike:
    """Ask for one page after the other."""
    return ToolCall("fetch", {"page": request.step}) if request.step < STEPS else "read it all"


def long_conversation() -> AgentState:
    """Return a state with 209,000 tokens of conversation."""
    roles = (Role.USER, Role.ASSISTANT)
    text = "word " * (CONVERSATION_CHARACTERS // 5 // 100)
    return AgentState(
        session_id="",
        context=tuple(Message(id=f"m-{number}", role=roles[number % 2], content=text) for number in range(100)),
    )


async def test_a_long_conversation_and_a_hundred_model_calls_stay_far_below_temporals_bound(
    server: EmbeddedServer,
) -> None:
    """B57, with everything in history: nothing is stored outside."""
    model = ScriptedModel(fetch_all)
    async with world(server, App([Agent("a", model, tools=[fetch], max_steps=STEPS)]), storage=None) as served:
        session = await served.sessions.create("a", fresh(), "alice", state=long_conversation())
        result = await session.ask("read everything", timeout=120)
        assert (result.status, result.output, result.steps) == (TurnStatus.COMPLETED, "read it all", STEPS)
        assert len(model.requests) == STEPS
        assert len(model.requests[-1].messages) == 100 + 1 + 2 * (STEPS - 1)
        view = await session.view()
        assert view.history_size < MAX_HISTORY_BYTES
        assert await failed_tasks(session) == 0
        assert (await session.state()).context[:100] == long_conversation().context


async def test_each_model_call_sees_the_whole_context_whichever_worker_makes_it(server: EmbeddedServer) -> None:
    """B5, and the cache of contexts under several workers that take turns."""
    seen: list[list[str]] = []

    def answer(request: ModelRequest) -> str:
        seen.append([message.text for message in request.messages])
        return f"answer {len(seen)}"

    app = App([Agent("a", ScriptedModel(answer))])
    async with world(server, app, workers=2) as served:
        session = served.sessions.session("a", fresh())
        for number in range(6):
            await session.ask(f"question {number}")
            if number in (2, 4):
                await served.start_worker()
                await served.stop_worker("worker-1" if number == 2 else "worker-2")
        state = await session.state()
        texts = [message.text for message in state.context]
        assert seen == [texts[: 2 * number + 1] for number in range(6)]


async def test_sessions_of_many_users_side_by_side_keep_their_words_apart(server: EmbeddedServer) -> None:
    """B4 under load: forty sessions, one worker, a context cache that holds few of them."""
    app = App([Agent("a", ScriptedModel(lambda request: f"{len(request.messages)}: {echo(request)}"))])
    async with world(server, app, context_cache_bytes=2_000, max_cached_sessions=8) as served:
        name = fresh()
        sessions = [served.sessions.session("a", name, f"user-{number}") for number in range(40)]
        for turn in range(3):
            results = await asyncio.gather(*(each.ask(f"{each.key.user_id} says {turn}") for each in sessions))
            for each, result in zip(sessions, results, strict=True):
                assert result.output == f"{2 * turn + 1}: heard {each.key.user_id} says {turn}"
