"""The commands of a session, as processes, against a real server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from perdure import AgentState
from perdure.histories import record_history
from tests.cli.programs import HERE, PATIENCE, PERDURE, Ended, environment, started
from tests.cli.sample import LARGE
from tests.support.world import fresh, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.desks import Desk


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_ask_prints_the_answer_and_nothing_else(desk: Desk) -> None:
    assert await desk.process("ask", "where is it?") == Ended(0, "you said where is it?\n", "")


async def test_a_session_is_named_by_options_too_and_they_win_over_variables(desk: Desk) -> None:
    ended = await desk.run("ask", "hi", "-a", "support", "-u", "bob", "-s", f"{desk.session}-2", "--json")
    assert ended.json()["status"] == "completed"
    ended = await desk.run("state", "-u", "bob", "-s", f"{desk.session}-2", "--json")
    assert (ended.json()["user_id"], ended.json()["session_id"]) == ("bob", f"{desk.session}-2")


async def test_ask_reads_standard_input_and_passes_everything_on(desk: Desk) -> None:
    options = ("--turn-id", "t-1", "--run-id", "r-1", "--attribute", "channel=web", "--actor", "operator")
    ended = await desk.process("ask", "-", *options, "--json", typed="from a pipe\n")
    assert ended.code == 0
    result = ended.json()
    assert (result["turn_id"], result["run_id"], result["output"]) == ("t-1", "r-1", "you said from a pipe")
    assert (await desk.handle.turn("t-1")).submitted_by == "operator"


async def test_a_turn_that_fails_exits_with_4_and_says_why(desk: Desk) -> None:
    ended = await desk.process("ask", "fail", "--turn-id", "t-1")
    assert (ended.code, ended.out) == (4, "")
    assert ended.err == "perdure: turn t-1 is failed: LookupError: no such luck\n"
    again = await desk.run("result", "t-1", "--json")
    assert (again.code, again.json()["status"]) == (4, "failed")


async def test_ask_stops_waiting_in_time_with_4_and_names_the_turn(desk: Desk) -> None:
    ended = await desk.run("ask", "slow", "--turn-id", "t-1", "--timeout", "1")
    assert (ended.code, ended.out) == (4, "")
    assert "perdure result t-1" in ended.err
    assert await desk.doing()


async def test_ctrl_c_ends_the_wait_and_not_the_turn(desk: Desk) -> None:
    async with started("ask", "slow", "--turn-id", "t-1", env=desk.env) as asking:
        await until(desk.doing)
        ended = await asking.stop(signal.SIGINT)
    assert (ended.code, ended.out) == (130, "")
    assert "perdure result t-1" in ended.err
    assert "Traceback" not in ended.err
    assert await desk.doing()


async def test_an_interrupt_stops_the_turn_and_whoever_waits_for_it_exits_with_4(desk: Desk) -> None:
    async with started("ask", "slow", "--turn-id", "t-1", "--json", env=desk.env) as asking:
        await until(desk.doing)
        interrupting = await desk.run("interrupt", "--message", "enough", "--json")
        asked = await asking.finish()
    assert interrupting.code == 0
    assert interrupting.json()["interrupted"] is True
    assert (asked.code, asked.json()["status"]) == (4, "interrupted")


async def test_an_interrupt_of_nothing_is_no_error_and_one_of_another_run_is_refused(desk: Desk) -> None:
    await desk.handle.ask("hi")
    idle = await desk.run("interrupt")
    assert (idle.code, idle.out) == (0, "nothing was running\n")
    await desk.handle.submit("slow")
    stale = await desk.run("interrupt", "--run-id", "another")
    assert (stale.code, stale.out) == (1, "")
    assert await desk.doing()


async def test_submit_returns_at_once_and_result_waits(desk: Desk) -> None:
    submitted = await desk.run("submit", "hello", "--turn-id", "t-1", "--json")
    assert submitted.json()["turn_id"] == "t-1"
    assert await desk.run("result", "t-1", "--timeout", "30") == Ended(0, "you said hello\n", "")


async def test_what_a_session_refuses_exits_with_1_and_the_reason(desk: Desk) -> None:
    await desk.handle.ask("hello", turn_id="t-1")
    conflict = await desk.process("submit", "something else", "--turn-id", "t-1")
    assert (conflict.code, conflict.out) == (1, "")
    assert conflict.err.startswith("perdure: ")
    assert conflict.err.count("\n") == 1
    await desk.handle.submit("slow")
    busy = await desk.run("submit", "more", "--on-busy", "reject")
    assert busy.code == 1


@pytest.mark.parametrize(
    "arguments", [("ask", " "), ("ask", "hi", "--turn-id", ""), ("submit", "hi", "--turn-id", "x" * 201)]
)
async def test_what_can_not_be_understood_is_wrong_usage(desk: Desk, arguments: tuple[str, ...]) -> None:
    ended = await desk.run(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert "Traceback" not in ended.err


async def test_reading_a_session_that_does_not_exist_is_refused_and_creates_nothing(desk: Desk) -> None:
    """B10."""
    commands = (("state",), ("turn", "t-1"), ("transcript",), ("close",))
    ended = await asyncio.gather(*(desk.run(*command) for command in commands))
    assert [(each.code, each.out) for each in ended] == [(1, "")] * len(commands)
    assert (await desk.run("view")).code == 1


async def test_state_in_json_is_exactly_the_agent_state(desk: Desk) -> None:
    await desk.handle.ask("hello")
    ended = await desk.run("state", "--json")
    assert AgentState.from_json(ended.out) == await desk.handle.state()
    assert ended.out == (await desk.handle.state()).to_json() + "\n"


async def test_a_large_state_is_read_through_the_storage(desk: Desk) -> None:
    asked = await desk.run("ask", "large")
    assert asked.out == LARGE + "\n"
    ended = await desk.run("state", "--json")
    assert ended.json()["context"][-1]["content"][0]["text"] == LARGE


async def test_view_turn_and_transcript_show_the_session_to_people_and_programs(desk: Desk) -> None:
    await desk.handle.ask("look", turn_id="t-1")
    commands = ("view", "turn t-1", "transcript", "state")
    texts = await asyncio.gather(*(desk.run(*command.split()) for command in commands))
    assert [each.code for each in texts] == [0] * 4
    assert all("\x1b" not in each.out for each in texts)
    assert "active" in texts[0].out
    assert "completed" in texts[1].out
    assert 'look_up {"order_id": "A1042"}' in texts[2].out
    assert "order A1042 is on its way" in texts[2].out
    assert "it is on its way" in texts[3].out
    view, turn, transcript = await asyncio.gather(*(desk.run(*each.split(), "--json") for each in commands[:3]))
    assert view.json()["turns"] == 1
    assert turn.json()["status"] == "completed"
    entries: list[Any] = [json.loads(line) for line in transcript.out.splitlines()]
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))


async def test_transcript_follows_what_comes(desk: Desk) -> None:
    await desk.handle.ask("first")
    async with started("transcript", "--follow", env=desk.env) as following:
        await following.says("you said first")
        await desk.handle.ask("second")
        await following.says("you said second")
        assert (await following.stop(signal.SIGINT)).code == 130


async def test_close_says_what_it_cancelled_and_the_session_stays_readable(desk: Desk) -> None:
    await desk.handle.submit("slow", turn_id="t-1")
    closed = await desk.run("close", "--reason", "done", "--json")
    assert (closed.code, closed.json()["cancelled"]) == (0, ["t-1"])
    assert "closed" in (await desk.run("view")).out


async def test_sessions_are_listed_by_agent_user_and_status(desk: Desk) -> None:
    await desk.handle.ask("hello")

    async def listed() -> bool:
        ended = await desk.run("sessions", "-a", "support", "-u", "alice", "--status", "active", "--json")
        return desk.session in [info["key"]["session_id"] for info in ended.json()]

    await until(listed, patience=PATIENCE)
    assert desk.session in (await desk.run("sessions", "--limit", "50")).out
    assert (await desk.run("sessions", "-u", fresh("nobody"), "--json")).json() == []


async def test_hostile_text_reaches_a_terminal_only_as_signs(desk: Desk) -> None:
    """B77."""
    asked = await desk.run("ask", "hostile", "--turn-id", "t-1")
    shown = [asked, *await asyncio.gather(*(desk.run(*each.split()) for each in ("transcript", "turn t-1", "state")))]
    for ended in shown:
        assert ended.code == 0
        assert not set("\x1b\x9b\x07\r\u202e") & set(ended.out)
        assert "[bold]not bold[/bold] :smile:" in ended.out
    assert json.loads((await desk.run("result", "t-1", "--json")).out)["output"].startswith("\x1b]0;owned\x07")


async def test_a_reader_that_has_seen_enough_ends_the_command_quietly(desk: Desk) -> None:
    await desk.handle.ask("hello")
    reading, writing = os.pipe()
    os.close(reading)
    process = await asyncio.create_subprocess_exec(
        *(*PERDURE, "transcript"),
        env=environment(desk.env),
        cwd=HERE,
        stdout=writing,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(writing)
    _, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")


async def test_recorded_histories_and_open_sessions_replay(desk: Desk, tmp_path: Path) -> None:
    await desk.handle.ask("look")
    await record_history(desk.handle, tmp_path / "one.json")
    ended = await desk.run("replay", str(tmp_path))
    assert (ended.code, ended.out) == (0, "1 history replays on this code\n")
    assert (await desk.run("replay", "--from-server", "--limit", "1")).code == 0


async def test_a_history_that_went_another_way_is_refused(desk: Desk, tmp_path: Path) -> None:
    """B63."""
    await desk.handle.ask("look")
    path = await record_history(desk.handle, tmp_path / "one.json")
    path.write_text(path.read_text().replace('"look_up"', '"another_tool"'))
    ended = await desk.run("replay", str(path))
    assert (ended.code, ended.out) == (1, "")
    assert "one.json" in ended.err
    assert "Traceback" not in ended.err
