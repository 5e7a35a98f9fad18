"""An app for worker processes: one tool of each effect, each asking the service at `EFFECTS_URL`.

The model calls the tool that the user names, and then repeats its result.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import httpx

from perdure import Agent, App, Effect, ModelRequest, Role, ToolCall, ToolContext, tool
from perdure.testing import ReplyLike, ScriptedModel

EFFECTS_URL = os.environ.get("EFFECTS_URL", "")


async def _ask(ctx: ToolContext, name: str) -> Any:
    answer = await ctx.http.post(f"{EFFECTS_URL}/{name}", timeout=60)
    return answer.json()


@tool(effect=Effect.READ)
async def read(ctx: ToolContext) -> Any:
    """Change nothing."""
    return await _ask(ctx, "read")


@tool(effect=Effect.IDEMPOTENT)
async def idempotent(ctx: ToolContext) -> Any:
    """Change something, once a key."""
    return await _ask(ctx, "idempotent")


@tool
async def once(ctx: ToolContext) -> Any:
    """Change something each time."""
    return await _ask(ctx, "once")


@tool(effect=Effect.READ)
async def log() -> str:
    """Write a log line."""
    logging.getLogger("the.tools.own").info("heard by the tool")
    return "logged"


async def answer(request: ModelRequest) -> ReplyLike:
    """Call the tool that was named, then repeat its result. `think` takes as long as the service lets it."""
    last = request.messages[-1]
    if last.text == "think":
        async with httpx.AsyncClient() as client:
            await client.post(f"{EFFECTS_URL}/model", timeout=60)
        return "thought"
    if last.role is Role.TOOL:
        return f"result: {last.results[0].text}"
    if last.text in {spec.name for spec in request.tools}:
        return ToolCall(last.text)
    return f"heard {last.text}"


app = App([Agent("a", ScriptedModel(answer), tools=[read, idempotent, once, log])])
