"""A session driven and read with Temporal's own command line, as the README shows it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

from perdure import Agent, App
from perdure.testing import ScriptedModel
from tests.sessions.test_turns import echo
from tests.support.world import fresh, world
from worker.server.process import find_binary

if TYPE_CHECKING:
    from worker.embedded import EmbeddedServer

README = Path(__file__).parents[2] / "README.md"


async def temporal(address: str, *arguments: str) -> str:
    """Run the program and return what it prints."""
    command = [str(find_binary()), "workflow", *arguments, "--address", address, "--color", "never"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_a_session_is_started_driven_and_read_with_temporals_command_line_alone(server: EmbeddedServer) -> None:
    """No client of ours takes part."""
    async with world(server, App([Agent("support", ScriptedModel(echo))])) as served:
        workflow_id = f"session:support:alice:{fresh()}"
        start = ("--type", "AgentSession", "--task-queue", served.settings.task_queue, "--workflow-id", workflow_id)
        signal = ("--signal-name", "submit_turn", "--signal-input", '{"input": "hello"}')
        await temporal(server.address, "signal-with-start", *start, *signal)
        which = ("--workflow-id", workflow_id)
        say = ("--name", "submit_turn", "--input", '{"input": "and now?", "turn_id": "m-2"}')
        await temporal(server.address, "signal", *which, *say)
        wait = ("--name", "submit_turn", "--input", '{"input": "wait for me", "wait": "settled"}')
        answered = await temporal(server.address, "update", "execute", *which, *wait)
        assert "heard wait for me" in answered
        assert "false" in await temporal(
            server.address, "update", "execute", *which, "--name", "interrupt", "--input", "{}"
        )
        asked = ("query", *which, "--output", "json", "--type")
        state = await temporal(server.address, *asked, "agent_state")
        assert "heard hello" in state
        turn = await temporal(server.address, *asked, "turn", "--input", '{"turn_id": "m-2"}')
        result = cast("dict[str, object]", json.loads(turn))["queryResult"]
        assert "heard and now?" in json.dumps(result)


def test_the_readme_shows_these_commands() -> None:
    """What a reader types is what was tried."""
    text = README.read_text(encoding="utf-8")
    for part in ("signal-with-start", "--signal-name submit_turn", "update execute", "--type agent_state"):
        assert part in text
