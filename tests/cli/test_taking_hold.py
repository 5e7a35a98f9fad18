"""Commands that take hold of a session: resume, cancel, steer, inject, pause, unpause, and what they show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from perdure import TurnStatus
from tests.cli.programs import Ended
from tests.cli.sample import gates

if TYPE_CHECKING:
    from tests.cli.desks import Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_steer_reaches_the_turn_that_runs_and_says_when_it_is_seen(desk: Desk) -> None:
    name = await desk.held("m-1")
    assert await desk.run("steer", "only the new ones") == Ended(0, "turn m-1: steered, seen at step 2\n", "")
    piped = await desk.run("steer", "-", "--actor", "operator", "--json", typed="and quickly\n")
    assert (piped.json()["turn_id"], piped.json()["step"]) == ("m-1", 2)
    assert (await desk.handle.view()).waiting_inputs == 2
    gates[name].opened.set()
    assert (await desk.handle.result("m-1")).output == "you said and quickly"
    assert (await desk.said())[-3:-1] == ["only the new ones", "and quickly"]


async def test_steering_nothing_or_another_run_is_refused(desk: Desk) -> None:
    await desk.handle.ask("hi")
    refused = await desk.run("steer", "too late")
    assert (refused.code, refused.out) == (1, "")
    assert "no turn runs" in refused.err
    await desk.held()
    stale = await desk.run("steer", "not you", "--run-id", "another")
    assert (stale.code, stale.out) == (1, "")
    assert (await desk.handle.view()).waiting_inputs == 0


async def test_inject_is_seen_by_the_next_step_of_whatever_turn_comes(desk: Desk) -> None:
    name = await desk.held("m-1")
    assert (await desk.run("inject", "at once")).out == "turn m-1: sees it at its next step\n"
    gates[name].opened.set()
    await desk.handle.result("m-1")
    assert await desk.run("inject", "-", typed="news\n") == Ended(0, "no turn runs: the next one will see it\n", "")
    more = await desk.run("inject", "more", "--actor", "operator", "--json")
    assert (more.json()["turn_id"], more.json()["disposition"]) == ("", "queued")
    assert (await desk.handle.view()).turns == 1
    await desk.handle.ask("hello")
    assert {"at once", "news", "more", "hello"} <= set(await desk.said())


async def test_resume_goes_on_with_an_interrupted_turn(desk: Desk) -> None:
    await desk.held("m-1")
    await desk.handle.interrupt(message="go on")
    resumed = await desk.run("resume", "m-1", "--run-id", "r-2", "--actor", "operator")
    assert resumed == Ended(0, "turn m-1: resumed in run r-2\n", "")
    assert (await desk.handle.result("m-1")).output == "you said go on"


async def test_resume_that_waits_prints_the_answer_or_exits_with_4(desk: Desk) -> None:
    await desk.held("m-1")
    await desk.handle.interrupt(message="go on")
    assert await desk.run("resume", "m-1", "--wait", "--timeout", "60") == Ended(0, "you said go on\n", "")
    await desk.handle.ask("fail", turn_id="m-2")
    again = await desk.run("resume", "m-2", "--wait", "--json")
    assert (again.code, again.json()["status"]) == (4, "failed")


async def test_resume_that_waits_stops_waiting_in_time_and_names_the_turn(desk: Desk) -> None:
    name = await desk.held("m-1")
    await desk.handle.interrupt(message=f"hold {name}")
    ended = await desk.run("resume", "m-1", "--wait", "--timeout", "0")
    assert (ended.code, ended.out) == (4, "")
    assert "perdure result m-1" in ended.err
    assert (await desk.handle.turn("m-1")).status is TurnStatus.RUNNING


async def test_what_can_not_be_resumed_or_cancelled_is_refused_with_the_reason(desk: Desk) -> None:
    await desk.handle.ask("hi", turn_id="m-1")
    completed = await desk.run("resume", "m-1")
    assert (completed.code, completed.out) == (1, "")
    assert "it is completed" in completed.err
    for command in ("resume", "cancel"):
        unknown = await desk.run(command, "nobody")
        assert (unknown.code, unknown.out) == (1, "")
        assert "knows no turn 'nobody'" in unknown.err


async def test_cancel_ends_a_turn_for_good_and_twice_is_the_same_as_once(desk: Desk) -> None:
    await desk.held("m-1")
    await desk.handle.submit("wait", turn_id="m-2")
    for turn_id in ("m-2", "m-1", "m-1"):
        assert await desk.run("cancel", turn_id) == Ended(0, f"turn {turn_id}: over for good\n", "")
        assert (await desk.handle.turn(turn_id)).status is TurnStatus.CANCELLED
    assert (await desk.run("cancel", "m-1", "--json", "--actor", "me")).json()["disposition"] == "settled"


async def test_pause_holds_and_unpause_goes_on(desk: Desk) -> None:
    name = await desk.held("m-1")
    paused = await desk.run("pause", "--reason", "maintenance", "--actor", "ops")
    assert paused == Ended(0, "paused; turn m-1 is held when its step is done\n", "")
    assert (await desk.run("pause", "--json")).json() == {"paused": True, "turn_id": "m-1"}
    gates[name].opened.set()
    await desk.handle.result("m-1")
    await desk.handle.submit("hello", turn_id="m-2")
    assert "yes by ops: maintenance" in (await desk.run("view")).out
    assert (await desk.run("unpause", "--reason", "done")).out == "the session is not paused; turn m-2 runs\n"
    await desk.handle.result("m-2")
    assert (await desk.run("unpause", "--json")).json()["paused"] is False


@pytest.mark.parametrize("command", ["pause", "unpause", "inject hello", "steer hello", "cancel m-1", "resume m-1"])
async def test_a_session_that_does_not_exist_is_not_taken_hold_of(desk: Desk, command: str) -> None:
    ended = await desk.run(*command.split())
    assert (ended.code, ended.out) == (1, "")
    assert "no open session" in ended.err


async def test_a_turn_says_what_becomes_of_the_queue_after_it(desk: Desk) -> None:
    parked = await desk.run("submit", "fail", "--turn-id", "m-1", "--after-failure", "park")
    assert parked.code == 0
    await desk.handle.result("m-1")
    await desk.run("submit", "hello", "--turn-id", "m-2", "--after-interrupt", "continue")
    view = await desk.run("view")
    assert "held until turn m-1 is resumed or cancelled" in view.out
    assert "LookupError: no such luck" in view.out
    await desk.run("cancel", "m-1")
    asked = await desk.run("ask", "fail", "--turn-id", "m-3", "--after-failure", "park", "--after-interrupt", "park")
    assert asked.code == 4
    assert (await desk.run("view", "--json")).json()["parked"] == "m-3"


async def test_view_shows_who_asked_who_stopped_it_and_what_waits(desk: Desk) -> None:
    await desk.held("m-1", actor="alice", after_interrupt="park")
    await desk.handle.submit("more", turn_id="m-2", actor="dave")
    await desk.handle.inject("news")
    view = " ".join((await desk.run("view")).out.split())
    assert "asked by alice" in view
    assert "queued m-2 by dave: more" in view
    assert "new input 1, seen at the next step" in view
    await desk.run("interrupt", "--message", "wrong way", "--actor", "carol")
    view = " ".join((await desk.run("view")).out.split())
    assert "unfinished m-1, interrupted 20" in view
    assert "by carol: wrong way" in view
    assert "parked the queue is held until turn m-1" in view
    found = (await desk.run("view", "--json")).json()
    assert (found["stopped"]["turn_id"], found["stopped"]["stopped_by"]) == ("m-1", "carol")


async def test_the_transcript_tells_what_people_asked_for(desk: Desk) -> None:
    await desk.held("m-1", actor="alice")
    await desk.run("steer", "left")
    await desk.run("inject", "news")
    await desk.run("interrupt", "--message", "wrong way", "--partial", "discard", "--actor", "carol")
    await desk.run("resume", "m-1", "--wait")
    await desk.run("cancel", (await asked_to_hold(desk)))
    await desk.run("pause", "--reason", "lunch")
    await desk.run("unpause")
    await desk.run("close", "--reason", "solved")
    ended = await desk.run("transcript")
    said = [line.split(maxsplit=2)[2] for line in ended.out.splitlines()]
    told = [" ".join(line.split()) for line in said]
    for line in (
        "input steered: left",
        "input injected: news",
        "command interrupt m-1, discarding what it had said: wrong way (by carol)",
        "command resume m-1",
        "command cancel m-2",
        "command pause: lunch",
        "command unpause",
        "command close: solved",
    ):
        assert line in told, told
    entries = [json.loads(line) for line in (await desk.run("transcript", "--json")).out.splitlines()]
    assert len(entries) == len(told)


async def asked_to_hold(desk: Desk) -> str:
    await desk.held("m-2")
    return "m-2"


async def test_a_turn_that_was_rolled_back_reads_so_in_the_transcript(desk: Desk) -> None:
    await desk.held("m-1")
    assert (await desk.run("ask", "instead", "--on-busy", "rollback")).out == "you said instead\n"
    assert "m-1: taken back, as if it had not been said" in (await desk.run("transcript")).out


async def test_a_half_answer_is_marked_in_the_transcript(desk: Desk) -> None:
    await desk.held("m-1")
    await desk.handle.interrupt()
    assert "half (interrupted)" in (await desk.run("transcript")).out
