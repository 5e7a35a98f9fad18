from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perdure.commands import OnBusy, Partial
from perdure.contract import Limits
from perdure.errors import (
    CommandRefused,
    NotResumable,
    RunConflict,
    SessionClosed,
    UncertainOperations,
)
from perdure.messages import Usage, flaws
from perdure.results import Receipt, TurnStatus
from perdure.session import change
from perdure.turns import REMEMBERED_TURNS
from perdure.views import (
    resume_receipt,
    session_view,
    turn_view,
)
from tests.support.lives import Life
from tests.support.moments import PAY, acting, interrupted, living, uncertain

if TYPE_CHECKING:
    from perdure.contract import AfterStop


# ---- resume -----------------------------------------------------------------------------------------------------


def test_a_resumed_turn_goes_on_in_a_new_run_and_sees_what_was_done() -> None:
    """B30: same turn, what was asked stands there once, and its steps and operations are new ones."""
    life = acting(PAY)
    operation = life.tool_operation(0)
    life.cancel("t2")
    life.interrupt(message="wait")
    life.finish(0, "paid")
    said = life.said
    life.resume("t1", run_id="r2")
    assert resume_receipt(life.session, "t1") == Receipt(turn_id="t1", run_id="r2", disposition="started")
    assert life.said == said
    assert life.wanted == ["model"]
    life.answer("", PAY)
    assert life.tool_operation(0) != operation
    life.start(0)
    life.finish(0, "paid again")
    life.answer("done")
    view = turn_view(life.session, "t1")
    assert view is not None
    assert (view.status, view.steps, view.usage) == (TurnStatus.COMPLETED, 3, Usage(30, 15))
    runs = [(run.run_id, run.outcome) for run in view.runs]
    assert runs == [("run-of-t1", TurnStatus.INTERRUPTED), ("r2", TurnStatus.COMPLETED)]
    assert life.said.count(("user", "ask t1")) == 1


def test_a_turn_can_be_resumed_after_others_have_run_and_as_often_as_it_takes() -> None:
    """B30: also when the session was carried over in between."""
    life = interrupted("t2")
    life.answer("two")
    for _ in range(3):
        life.carry_over()
        life.resume("t1")
        life.interrupt(partial=Partial.DISCARD)
    life.resume("t1")
    life.answer("done")
    assert life.status("t1") is TurnStatus.COMPLETED
    assert session_view(life.session).unfinished is None
    assert not list(flaws(life.session.state.context))


def test_a_resume_while_the_session_is_paused_holds_the_turn_until_it_goes_on() -> None:
    """B19, B30: it is the running one, and none of its steps begins."""
    life = interrupted()
    life.pause()
    life.resume("t1")
    assert life.status("t1") is TurnStatus.RUNNING
    assert life.wanted == []
    life.unpause()
    assert life.wanted == ["model"]


def refusals() -> list[tuple[str, Life, str, type[CommandRefused], str]]:
    """Return the ways in which a turn can't be resumed: what it is, who asks for which, and what is answered."""
    completed = living("t1")
    completed.answer("done")
    busy = interrupted("t2")
    queued = living("t1", "t2")
    older = interrupted("t2")
    older.fail()
    cancelled = interrupted()
    cancelled.cancel("t1")
    newer = interrupted("t2", "t3")
    newer.fail()
    newer.answer("three")
    newer.cancel("t2")
    closed = interrupted()
    closed.close()
    late = acting(PAY)
    late.interrupt()
    late.expire(late.tool_operation(0))
    late.answer("two")
    foreign = acting(PAY)
    foreign.interrupt()
    foreign.expire(foreign.tool_operation(0))
    foreign.fail()
    return [
        ("it is completed", completed, "t1", NotResumable, "it is completed"),
        ("another runs", busy, "t1", NotResumable, "turn 't2' runs"),
        ("it runs", queued, "t1", NotResumable, "it is running"),
        ("it waits", queued, "t2", NotResumable, "it is queued"),
        ("a later one is unfinished", older, "t1", NotResumable, "that is 't2'"),
        ("it is cancelled", cancelled, "t1", NotResumable, "it is cancelled"),
        ("the latest one was cancelled", newer, "t1", NotResumable, "none is left"),
        ("it is suspended", uncertain(), "t1", UncertainOperations, "before turn 't1'.*say so by reconcile"),
        ("the session is closed", closed, "t1", SessionClosed, "open it anew"),
        ("its operation is uncertain", late, "t1", UncertainOperations, "before turn 't1'.*wait until it ends"),
        ("another's operation is uncertain", foreign, "t2", UncertainOperations, "before turn 't2'.*pay"),
    ]


@pytest.mark.parametrize("which", range(len(refusals())), ids=[each[0] for each in refusals()])
def test_only_the_latest_unfinished_turn_can_be_resumed_when_nothing_is_outstanding(which: int) -> None:
    """B30: any other is refused, with the reason."""
    _, life, turn_id, error, reason = refusals()[which]
    before = life.session
    with pytest.raises(error, match=reason):
        life.resume(turn_id)
    assert life.session is before


def test_a_run_id_that_was_used_before_can_not_be_used_to_resume() -> None:
    """B32: nor can one of a run that was resumed be used to submit."""
    life = interrupted("t2")
    life.answer("two")
    for used in ("run-of-t1", "run-of-t2"):
        with pytest.raises(RunConflict, match=used):
            life.resume("t1", run_id=used)
    life.resume("t1", run_id="r2")
    with pytest.raises(RunConflict, match="r2"):
        life.submit(turn_id="t3", run_id="r2")
    with pytest.raises(RunConflict, match="r2"):
        life.submit(turn_id="t3", run_id="r2", on_busy=OnBusy.STEER)


def test_the_turn_that_can_be_resumed_and_the_one_that_holds_the_queue_are_never_forgotten() -> None:
    """B13, B30: however many turns come after it."""
    life = interrupted("t2", after="park")
    done = change(life.session.turns[0], status=TurnStatus.COMPLETED)
    others = tuple(change(done, turn_id=f"o{number}", run_id=f"r{number}") for number in range(REMEMBERED_TURNS))
    life.session = change(life.session, turns=(*life.session.turns, *others))
    life.submit(turn_id="t3")
    assert life.session.record("o0") is None
    life.resume("t1")
    assert life.status("t1") is TurnStatus.RUNNING


# ---- a queue that is held ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["interrupted", "failed"])
@pytest.mark.parametrize("says", ["submit", "agent"])
def test_a_queue_is_parked_by_what_the_submit_or_else_the_agent_says(how: str, says: str) -> None:
    """B14: it takes what comes, and starts none of it."""
    parks = Limits(after_interrupt="park", after_failure="park")
    life = Life(limits=parks if says == "agent" else Limits())
    life.session = change(life.session, limits=life.limits)
    rule: AfterStop | None = "park" if says == "submit" else None
    life.submit("ask t1", turn_id="t1", after_interrupt=rule, after_failure=rule)
    life.submit("ask t2", turn_id="t2")
    if how == "failed":
        life.fail()
    else:
        life.interrupt(partial=Partial.DISCARD)
    life.submit("ask t3", turn_id="t3")
    life.carry_over()
    assert life.wanted == []
    assert session_view(life.session).parked == "t1"
    assert [entry.turn_id for entry in session_view(life.session).queue] == ["t2", "t3"]


def test_what_a_submit_says_of_the_queue_outweighs_its_agent_for_each_ending_by_itself() -> None:
    """B14: a turn that goes on after an interrupt may still park the queue when it fails."""
    life = living(limits=Limits(after_interrupt="park", after_failure="continue"))
    life.submit("ask t1", turn_id="t1", after_interrupt="continue", after_failure="park")
    life.submit("ask t2", turn_id="t2")
    life.interrupt(partial=Partial.DISCARD)
    assert life.status("t2") is TurnStatus.RUNNING
    life.answer("two")
    life.resume("t1")
    life.submit("ask t3", turn_id="t3")
    life.fail()
    assert session_view(life.session).parked == "t1"
    assert life.status("t3") is TurnStatus.QUEUED


def test_a_parked_queue_goes_on_when_its_turn_is_cancelled() -> None:
    """B17: cancelling another that waits changes nothing."""
    life = interrupted("t2", "t3", after="park")
    life.cancel("t2")
    assert life.wanted == []
    life.cancel("t1")
    assert [life.status("t1"), life.status("t3")] == [TurnStatus.CANCELLED, TurnStatus.RUNNING]


def test_a_parked_queue_goes_on_when_its_turn_has_been_resumed_and_is_done() -> None:
    """B30: the turn runs before those that wait."""
    life = interrupted("t2", after="park")
    life.resume("t1")
    assert session_view(life.session).parked is None
    assert [life.status("t1"), life.status("t2")] == [TurnStatus.RUNNING, TurnStatus.QUEUED]
    life.answer("one")
    assert life.status("t2") is TurnStatus.RUNNING


def test_a_turn_that_is_done_or_cancelled_never_parks_the_queue() -> None:
    """B17: only an interrupt or a failure can be gone on from."""
    for ends in ("done", "cancelled"):
        life = living(limits=Limits(after_interrupt="park", after_failure="park"))
        life.submit("ask t1", turn_id="t1")
        life.submit("ask t2", turn_id="t2")
        if ends == "cancelled":
            life.cancel("t1")
        life.answer("done", partial=ends == "cancelled")
        assert life.status("t2") is TurnStatus.RUNNING
