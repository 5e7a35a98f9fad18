"""Waiting together: one wait for all in a process who want the same."""

from __future__ import annotations

import asyncio

import pytest

from perdure import TurnResult, TurnStatus
from perdure.client.waiting import Waits

RESULT = TurnResult(turn_id="t", status=TurnStatus.COMPLETED)


class Wait:
    """A wait that ends when the test says so, and counts how often it was begun."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = asyncio.get_running_loop().create_future()
        self.cancelled = asyncio.Event()

    async def __call__(self) -> TurnResult:
        self.begun += 1
        try:
            await asyncio.shield(self.ended)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return RESULT


def together(waits: Waits, wait: Wait, count: int) -> list[asyncio.Task[TurnResult]]:
    return [asyncio.create_task(waits.share("w", "t", wait)) for _ in range(count)]


async def test_many_who_wait_for_one_turn_begin_one_wait() -> None:
    """B71: and each gets the result."""
    waits, wait = Waits(), Wait()
    tasks = together(waits, wait, 50)
    await asyncio.sleep(0)
    wait.ended.set_result(None)
    assert await asyncio.gather(*tasks) == [RESULT] * 50
    assert wait.begun == 1


async def test_whoever_is_cancelled_leaves_the_others_waiting_and_the_last_one_ends_the_wait() -> None:
    """B73: nothing is left behind by those who go away."""
    waits, wait = Waits(), Wait()
    first, second = together(waits, wait, 2)
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not wait.cancelled.is_set()
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    await asyncio.wait_for(wait.cancelled.wait(), 5)
    again = Wait()
    again.ended.set_result(None)
    assert await waits.share("w", "t", again) == RESULT


async def test_a_wait_that_fails_fails_for_all_and_the_next_one_begins_anew() -> None:
    """An error is nobody's for good."""
    waits, wait = Waits(), Wait()
    tasks = together(waits, wait, 3)
    await asyncio.sleep(0)
    wait.ended.set_exception(ConnectionError("gone"))
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ConnectionError] * 3
    again = Wait()
    again.ended.set_result(None)
    assert await waits.share("w", "t", again) == RESULT
    assert again.begun == 1


async def test_different_turns_are_waited_for_side_by_side() -> None:
    """One session's turn is not another's."""
    waits = Waits()
    wanted = [Wait() for _ in range(3)]
    places = [("w", "t"), ("w", "u"), ("x", "t")]
    tasks = [asyncio.create_task(waits.share(*place, wait)) for place, wait in zip(places, wanted, strict=True)]
    await asyncio.sleep(0)
    for wait in wanted:
        wait.ended.set_result(None)
    await asyncio.gather(*tasks)
    assert [wait.begun for wait in wanted] == [1, 1, 1]
