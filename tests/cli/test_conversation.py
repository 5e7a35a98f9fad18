"""Conversations without a terminal: what is typed while the agent works, Ctrl-C, the commands, coming back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from perdure import TurnStatus
from perdure.cli.chat.orders import WhileBusy
from perdure.cli.chat.telling import Telling
from perdure.messages import Message, Role
from perdure.results import TranscriptEntry
from tests.cli.desks import Seat, reached
from tests.cli.sample import gates
from tests.support.world import fresh, until

if TYPE_CHECKING:
    from tests.cli.desks import Desk

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def hold(seat: Seat) -> str:
    """Say something that keeps the agent at work until the gate of the name returned is opened."""
    name = fresh("gate")
    seat.enter(f"hold {name}")
    await reached(name)
    return name


async def status(desk: Desk, turn_id: str) -> TurnStatus:
    return (await desk.handle.turn(turn_id)).status


async def running(desk: Desk) -> str:
    view = await desk.handle.view()
    assert view.active
    return view.active.turn_id


# ---- while the agent works ----------------------------------------------------------------------------------------


async def test_a_message_steers_what_runs_and_both_answers_are_shown(desk: Desk) -> None:
    async with desk.conversation() as seat:
        name = await hold(seat)
        seat.enter("and also this")
        await seat.see("next step of what runs")
        gates[name].opened.set()
        await seat.see(f"answer: held {name}")
        await seat.see("answer: you said and also this")
    assert (await desk.handle.view()).turns == 1


async def test_a_message_waits_behind_what_runs_if_the_person_wants_that(desk: Desk) -> None:
    async with desk.conversation(WhileBusy.QUEUE) as seat:
        name = await hold(seat)
        seat.enter("one")
        await seat.see("waits, number 1")
        seat.enter("two")
        await seat.see("waits, number 2")
        gates[name].opened.set()
        await seat.see("you said two")
        assert [each for each in seat.shown if each.startswith("answer")] == [
            f"answer: held {name}",
            "answer: you said one",
            "answer: you said two",
        ]
    assert (await desk.handle.view()).turns == 3


async def test_steer_steers_and_queue_queues_whatever_plain_text_does(desk: Desk) -> None:
    async with desk.conversation(WhileBusy.QUEUE) as seat:
        name = await hold(seat)
        seat.enter("/queue for later")
        await seat.see("waits, number 1")
        seat.enter("/steer for now")
        await seat.see("next step of what runs")
        seat.enter("/queue")
        waiting = await seat.see("for later")
        assert "1 new input" in waiting
        gates[name].opened.set()
        await seat.see("you said for now")
        await seat.see("you said for later")
        seat.enter("/queue")
        await seat.see("nothing waits")
    assert (await desk.handle.view()).turns == 2


async def test_what_would_steer_begins_a_turn_when_nothing_runs(desk: Desk) -> None:
    async with desk.conversation() as seat:
        seat.enter("/steer hello")
        await seat.see("you said hello")
    assert (await desk.handle.view()).turns == 1


async def test_injected_text_starts_nothing_and_is_seen_by_the_next_turn(desk: Desk) -> None:
    await desk.handle.ask("hi")
    async with desk.conversation() as seat:
        seat.enter("/inject the shop is closed")
        await seat.see("the next one will see it")
        assert (await desk.handle.view()).turns == 1
        seat.enter("hello")
        await seat.see("answer: you said")
    assert {"the shop is closed", "hello"} <= set(await desk.said())
    assert (await desk.handle.view()).turns == 2


# ---- stopping and going on ----------------------------------------------------------------------------------------


async def test_ctrl_c_keeps_what_was_said_shows_it_and_marks_it(desk: Desk) -> None:
    async with desk.conversation() as seat:
        await hold(seat)
        assert seat.ctrl_c()
        await seat.see("answer: half")
        assert "/resume" in await seat.see("note: interrupted")
        await until(lambda: idle(seat))
        assert not seat.ctrl_c()


async def idle(seat: Seat) -> bool:
    return not seat.doing


async def test_ctrl_c_stops_what_runs_and_what_waits_behind_it_goes_on(desk: Desk) -> None:
    async with desk.conversation(WhileBusy.QUEUE) as seat:
        await hold(seat)
        seat.enter("next")
        await seat.see("waits, number 1")
        seat.ctrl_c()
        await seat.see("note: interrupted")
        await seat.see("answer: you said next")


async def test_ctrl_c_does_not_stop_what_others_have_begun(desk: Desk) -> None:
    await desk.handle.ask("hi")
    async with desk.conversation(WhileBusy.QUEUE) as seat:
        await seat.see("answer: you said hi")
        seat.enter("/queue")
        await seat.see("nothing waits")
        name = await desk.held("theirs")
        seat.enter("mine")
        await seat.see("waits, number 1")
        seat.ctrl_c()
        await seat.see("it has not begun")
        assert await status(desk, "theirs") is TurnStatus.RUNNING
        seat.ctrl_c()
        await seat.see("left alone")
        gates[name].opened.set()
    await desk.handle.result("theirs")
    await until(lambda: has_said(desk, "you said mine"))


async def has_said(desk: Desk, text: str) -> bool:
    return text in await desk.said()


async def test_resume_goes_on_with_the_unfinished_turn_and_follows_it(desk: Desk) -> None:
    async with desk.conversation() as seat:
        await hold(seat)
        turn_id = await running(desk)
        seat.enter("/interrupt the other one")
        await seat.see("note: interrupted")
        seat.enter("/resume")
        await seat.see("answer: you said the other one")
        seat.enter("/resume")
        await seat.see("nothing is unfinished")
    turn = await desk.handle.turn(turn_id)
    assert (turn.status, len(turn.runs)) == (TurnStatus.COMPLETED, 2)


async def test_cancel_gives_up_what_runs_what_is_unfinished_and_what_is_named(desk: Desk) -> None:
    async with desk.conversation(WhileBusy.QUEUE) as seat:
        await hold(seat)
        first = await running(desk)
        seat.enter("/cancel")
        await seat.see("is cancelled")
        assert await status(desk, first) is TurnStatus.CANCELLED

        await hold(seat)
        second = await running(desk)
        seat.ctrl_c()
        await seat.see("note: interrupted")
        seat.enter("/cancel")
        await seat.see("over for good")
        assert await status(desk, second) is TurnStatus.CANCELLED

        name = await hold(seat)
        await desk.handle.submit("wait", turn_id="third")
        seat.enter("/cancel third")
        await seat.see("turn third: over for good")
        assert await status(desk, "third") is TurnStatus.CANCELLED
        gates[name].opened.set()
        await seat.see(f"held {name}")
        seat.enter("/cancel")
        await seat.see("nothing runs")


async def test_pause_holds_what_comes_until_unpause(desk: Desk) -> None:
    await desk.handle.ask("hi")
    async with desk.conversation() as seat:
        seat.enter("/pause for lunch")
        await seat.see("shown: paused")
        view = await desk.handle.view()
        assert (view.paused, view.pause_reason) == (True, "for lunch")
        seat.enter("hello")
        await seat.see("waits, number 1")
        await until(lambda: says_why(seat))
        seat.enter("/unpause")
        await seat.see("not paused")
        await seat.see("you said hello")
    assert not (await desk.handle.view()).paused


async def says_why(seat: Seat) -> bool:
    return "the session is paused, /unpause goes on" in seat.doing


async def test_a_failure_is_told_and_can_be_resumed(desk: Desk) -> None:
    async with desk.conversation() as seat:
        seat.enter("fail")
        assert "/resume" in await seat.see("LookupError: no such luck")


async def test_what_is_refused_is_told_and_the_conversation_goes_on(desk: Desk) -> None:
    async with desk.conversation() as seat:
        seat.enter("/cancel")
        await seat.see("no open session")
        seat.enter("hi")
        await seat.see("you said hi")
        seat.enter("/cancel nobody")
        await seat.see("knows no turn 'nobody'")
        seat.enter("/inject")
        await seat.see("/inject TEXT")


# ---- coming and going ---------------------------------------------------------------------------------------------


async def test_whoever_comes_back_is_told_what_is_unfinished_and_what_holds_the_queue(desk: Desk) -> None:
    await desk.held("m-1", after_interrupt="park")
    await desk.handle.interrupt(message="wrong way", actor="carol")
    await desk.handle.submit("queued", turn_id="m-2")
    await desk.handle.pause("maintenance", actor="ops")
    async with desk.conversation() as seat:
        await seat.see("answer: half")
        await seat.see("note: interrupted")
        assert "/unpause" in await seat.see("paused by ops: maintenance")
        told = await seat.see("holds the queue: turn m-1, interrupted")
        assert "by carol: wrong way" in told
        assert "/resume" in told
        assert "/cancel" in told
        seat.enter("/unpause")
        await seat.see("not paused")
        seat.enter("/cancel")
        await seat.see("turn m-1: over for good")
        await seat.see("answer: you said queued")


async def test_whoever_comes_back_follows_what_runs_and_what_waits_and_sees_nothing_twice(desk: Desk) -> None:
    name = await desk.held("m-1")
    await desk.handle.submit("queued", turn_id="m-2")
    async with desk.conversation() as seat:
        await until(lambda: following(seat))
        gates[name].opened.set()
        await seat.see("you said queued")
    assert seat.shown.count(f"answer: held {name}") == 1
    assert seat.shown.count("answer: you said queued") == 1


async def test_whoever_comes_back_to_a_turn_that_was_resumed_is_not_told_of_its_earlier_end(desk: Desk) -> None:
    await desk.held("m-1")
    name = fresh("gate")
    await desk.handle.interrupt(message=f"hold {name}")
    await desk.handle.resume("m-1")
    await reached(name)
    async with desk.conversation() as seat:
        await seat.see("answer: half")
        gates[name].opened.set()
        await seat.see(f"answer: held {name}")
    assert not [each for each in seat.shown if "/resume" in each]


async def test_a_message_that_was_shown_when_somebody_came_back_is_not_told_again() -> None:
    message = Message(id="one", role=Role.ASSISTANT, content="hello")
    entry = TranscriptEntry.model_validate(
        {"seq": 1, "at": "2026-01-01T00:00:00Z", "kind": "assistant", "data": {"message": message.model_dump()}}
    )
    seat = Seat()
    assert not Telling(seat).entry("m-1", entry)
    assert not Telling(seat, [message]).entry("m-1", entry)
    assert seat.shown == ["answer: hello"]


async def following(seat: Seat) -> bool:
    return "thinking, 1 more in the queue" in seat.doing


async def test_a_session_that_is_closed_and_begun_again_meanwhile_is_told_as_a_whole(desk: Desk) -> None:
    async with desk.conversation() as seat:
        seat.enter("hello")
        await seat.see("you said hello")
        seat.enter("/close enough")
        await seat.see("nothing was waiting")
        name = await hold(seat)
        seat.enter("/steer look")
        await seat.see("next step")
        gates[name].opened.set()
        await seat.see(f"answer: held {name}")
        await seat.see("answer: it is on its way")


async def test_what_was_typed_before_leaving_is_said(desk: Desk) -> None:
    async with desk.conversation() as seat:
        seat.enter("one")
        seat.enter("two")
    await until(lambda: has_said(desk, "two"))


async def test_each_command_that_help_names_is_one(desk: Desk) -> None:
    await desk.handle.ask("hi")
    async with desk.conversation() as seat:
        seat.enter("/help")
        for name in re.findall(r"^  (/\w+)", await seat.see("/steer"), re.MULTILINE):
            if name != "/quit":
                seat.enter(name)
        seat.enter("/nonsense")
        await seat.see("there is no /nonsense")
    assert sum("there is no /" in each for each in seat.shown) == 1
