"""`perdure chat`, over a pipe and at a real terminal."""

from __future__ import annotations

import asyncio
import signal
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from perdure import TurnStatus
from tests.cli.desks import reached
from tests.cli.programs import HERE, PATIENCE, Ended, perdure, started
from tests.cli.sample import gates
from tests.cli.terminals import CTRL_C, PROMPT, at_terminal
from tests.support.world import fresh, until

if TYPE_CHECKING:
    from perdure.testing import Served
    from tests.cli.desks import Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_over_a_pipe_each_line_is_a_turn_and_only_answers_are_printed(desk: Desk) -> None:
    ended = await desk.process("chat", typed="hello\n\n//help me\nlast line without an end")
    assert ended == Ended(0, "you said hello\nyou said /help me\nyou said last line without an end\n", "")


async def test_over_a_pipe_commands_work_and_what_fails_is_in_the_exit_code(desk: Desk) -> None:
    ended = await desk.process(
        "chat",
        typed="fail\nhi\n/view\n/state\n/transcript\n/interrupt\n/help\n/nonsense\n/close\n/quit\nnever\n",
    )
    assert ended.code == 4
    assert ended.out.startswith("you said hi\nstatus")
    assert "nothing was running" in ended.out
    assert "closed; nothing was waiting" in ended.out
    assert "you said never" not in ended.out
    assert "LookupError: no such luck" in ended.err
    assert "there is no /nonsense" in ended.err
    assert "\x1b" not in ended.out


async def test_over_a_pipe_sigint_interrupts_the_turn_and_the_next_line_is_read(desk: Desk) -> None:
    async with started("chat", env=desk.env) as chat:
        assert chat.process.stdin
        chat.process.stdin.write(b"slow\n")
        await until(desk.doing)
        chat.process.send_signal(signal.SIGINT)
        ended = await chat.finish("still here\n")
    assert ended.code == 4
    assert ended.out.endswith("you said still here\n")
    assert "interrupted" in ended.err


async def test_at_a_terminal_a_conversation_goes_on_where_it_was_left(desk: Desk) -> None:
    async with at_terminal("chat", env=desk.env) as terminal:
        await terminal.enter("**hello**")
        await terminal.see("you said")
        await terminal.see("\x1b[1mhello")
        await terminal.enter("/view")
        await terminal.see("revision")
        assert await terminal.leave() == 0
    async with at_terminal("chat", env=desk.env) as terminal:
        await terminal.see("> **hello**")
        await terminal.see("you said")
        await terminal.enter("\x1b[A")
        await terminal.see("revision")
        assert await terminal.leave() == 0
    assert await desk.said() == ["**hello**", "you said **hello**"]


async def test_what_was_typed_is_kept_for_its_owner_only(desk: Desk) -> None:
    async with at_terminal("chat", env=desk.env) as terminal:
        await terminal.enter("a secret")
        await terminal.see("you said a secret")
        assert await terminal.leave() == 0
    folder = Path(desk.env["PERDURE_HOME"]) / "chat"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    kept = [path for path in folder.iterdir() if "a secret" in path.read_text()]
    assert [stat.S_IMODE(path.stat().st_mode) for path in kept] == [0o600]


async def test_over_a_pipe_sigint_ends_the_program_when_nothing_runs(desk: Desk) -> None:
    async with started("chat", env=desk.env) as chat:
        assert chat.process.stdin
        chat.process.stdin.write(b"hello\n")
        await chat.says("you said hello")
        chat.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE):
            await chat.process.wait()  # before its input ends, which ends it too
        ended = await chat.finish()
    assert (ended.code, ended.err) == (130, "")


async def test_over_a_pipe_sigint_ends_the_program_also_as_the_turn_is_just_over(desk: Desk) -> None:
    hasty = (sys.executable, str(HERE / "hasty_pipe.py"))
    async with started("chat", env=desk.env, program=hasty) as chat:
        assert chat.process.stdin
        chat.process.stdin.write(b"hello\n")
        async with asyncio.timeout(PATIENCE):
            await chat.process.wait()
        ended = await chat.finish()
    assert (ended.code, ended.out, ended.err) == (130, "you said hello\n", "")


async def test_over_a_pipe_turns_are_interrupted_resumed_and_cancelled_line_by_line(desk: Desk) -> None:
    ended = await desk.process("chat", typed="fail\n/resume\n/cancel\n/pause\n/unpause\n/queue hello\n/steer again\n")
    assert ended.code == 4
    assert ended.err.count("LookupError: no such luck") == 2
    assert ended.out.splitlines()[1:] == ["paused", "the session is not paused", "you said hello", "you said again"]


async def test_at_a_terminal_ctrl_c_interrupts_the_turn_and_keeps_what_is_being_typed(desk: Desk) -> None:
    name = fresh("gate")
    async with at_terminal("chat", env=desk.env) as terminal:
        await terminal.enter(f"hold {name}")
        await terminal.see("thinking")
        await reached(name)
        await terminal.type(f"hel{CTRL_C}")
        await terminal.see("half")
        await terminal.see("interrupted")
        await terminal.enter("lo")
        await terminal.see("you said hello")
        await terminal.see(PROMPT)
        await terminal.type(f"thrown away{CTRL_C}")
        await terminal.enter("/queue")
        await terminal.see("nothing waits")
        assert await terminal.leave() == 0
    turns = [entry.turn_id async for entry in desk.handle.transcript() if entry.kind == "input"]
    statuses = [(await desk.handle.turn(turn_id)).status for turn_id in turns if turn_id]
    assert statuses == [TurnStatus.INTERRUPTED, TurnStatus.COMPLETED]


async def test_at_a_terminal_what_is_typed_while_the_agent_works_steers_it(desk: Desk) -> None:
    name = fresh("gate")
    async with at_terminal("chat", env=desk.env) as terminal:
        await terminal.enter(f"hold {name}")
        await terminal.see("thinking")
        await terminal.type("and this\r")
        await terminal.see("seen at the next step")
        gates[name].opened.set()
        await terminal.see(f"held {name}")
        await terminal.see("you said and this")
        assert await terminal.leave() == 0
    assert (await desk.handle.view()).turns == 1


async def test_at_a_terminal_what_is_typed_waits_its_turn_if_that_is_wanted(desk: Desk) -> None:
    name = fresh("gate")
    async with at_terminal("chat", "--while-busy", "queue", env=desk.env) as terminal:
        await terminal.enter(f"hold {name}")
        await terminal.see("thinking")
        await terminal.type("and this\r")
        await terminal.see("waits, number 1")
        gates[name].opened.set()
        await terminal.see(f"held {name}")
        await terminal.see("you said and this")
        assert await terminal.leave() == 0
    assert (await desk.handle.view()).turns == 2


async def test_a_second_ctrl_c_leaves_the_turn_alone(served: Served, desk: Desk) -> None:
    env = desk.env | {"PERDURE_TASK_QUEUE": fresh("nobody")}
    async with at_terminal("chat", env=env) as terminal:
        await terminal.enter("hi")
        await terminal.see("sending")
        await terminal.type(CTRL_C)
        await terminal.see("once more")
        await terminal.type(CTRL_C)
        await terminal.see("left alone")
        await terminal.enter("/quit")


async def test_a_turn_that_still_runs_is_followed_by_whoever_comes_back(desk: Desk) -> None:
    await desk.handle.submit("slow")
    async with at_terminal("chat", env=desk.env) as terminal:
        await terminal.see("thinking")
        await terminal.type(CTRL_C)
        await terminal.see("interrupted")
        assert await terminal.leave() == 0


async def test_hostile_text_does_not_drive_the_terminal(desk: Desk) -> None:
    """B77."""
    async with at_terminal("chat", env=desk.env) as terminal:
        await terminal.enter("hostile [link](http://example.com)")
        await terminal.see("[bold]not bold[/bold]")
        assert await terminal.leave() == 0
    async with at_terminal("chat", env=desk.env) as terminal:
        await terminal.see("[bold]not bold[/bold]")
        assert await terminal.leave() == 0
        assert "\x1b]" not in terminal.shown
        assert not {"\x07", "\x9b", "\u202e"} & set(terminal.shown)


async def test_a_chat_without_a_server_ends_with_3_in_a_line() -> None:
    ended = await perdure("chat", "-a", "a", "-s", "s", "--address", "127.0.0.1:9", typed="hi\n")
    assert (ended.code, ended.out, ended.err.count("\n")) == (3, "", 1)
