"""A summary in the place of older messages: when it is due, what stays, and what a failure costs."""

from __future__ import annotations

import pytest

from perdure.commands import Partial
from perdure.contract import Limits
from perdure.decide import CallModel, decide, model_call
from perdure.errors import InvalidCommand, SessionBusy, UncertainOperations
from perdure.facts import ModelAnswered
from perdure.messages import Role, Usage, flaws
from perdure.models import Purpose
from perdure.operations import Effect
from perdure.results import TurnStatus
from perdure.session import change
from perdure.views import session_view
from tests.support.invariants import digests_say_what_the_context_is
from tests.support.lives import Call, Life

LOOK = Call("look", Effect.READ)
LIMITS = Limits(compact_over=1000)


def talked(turns: int, *, limits: Limits = LIMITS) -> Life:
    """Return a life with that many turns of about 100 tokens each, whose provider counts none."""
    life = Life(usage=Usage())
    for number in range(turns):
        life.submit(f"{number} {'x' * 300}", turn_id=f"t{number}")
        life.answer(f"answer {number}")
    life.limits = limits
    life.session = change(life.session, limits=limits)
    return life


def summarise(life: Life, text: str = "they talked") -> None:
    """Have the summary that is wanted be made."""
    life.answer(text)


def test_a_context_over_the_limit_is_put_into_a_summary_before_the_next_step() -> None:
    """B62: the newest messages stay, the step sees both, and nothing else begins meanwhile."""
    life = talked(12)
    before = life.session.state.context
    life.submit("and now?", turn_id="now")
    assert life.wanted == ["summary"]
    assert session_view(life.session).compacting
    summarise(life)
    assert life.wanted == ["model"]
    kept = life.session.state.context
    assert life.session.state.summary == "they talked"
    assert 1 < len(kept) < len(before)
    assert [message.text for message in kept] == [message.text for message in (*before, kept[-1])][-len(kept) :]
    assert kept[0].role is Role.USER
    digests_say_what_the_context_is(life.session)
    life.answer("done")
    assert life.status("now") is TurnStatus.COMPLETED


def test_what_is_asked_for_is_the_older_messages_only() -> None:
    """B62: up to a mark that the worker can check."""
    life = talked(12)
    life.submit("and now?", turn_id="now")
    (wish,) = decide(life.session)
    assert isinstance(wish, CallModel)
    call = model_call(life.session, wish)
    assert (call.purpose, call.base) == (Purpose.SUMMARY, call.head)
    assert call.head.position < len(life.session.state.context)


def test_a_call_and_its_results_are_never_parted() -> None:
    """B62: in the middle of a long turn, wherever the limit falls."""
    for over in range(50, 1200, 50):
        life = talked(0, limits=Limits(compact_over=over))
        life.submit("x" * 300, turn_id="long")
        for _ in range(8):
            if life.wanted == ["summary"]:
                summarise(life, "so far")
            life.answer("", LOOK)
            life.start(0)
            life.finish(0, "y" * 300)
        assert not list(flaws(life.session.state.context))
        digests_say_what_the_context_is(life.session)
        assert life.session.state.summary == "so far"
        while life.wanted == ["summary"]:
            summarise(life, "so far")
        assert life.wanted == ["model"], "a context that can't be made smaller stops nobody"


@pytest.mark.parametrize("how", ["failed", "empty", "partial"])
def test_a_summary_that_fails_costs_nothing(how: str) -> None:
    """B62: the session goes on uncompacted, and does not try again before the context has grown."""
    life = talked(12)
    before = life.session.state
    life.submit("and now?", turn_id="now")
    if how == "failed":
        life.fail()
    else:
        life.answer("" if how == "empty" else "half of", partial=how == "partial")
    assert life.session.state.context[: len(before.context)] == before.context
    assert life.session.state.summary == ""
    assert life.wanted == ["model"]
    life.answer("done")
    life.submit("again", turn_id="again")
    assert life.wanted == ["model"]


def test_tokens_that_the_provider_has_counted_are_what_counts() -> None:
    """B62: and what has come since."""
    life = talked(2)
    life.submit("short", turn_id="big")
    operation = life.model_operation
    answer = life.model_answer(operation, "", [LOOK], partial=False)
    life.take(ModelAnswered(life.now(), operation, answer.model_copy(update={"usage": Usage(990, 10)})))
    life.start(0)
    life.finish(0, "z" * 100)
    assert life.wanted == ["summary"]


def test_somebody_may_ask_for_a_summary_at_rest() -> None:
    """B62: all but the last exchange goes into it; who asked is in the transcript."""
    life = talked(3)
    life.compact()
    assert life.wanted == ["summary"]
    summarise(life)
    assert [message.text[:1] for message in life.session.state.context] == ["2", "a"]
    (entry,) = [entry for entry in life.session.transcript if entry.kind == "summary"]
    assert (entry.actor, entry.data["text"], entry.data["messages"]) == ("bob", "they talked", 4)


def test_a_summary_that_is_asked_for_in_a_turn_is_made_before_its_next_step() -> None:
    """B62: the step that is under way sees what it was made for."""
    life = talked(3)
    life.submit("look", turn_id="look")
    life.compact()
    assert life.wanted == ["model"]
    life.answer("", LOOK)
    life.start(0)
    life.finish(0)
    assert life.wanted == ["summary"]
    summarise(life)
    assert life.wanted == ["model"]


def test_there_is_nothing_to_put_into_a_summary_of_nothing() -> None:
    """B62."""
    life = talked(0)
    with pytest.raises(InvalidCommand, match="too little"):
        life.compact()


def test_an_interrupt_while_a_summary_is_made_ends_the_turn_at_once_and_the_summary_is_kept() -> None:
    """B23, B62: it is of messages that are still there."""
    life = talked(12)
    life.submit("and now?", turn_id="now")
    life.interrupt()
    assert life.status("now") is TurnStatus.INTERRUPTED
    summarise(life)
    assert life.session.state.summary == "they talked"
    assert not list(flaws(life.session.state.context))


def test_the_summary_of_a_context_that_was_cleared_meanwhile_is_dropped() -> None:
    """B8, B62."""
    life = talked(3)
    life.compact()
    operation = life.model_operation
    life.clear()
    assert life.wanted == []
    before = life.session
    life.answer("they talked", operation_id=operation)
    assert life.session is before


def test_a_pause_does_not_keep_a_summary_from_being_made_at_rest() -> None:
    """B19, B62: it is no step."""
    life = talked(3)
    life.pause()
    life.compact()
    summarise(life)
    assert life.session.state.summary == "they talked"


def test_a_closed_session_wants_no_summary() -> None:
    """B20."""
    life = talked(3)
    life.compact()
    life.close()
    assert life.wanted == []


def test_a_session_that_is_compacted_rides_through_a_new_run() -> None:
    """B58."""
    life = talked(12)
    life.submit("and now?", turn_id="now")
    life.carry_over()
    assert life.wanted == ["summary"]
    summarise(life)
    life.carry_over()
    assert life.wanted == ["model"]


# ---- clearing -------------------------------------------------------------------------------------------------------


def test_clearing_empties_context_and_summary_and_nothing_else() -> None:
    """B8: the transcript is whole, and what is said later begins a new context."""
    life = talked(3)
    life.compact()
    summarise(life)
    before = life.session
    life.clear()
    after = life.session
    assert (after.state.context, after.state.summary) == ((), "")
    assert after.state.revision == before.state.revision + 1
    assert after.transcript[:-1] == before.transcript
    kept = {"context", "summary", "revision"}
    assert after.state.model_dump(exclude=kept) == before.state.model_dump(exclude=kept)
    digests_say_what_the_context_is(after)


def test_a_running_turn_is_not_cleared_under_its_feet() -> None:
    """B8: refused, or done when it is over, before the next turn begins."""
    life = talked(1)
    life.submit("look", turn_id="look")
    life.submit("next", turn_id="next")
    with pytest.raises(SessionBusy, match="when_idle"):
        life.clear()
    life.clear(when_idle=True)
    assert session_view(life.session).clearing
    life.answer("done")
    assert life.said == [("user", "next")]
    assert not session_view(life.session).clearing


def test_a_turn_whose_words_were_cleared_can_not_be_resumed_and_holds_no_queue() -> None:
    """B8, B30."""
    life = talked(0, limits=Limits(after_interrupt="park"))
    life.submit(turn_id="t1")
    life.submit(turn_id="t2")
    life.interrupt(partial=Partial.DISCARD)
    assert life.session.parked == "t1"
    life.clear()
    assert life.session.unfinished is None
    assert life.status("t2") is TurnStatus.RUNNING


def test_an_uncertain_operation_keeps_the_context_as_it_is() -> None:
    """B6, B8."""
    life = talked(0)
    life.submit(turn_id="t1")
    life.answer("", Call("pay", Effect.ONCE))
    life.start(0)
    life.lose(0)
    with pytest.raises(UncertainOperations):
        life.clear()


def test_clearing_when_idle_waits_for_operations_whose_outcome_is_unknown_too() -> None:
    """B6, B8: also when no turn runs any more."""
    life = talked(0)
    life.submit(turn_id="t1")
    life.answer("", Call("pay", Effect.ONCE))
    life.start(0)
    operation = life.tool_operation(0)
    life.interrupt()
    life.expire(operation)
    said = life.session.state.context
    life.clear(when_idle=True)
    assert life.session.state.context == said
    assert session_view(life.session).clearing
    life.finish(0, operation_id=operation)
    assert life.session.state.context == ()


def test_a_call_whose_outcome_is_unknown_is_not_summed_up_before_it_is_known() -> None:
    """B25, B62: its result is still to take its place; then it may go."""
    life = talked(2)
    life.submit(turn_id="pays")
    life.answer("", Call("pay", Effect.ONCE))
    life.start(0)
    operation = life.tool_operation(0)
    life.interrupt()
    life.expire(operation)
    for number in range(3):
        life.submit(turn_id=f"more{number}")
        life.answer("yes")
    life.compact()
    summarise(life)
    assert life.session.state.context[0].calls, "what came before the call went into the summary, the call did not"
    life.finish(0, "paid after all", operation_id=operation)
    life.compact()
    assert [result.text for result in life.results] == ["paid after all"]
    summarise(life)
    assert life.results == []
    assert not list(flaws(life.session.state.context))
