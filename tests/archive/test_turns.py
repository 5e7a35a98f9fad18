"""A turn as its entries tell of it is the turn that the session knew."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant

from perdure.client.remembering import turn_of
from perdure.commands import CancelTurn
from perdure.operations import Effect
from perdure.results import TurnStatus, TurnView
from perdure.views import turn_view
from tests.core.test_session_machine import SessionMachine
from tests.support.lives import Call, Life


def retold(life: Life, turn_id: str) -> TurnView | None:
    """Return a turn as the archive would tell of it."""
    return turn_of(turn_id, [entry for entry in life.session.transcript if entry.turn_id == turn_id])


class RetellingMachine(SessionMachine):
    """Any life: each turn of it is told in full by what is in the transcript."""

    @invariant()
    def each_turn_is_told_by_its_entries(self) -> None:
        for record in self.session.turns:
            if record.status.settled:
                assert retold(self.life, record.turn_id) == turn_view(self.session, record.turn_id)


TestRetellingMachine = pytest.mark.timeout(600)(RetellingMachine.TestCase)
TestRetellingMachine.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)


def test_a_failed_turn_that_was_cancelled_keeps_error_steps_and_usage() -> None:
    life = Life()
    life.submit(turn_id="t-1")
    life.answer("", Call())
    life.finish(0)
    life.fail()
    life.command(CancelTurn(turn_id="t-1"))
    told = retold(life, "t-1")
    assert told == turn_view(life.session, "t-1")
    assert told is not None
    assert (told.status, told.steps, told.usage.input_tokens) == (TurnStatus.CANCELLED, 2, 10)
    assert told.error is not None


def test_an_outcome_that_nobody_knew_is_no_error_of_the_turn() -> None:
    life = Life()
    life.submit(turn_id="t-1")
    life.answer("", Call("pay", Effect.ONCE))
    life.lose(0)
    told = retold(life, "t-1")
    assert told == turn_view(life.session, "t-1")
    assert told is not None
    assert (told.status, told.error) == (TurnStatus.SUSPENDED, None)


def test_entries_that_do_not_tell_how_a_turn_began_tell_nothing() -> None:
    life = Life()
    life.submit(turn_id="t-1")
    life.answer("hello")
    entries = [entry for entry in life.session.transcript if entry.kind != "input"]
    assert turn_of("t-1", entries) is None
    assert turn_of("t-1", []) is None
