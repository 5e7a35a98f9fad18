from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perdure.commands import OnBusy
from perdure.errors import CommandRefused, QueueFull, RollbackRefused, SessionBusy, TurnConflict, TurnNotFound
from perdure.facts import TurnSubmitted
from perdure.messages import INTERRUPTED_TEXT, TextBlock, flaws
from perdure.operations import Effect
from perdure.results import Receipt, SessionStatus, TurnStatus
from perdure.session import change
from perdure.turns import REMEMBERED_TURNS, Joined
from perdure.values import FrozenMap
from perdure.views import session_view, submit_receipt, turn_view
from tests.support.lives import Call, Life

if TYPE_CHECKING:
    from collections.abc import Callable

PAY = Call("pay", Effect.ONCE)
LOOK = Call("look", Effect.READ)


def running() -> Life:
    """One turn runs, and two wait."""
    life = Life()
    for turn_id in ("t1", "t2", "t3"):
        life.submit(f"ask {turn_id}", turn_id=turn_id)
    return life


def suspended() -> Life:
    """One turn waits for somebody to settle an operation, and two wait for it."""
    life = running()
    life.answer("", PAY)
    life.start(0)
    life.lose(0)
    return life


def paused() -> Life:
    """Nothing runs, since the session is paused, and two wait."""
    life = Life()
    life.pause()
    for turn_id in ("t2", "t3"):
        life.submit(f"ask {turn_id}", turn_id=turn_id)
    return life


def parked() -> Life:
    """One turn was interrupted and holds the queue, in which two wait."""
    life = Life()
    life.submit("ask t1", turn_id="t1", after_interrupt="park")
    for turn_id in ("t2", "t3"):
        life.submit(f"ask {turn_id}", turn_id=turn_id)
    life.interrupt()
    life.answer("", partial=True)
    return life


def places(life: Life) -> str:
    """Return where each turn is, and the order in which those that wait do."""
    where = [f"{record.turn_id} {record.status.value}" for record in life.session.turns if record.status != "queued"]
    return ", ".join([*where, " ".join(["queue:", *(turn.turn_id for turn in life.session.queue)])])


TABLE: list[tuple[Callable[[], Life], OnBusy, str | type[CommandRefused]]] = [
    (running, OnBusy.ENQUEUE, "t1 running, queue: t2 t3 t4"),
    (running, OnBusy.REJECT, SessionBusy),
    (running, OnBusy.INTERRUPT, "t1 running, queue: t4 t2 t3"),  # until its model call has handed back what it said
    (running, OnBusy.STEER, "t1 running, queue: t2 t3"),
    (running, OnBusy.LATEST, "t1 running, t2 cancelled, t3 cancelled, queue: t4"),
    (running, OnBusy.ROLLBACK, "t1 cancelled, t4 running, queue: t2 t3"),
    (suspended, OnBusy.ENQUEUE, "t1 suspended, queue: t2 t3 t4"),
    (suspended, OnBusy.REJECT, SessionBusy),
    (suspended, OnBusy.INTERRUPT, "t1 interrupted, t4 running, queue: t2 t3"),
    (suspended, OnBusy.STEER, "t1 suspended, queue: t2 t3 t4"),
    (suspended, OnBusy.LATEST, "t1 suspended, t2 cancelled, t3 cancelled, queue: t4"),
    (suspended, OnBusy.ROLLBACK, RollbackRefused),
    (paused, OnBusy.ENQUEUE, "queue: t2 t3 t4"),
    (paused, OnBusy.REJECT, SessionBusy),
    (paused, OnBusy.INTERRUPT, "queue: t4 t2 t3"),
    (paused, OnBusy.STEER, "queue: t2 t3 t4"),
    (paused, OnBusy.LATEST, "t2 cancelled, t3 cancelled, queue: t4"),
    (paused, OnBusy.ROLLBACK, "queue: t4 t2 t3"),
    (parked, OnBusy.ENQUEUE, "t1 interrupted, queue: t2 t3 t4"),
    (parked, OnBusy.REJECT, SessionBusy),
    (parked, OnBusy.INTERRUPT, "t1 interrupted, t4 running, queue: t2 t3"),
    (parked, OnBusy.STEER, "t1 interrupted, queue: t2 t3 t4"),
    (parked, OnBusy.LATEST, "t1 interrupted, t2 cancelled, t3 cancelled, queue: t4"),
    (parked, OnBusy.ROLLBACK, "t1 interrupted, t4 running, queue: t2 t3"),
    *((Life, policy, "t4 running, queue:") for policy in OnBusy),
]


@pytest.mark.parametrize(("make", "policy", "expected"), TABLE)
def test_each_policy_does_what_it_says_in_each_way_of_being_busy(
    make: Callable[[], Life], policy: OnBusy, expected: str | type[CommandRefused]
) -> None:
    """B14: with two that wait; a session that is not busy runs the turn at once, whatever the policy."""
    life = make()
    before = life.session
    if isinstance(expected, str):
        life.submit("ask t4", turn_id="t4", on_busy=policy)
        assert places(life) == expected
    else:
        with pytest.raises(expected):
            life.submit("ask t4", turn_id="t4", on_busy=policy)
        assert life.session is before


@pytest.mark.parametrize("policy", [OnBusy.ENQUEUE, OnBusy.REJECT, OnBusy.INTERRUPT, OnBusy.LATEST, OnBusy.ROLLBACK])
def test_a_turn_that_anybody_can_still_resume_keeps_nobody_waiting(policy: OnBusy) -> None:
    """B14: a session whose last turn was interrupted or has failed is not busy."""
    life = Life()
    life.submit(turn_id="t1")
    life.fail()
    life.submit(turn_id="t4", on_busy=policy)
    assert places(life) == "t1 failed, t4 running, queue:"


# ---- interrupt --------------------------------------------------------------------------------------------------


def test_a_turn_that_interrupts_runs_next_and_what_was_said_until_then_is_kept() -> None:
    """B14: before those that wait already."""
    life = running()
    life.submit("ask t4", turn_id="t4", on_busy=OnBusy.INTERRUPT)
    assert life.wanted == ["model?"]
    life.answer("as I was say", partial=True)
    assert places(life) == "t1 interrupted, t4 running, queue: t2 t3"
    assert life.said == [("user", "ask t1"), ("assistant", "as I was say"), ("user", "ask t4")]


def test_of_two_turns_that_interrupt_the_later_one_is_the_more_urgent() -> None:
    """B14: the first waits until the second is done; both go before the rest."""
    life = running()
    life.submit(turn_id="t4", on_busy=OnBusy.INTERRUPT)
    life.submit(turn_id="t5", on_busy=OnBusy.INTERRUPT)
    life.answer("", partial=True)
    assert places(life) == "t1 interrupted, t5 running, queue: t4 t2 t3"
    life.answer("five")
    assert places(life) == "t1 interrupted, t4 running, t5 completed, queue: t2 t3"


def test_a_turn_that_interrupts_waits_for_tools_that_may_have_an_effect() -> None:
    """B14, B25: their results are kept, as with any interrupt."""
    life = running()
    life.answer("", PAY)
    life.start(0)
    life.submit(turn_id="t4", on_busy=OnBusy.INTERRUPT)
    assert life.wanted == ["pay?"]
    life.finish(0, "paid")
    assert places(life) == "t1 interrupted, t4 running, queue: t2 t3"
    assert [result.text for result in life.results] == ["paid"]


def test_interrupting_a_suspended_turn_makes_nothing_certain() -> None:
    """B14: its operation is as uncertain as before, and its call has a result that says so."""
    life = suspended()
    (operation,) = life.session.uncertain
    life.submit(turn_id="t4", on_busy=OnBusy.INTERRUPT)
    assert life.session.uncertain == (operation,)
    assert life.session.status is SessionStatus.NEEDS_RECONCILIATION
    assert "unknown" in life.results[0].text
    assert not list(flaws(life.session.state.context))


def test_an_urgent_turn_passes_a_parked_queue_and_leaves_it_parked() -> None:
    """B14: it took the place of the turn that holds the queue, and the others have to wait still."""
    life = parked()
    life.submit(turn_id="t4", on_busy=OnBusy.INTERRUPT)
    life.answer("done")
    assert places(life) == "t1 interrupted, t4 completed, queue: t2 t3"
    assert session_view(life.session).parked == "t1"
    life.cancel("t1")
    assert life.status("t2") is TurnStatus.RUNNING


# ---- steer ------------------------------------------------------------------------------------------------------


def test_a_submit_that_steers_is_from_then_on_the_turn_that_it_joined() -> None:
    """B14, B13: the receipt says which; the same submit again is recognised, another input is a conflict."""
    life = running()
    life.submit("and this", turn_id="t4", on_busy=OnBusy.STEER)
    receipt = Receipt(turn_id="t1", run_id="run-of-t1", disposition="steered")
    assert submit_receipt(life.session, "t4") == receipt
    life.carry_over()
    before = life.session
    life.submit("and this", turn_id="t4", on_busy=OnBusy.STEER)
    assert life.session is before
    with pytest.raises(TurnConflict):
        life.submit("something else", turn_id="t4")
    life.answer("first")
    assert life.said[-1] == ("user", "and this")
    life.answer("second")
    view = turn_view(life.session, "t4")
    assert view is not None
    assert (view.turn_id, view.status, view.output) == ("t1", TurnStatus.COMPLETED, "second")
    assert view.input == (TextBlock("ask t1"),)
    assert submit_receipt(life.session, "t4", repeated=True) == change(receipt, disposition="settled")


def test_a_submit_that_joined_a_turn_can_be_neither_cancelled_nor_resumed_by_itself() -> None:
    """B14, B17: the refusal names the turn that it joined."""
    life = running()
    life.submit("and this", turn_id="t4", on_busy=OnBusy.STEER)
    with pytest.raises(TurnNotFound, match="joined turn 't1'"):
        life.cancel("t4")
    with pytest.raises(TurnNotFound, match="joined turn 't1'"):
        life.resume("t4")


def test_nothing_joins_a_turn_that_is_being_stopped() -> None:
    """B14: it would never be seen, so that it waits as a turn of its own."""
    life = running()
    life.interrupt()
    life.submit("and this", turn_id="t4", on_busy=OnBusy.STEER)
    assert places(life) == "t1 running, queue: t2 t3 t4"


def test_a_submit_that_joined_is_forgotten_with_its_turn() -> None:
    """B13: its turn id can be used again then, and means the new turn."""
    life = Life()
    life.submit(turn_id="t1")
    life.submit("and this", turn_id="t2", on_busy=OnBusy.STEER)
    life.answer("one")
    life.answer("two")
    done = life.session.turns[0]
    others = tuple(change(done, turn_id=f"o{number}", run_id=f"r{number}") for number in range(REMEMBERED_TURNS - 1))
    life.session = change(life.session, turns=(done, *others))
    life.submit(turn_id="t3")
    assert life.session.find("t1") is None
    assert life.session.joined == ()
    life.submit("and this", turn_id="t2")
    assert life.status("t2") is TurnStatus.QUEUED
    receipt = submit_receipt(life.session, "t2")
    assert receipt is not None
    assert receipt.disposition == "queued"


def test_the_joined_submits_that_a_session_remembers_are_bounded() -> None:
    """B13: like the turns."""
    life = running()
    joined = tuple(Joined(turn_id=f"j{number}", into="t1", input_digest="") for number in range(REMEMBERED_TURNS))
    life.session = change(life.session, joined=joined)
    life.submit(turn_id="t4", on_busy=OnBusy.STEER)
    assert len(life.session.joined) == REMEMBERED_TURNS
    assert life.session.joined[-1].turn_id == "t4"


# ---- latest -----------------------------------------------------------------------------------------------------


def test_the_latest_turn_takes_the_place_of_all_that_wait_also_of_urgent_ones() -> None:
    """B14: the running one goes on; there is always room, since the others are gone."""
    life = running()
    life.session = change(life.session, limits=change(life.session.limits, queue_limit=2))
    with pytest.raises(QueueFull):
        life.submit(turn_id="t4")
    life.submit("ask t4", turn_id="t4", on_busy=OnBusy.LATEST)
    life.submit("ask t5", turn_id="t5", on_busy=OnBusy.INTERRUPT)
    life.submit("ask t6", turn_id="t6", on_busy=OnBusy.LATEST)
    life.answer("", partial=True)
    assert life.status("t6") is TurnStatus.RUNNING
    assert {life.status(turn_id) for turn_id in ("t2", "t3", "t4", "t5")} == {TurnStatus.CANCELLED}
    assert life.said == [("user", "ask t1"), ("assistant", INTERRUPTED_TEXT), ("user", "ask t6")]


# ---- rollback ---------------------------------------------------------------------------------------------------


def test_a_rollback_takes_all_of_the_turn_out_of_the_context_and_nothing_else() -> None:
    """B14: its question, answers, results and what it was steered by; what was injected belongs to no turn."""
    life = Life()
    life.submit("ask t0", turn_id="t0")
    life.answer("zero")
    before = life.session.state.context
    life.submit("ask t1", turn_id="t1")
    life.answer("let me see", LOOK)
    life.start(0)
    life.steer("and this")
    life.inject("by the way")
    life.finish(0, "seen")
    assert len(life.session.state.context) == len(before) + 5
    life.submit("ask t2", turn_id="t2", on_busy=OnBusy.ROLLBACK)
    assert life.session.state.context[:2] == before
    assert life.said[2:] == [("user", "by the way"), ("user", "ask t2")]
    assert places(life) == "t0 completed, t1 cancelled, t2 running, queue:"
    assert "change" in life.kinds("t1")


def test_a_rollback_forgets_what_the_turn_was_steered_by_and_had_not_seen() -> None:
    """B14: the next turn does not see it; what was injected it does."""
    life = running()
    life.steer("and this")
    life.inject("by the way")
    life.submit("ask t4", turn_id="t4", on_busy=OnBusy.ROLLBACK)
    assert life.said == [("user", "by the way"), ("user", "ask t4")]
    assert life.session.asides == ()


def test_a_rollback_stops_tools_that_only_read_and_their_late_results_change_nothing() -> None:
    """B14: also in the middle of a step."""
    life = running()
    life.answer("", LOOK, Call("look"))
    life.start(0)
    operation = life.tool_operation(0)
    life.submit("ask t4", turn_id="t4", on_busy=OnBusy.ROLLBACK)
    assert life.wanted == ["model"]
    before = life.session
    life.finish(0, "seen", operation_id=operation)
    assert life.session is before
    assert life.said == [("user", "ask t4")]


@pytest.mark.parametrize("effect", [Effect.ONCE, Effect.IDEMPOTENT])
@pytest.mark.parametrize("later", ["at once", "when it has ended", "after a resume"])
def test_a_turn_that_has_used_a_tool_with_an_effect_is_not_rolled_back(effect: Effect, later: str) -> None:
    """B14: what was done can't be unsaid; it counts from when the tool was handed out, also in an earlier run."""
    life = running()
    life.answer("", Call("send", effect))
    life.submit(turn_id="first", on_busy=OnBusy.STEER)
    life.start(0)
    if later != "at once":
        life.finish(0)
    if later == "after a resume":
        life.pause()
        life.interrupt()
        life.answer("", partial=True)
        life.resume("t1")
    before = life.session
    with pytest.raises(RollbackRefused, match="on_busy=interrupt"):
        life.submit(turn_id="t4", on_busy=OnBusy.ROLLBACK)
    assert life.session is before


def test_a_turn_whose_tools_were_never_handed_out_can_be_rolled_back() -> None:
    """B14: nothing can have happened."""
    life = running()
    life.answer("", PAY)
    life.submit(turn_id="t4", on_busy=OnBusy.ROLLBACK)
    assert life.status("t1") is TurnStatus.CANCELLED


def test_a_rollback_that_nobody_checked_is_an_interrupt_once_a_tool_had_an_effect() -> None:
    """B14: whatever comes as a fact, what was done stays in the context."""
    life = running()
    life.answer("", PAY)
    life.start(0)
    content = (TextBlock("ask t4"),)
    life.take(TurnSubmitted(life.now(), "t4", "r4", content, OnBusy.ROLLBACK, FrozenMap()))
    assert life.wanted == ["pay?"]
    life.finish(0, "paid")
    assert life.status("t1") is TurnStatus.INTERRUPTED
    assert life.said[0] == ("user", "ask t1")


@pytest.mark.parametrize("seen", [False, True])
def test_after_a_rollback_the_digests_are_those_of_what_is_left(seen: bool) -> None:  # noqa: FBT001
    """B14, B57: a worker that had read on is known to have it only up to what was taken out."""
    life = Life()
    life.submit("ask t0", turn_id="t0")
    life.answer("zero")
    life.submit("ask t1", turn_id="t1")
    if seen:
        life.answer("", LOOK)
    life.eager = False
    left = life.session
    life.submit("ask t2", turn_id="t2", on_busy=OnBusy.ROLLBACK)
    assert life.session.known.position == 2
    context = life.session.state.context
    digests_of(life)
    assert [message.text for message in context] == ["ask t0", "zero", "ask t2"]
    assert life.session.state.revision > left.state.revision


def test_a_rollback_of_a_turn_that_was_resumed_takes_out_what_it_said_in_both_runs() -> None:
    """B14, B30: and leaves what another turn said in between."""
    life = Life()
    life.submit("ask t1", turn_id="t1")
    life.interrupt(message="wait")
    life.answer("as I was say", partial=True)
    life.submit("ask t2", turn_id="t2")
    life.answer("two")
    life.resume("t1")
    life.answer("", LOOK)
    life.submit("ask t3", turn_id="t3", on_busy=OnBusy.ROLLBACK)
    assert life.said == [("user", "ask t2"), ("assistant", "two"), ("user", "ask t3")]
    assert life.session.known.position == 0
    digests_of(life)


def digests_of(life: Life) -> None:
    """Check that the digests are those of the context."""
    fresh = type(life.session).new(life.session.key, life.session.state)
    assert life.session.head == fresh.head
    shorter = change(life.session.state, context=life.session.state.context[: life.session.known.position])
    assert life.session.known == type(life.session).new(life.session.key, shorter).known
