"""What holds of a session at any moment, whatever has happened to it. `check` looks at all of it but the JSON.

What holds from one moment to the next is in `witness`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.advance import advance
from perdure.commands import OnBusy, Respond, Settlement
from perdure.contract import Finding, ModelAnswer, PageRequest
from perdure.decide import (
    AskTool,
    CallModel,
    CallTool,
    KeepTranscript,
    Wanted,
    Wish,
    deadline,
    decide,
    inquiry,
    model_call,
    tool_invocation,
)
from perdure.facts import (
    CancelRequested,
    Fact,
    FoundOut,
    GraceExpired,
    ModelAnswered,
    ModelFailed,
    ModelStarted,
    OutcomesStated,
    RequestAnswered,
    ResumeRequested,
    TimeExpired,
    ToolFinished,
    ToolLost,
    ToolStarted,
    TurnSubmitted,
)
from perdure.messages import Message, Role, ToolResultBlock, Usage, chain, context_origin, flaws
from perdure.models import Purpose
from perdure.results import TurnError, TurnStatus
from perdure.session import Session
from perdure.turns import Acting, Due, Thinking
from perdure.values import FrozenMap
from perdure.views import (
    cancel_receipt,
    context_page,
    inject_receipt,
    interactions,
    interrupt_receipt,
    pause_receipt,
    reconcile_receipt,
    respond_receipt,
    resume_receipt,
    session_view,
    steer_receipt,
    submit_receipt,
    transcript_page,
    turn_view,
)
from tests.support.strategies import EPOCH

if TYPE_CHECKING:
    from tests.support.witness import Witness

NOBODY = "of nobody at all"
NOTHING = ToolResultBlock(id="x", name="x")
ERROR = TurnError(type="x", message="x")


def check(session: Session, witness: Witness) -> None:
    """Look at everything but the JSON, which takes as long as all the rest.

    Raises:
        AssertionError: something does not hold.
    """
    turns_are_remembered_and_wait_in_order(session, witness)
    at_most_one_turn_runs_and_it_is_the_current_one(session)
    nothing_waits_without_a_reason(session, witness)
    a_running_turn_wants_something_unless_a_pause_holds_it(session)
    the_context_is_valid_input_for_a_model(session)
    digests_say_what_the_context_is(session)
    runs_have_names_of_their_own_and_end_with_their_turn(session)
    uncertain_operations_are_told_once_and_a_suspended_turn_has_one(session)
    tokens_are_counted_once(session, witness)
    everything_can_be_looked_at(session)
    what_is_of_nobody_changes_nothing(session, witness)
    messages_are_known_to_be_their_turns(session, witness)


def check_what_tells_nothing_apart(before: Session, session: Session, witness: Witness) -> None:
    """Look at what a normal form of the session leaves out, which has to be right after every step.

    Raises:
        AssertionError: something does not hold.
    """
    assert session.turn_count == len(witness.submits)
    runs_have_names_of_their_own_and_end_with_their_turn(session)
    tokens_are_counted_once(session, witness)
    messages_are_known_to_be_their_turns(session, witness)
    if (session.state.context, session.known) == (before.state.context, before.known):
        assert session.head == before.head
    else:
        digests_say_what_the_context_is(session)


def messages_are_known_to_be_their_turns(session: Session, witness: Witness) -> None:
    """A rollback takes just those that are the turn's."""
    for turn in (session.current, session.unfinished):
        if turn is not None:
            owned = list(zip(session.state.context, witness.owners, strict=True))
            there = {message.id for message, _ in owned}  # others went into a summary
            mine = [message_id for message_id in turn.message_ids if message_id in there]
            assert mine == [message.id for message, owner in owned if owner == turn.turn_id]


def turns_are_remembered_and_wait_in_order(session: Session, witness: Witness) -> None:
    """Each accepted turn is known; those that wait do so as they came, the urgent ones before."""
    accepted = [submit.turn_id for submit in witness.submits]
    assert [record.turn_id for record in session.turns] == accepted
    assert session.turn_count == len(accepted)
    waiting = [turn.turn_id for turn in session.queue]
    queued = [record.turn_id for record in session.turns if record.status is TurnStatus.QUEUED]
    urgent = [turn_id for turn_id in reversed(queued) if witness.urgent(turn_id)]
    assert waiting == [*urgent, *(turn_id for turn_id in queued if turn_id not in urgent)]
    assert len(waiting) <= session.limits.queue_limit
    assert [one.turn_id for one in session.joined] == list(witness.joined)


def at_most_one_turn_runs_and_it_is_the_current_one(session: Session) -> None:
    """And records say the same of turns as the session does."""
    running = [record.turn_id for record in session.turns if record.status is TurnStatus.RUNNING]
    suspended = [record.turn_id for record in session.turns if record.status is TurnStatus.SUSPENDED]
    current = session.current
    assert running == ([] if session.running is None else [session.running.turn_id])
    assert suspended == ([current.turn_id] if current is not None and current.suspended else [])
    stopped = {
        record.turn_id for record in session.turns if record.status in (TurnStatus.INTERRUPTED, TurnStatus.FAILED)
    }
    kept = session.unfinished
    assert session.parked is None or (kept is not None and kept.turn_id == session.parked), "only that can be resumed"
    assert kept is None or (kept.turn_id in stopped and not kept.suspended and isinstance(kept.phase, Due))


def nothing_waits_without_a_reason(session: Session, witness: Witness) -> None:
    """Turns wait for the current one, a pause or the turn that holds the queue; input for a step that is to come."""
    if session.current is None and session.queue and not session.paused and session.compaction is None:
        assert session.parked is not None, "turns wait for nothing"
        assert not witness.urgent(session.queue[0].turn_id), "an urgent turn waits for nothing"
    if session.closing:
        assert session.queue == ()
    steered = {aside.turn_id for aside in session.asides} - {None}
    assert steered <= ({session.current.turn_id} if session.current else set())
    if session.current is not None and isinstance(session.current.phase, Thinking) and not session.current.stop:
        assert session.current.phase.started or session.asides == (), "input waits for a call that could see it"


def a_running_turn_wants_something_unless_a_pause_holds_it(session: Session) -> None:
    """And what is wanted is the running turn's, to run or, when the turn is stopped, to settle."""
    running = session.running
    wishes = decide(session)
    held = running is not None and isinstance(running.phase, Due)
    assert session.paused or session.compaction or not held, "a turn is held by nothing"
    aside = [wish for wish in wishes if isinstance(wish, AskTool) or _sums_up(wish)]
    asked = {wish.about for wish in aside if isinstance(wish, AskTool)}
    lost = (
        isinstance(running.phase, Acting) and any(c.operation_id in asked for c in running.phase.calls)
        if running
        else 0
    )
    assert bool(len(wishes) > len(aside) or lost) == (running is not None and not held)
    for wish in wishes:
        if wish in aside:
            assert wish.wanted is Wanted.RUN
        else:
            assert running is not None
            assert wish.turn_id == running.turn_id
            assert wish.wanted is (Wanted.RUN if running.stop is None else Wanted.SETTLE)
        _has_a_payload(session, wish)
    due = deadline(session)
    waits = session.current is not None and session.current.suspended
    known = {request.request_id for request in session.current.requests} if session.current and waits else set[str]()
    if running is not None and not held and running.stop is None:
        known = {running.run_id}
    assert due is None or due.about in known


def _sums_up(wish: Wish) -> bool:
    return isinstance(wish, CallModel) and wish.purpose is Purpose.SUMMARY


def _has_a_payload(session: Session, wish: Wish) -> None:
    match wish:
        case CallModel() if wish.purpose is Purpose.SUMMARY:
            call = model_call(session, wish)
            assert call.head == call.base
            assert 0 < call.head.position <= len(session.state.context)
        case CallModel():
            call = model_call(session, wish)
            assert call.head == session.mark
            assert (*session.state.context[: call.base.position], *(call.delta or ())) == session.state.context
        case CallTool():
            assert tool_invocation(session, wish).call_id == wish.plan.call_id
        case AskTool():
            assert inquiry(session, wish) is not None
        case KeepTranscript():
            assert session.archived == wish.call.after < wish.call.upto == session.last_seq


def the_context_is_valid_input_for_a_model(session: Session) -> None:
    """Only the calls that are under way have no result yet."""
    context, current = session.state.context, session.current
    problems = list(flaws(context))
    if current is not None and isinstance(current.phase, Acting):
        assert problems == [f"no result for {', '.join(call.id for call in context[-1].calls)}"]
        assert [call.plan.call_id for call in current.phase.calls] == [call.id for call in context[-1].calls]
    else:
        assert problems == []
    ids = [message.id for message in context]
    assert len(set(ids)) == len(ids)


def digests_say_what_the_context_is(session: Session) -> None:
    """Of all of it, and of the part that a worker has."""
    digests = [context_origin(session.state.summary)]
    for message in session.state.context:
        digests.append(chain(digests[-1], message))
    assert session.head == digests[-1]
    assert session.known.position < len(digests)
    assert session.known.digest == digests[session.known.position]


def runs_have_names_of_their_own_and_end_with_their_turn(session: Session) -> None:
    """A turn's last run is over when the turn is settled, the ones before are in any case."""
    runs = [run.run_id for record in session.turns for run in record.runs]
    assert len(set(runs)) == len(runs)
    for record in session.turns:
        for run in record.runs:
            over = run is not record.runs[-1] or record.status.settled
            assert (run.ended_at is not None) == (run.outcome is not None) == over
        assert bool(record.runs) or record.status in (TurnStatus.QUEUED, TurnStatus.CANCELLED)
    assert len(session.transcript) <= session.last_seq
    first = session.last_seq - len(session.transcript) + 1
    assert [entry.seq for entry in session.transcript] == list(range(first, session.last_seq + 1))


def uncertain_operations_are_told_once_and_a_suspended_turn_has_one(session: Session) -> None:
    """And none of them is wanted. A suspended turn waits for somebody, and each request is about a call."""
    ids = [one.operation_id for one in session.uncertain]
    assert len(set(ids)) == len(ids)
    assert not set(ids) & {wish.operation_id for wish in decide(session)}
    current = session.current
    requests = interactions(session)
    assert bool(requests) == (current is not None and current.suspended)
    assert all(request.calls for request in requests)
    assert len({request.request_id for request in requests} | {one.request_id for one in session.answered}) == len(
        requests
    ) + len(session.answered), "one request is asked, or answered, twice"
    lost = {call.operation_id for request in requests if request.kind == "reconciliation" for call in request.calls}
    assert lost <= set(ids)
    if any(request.kind == "approval" for request in requests):
        assert len(requests) == 1
        assert not [wish for wish in decide(session) if isinstance(wish, CallTool)], "a call runs while another asks"


def tokens_are_counted_once(session: Session, witness: Witness) -> None:
    """The session's are its turns', and those of the answers that were wanted."""
    total = Usage()
    for record in session.turns:
        total += record.usage
    assert session.usage == witness.used == total + witness.summed


def everything_can_be_looked_at(session: Session) -> None:
    """Whatever the state, each view and receipt can be made, and says what is true."""
    view = session_view(session)
    view.model_dump_json()
    assert view.waiting_inputs == len(session.asides)
    assert (view.active is None) == (session.running is None)
    for record in session.turns[-1:]:
        turn = turn_view(session, record.turn_id)
        assert turn is not None
        assert turn.result().status is record.status
        assert submit_receipt(session, record.turn_id) is not None
        assert submit_receipt(session, record.turn_id, repeated=True) is not None
        assert resume_receipt(session, record.turn_id).run_id is not None
        assert cancel_receipt(session, record.turn_id).run_id is not None
        assert respond_receipt(session, record.turn_id).run_id is not None
        assert reconcile_receipt(session, record.turn_id).run_id is not None
    for one in session.joined[-1:]:
        receipt = submit_receipt(session, one.turn_id)
        assert receipt is not None
        assert (receipt.turn_id, receipt.disposition) == (one.into, "steered")
    assert turn_view(session, NOBODY) is None
    assert (steer_receipt(session) is None) == (session.steerable is None)
    assert bool(inject_receipt(session).turn_id) == (session.steerable is not None)
    assert pause_receipt(session).paused == session.paused
    assert interrupt_receipt(session).interrupted == (session.running is not None)
    asked = PageRequest(after=session.known.position, digest=session.known.digest)
    assert context_page(session, asked).start == session.known.position
    assert transcript_page(session, PageRequest(after=3)).last == session.last_seq


def what_is_of_nobody_changes_nothing(session: Session, witness: Witness) -> None:
    """Facts of operations, runs and turns that are not there, repeated ones, late ones: any fact in any state."""
    late = witness.over - {one.operation_id for one in session.uncertain}
    facts: list[Fact] = [
        *_reports(min(late, default=NOBODY)),
        TimeExpired(EPOCH, NOBODY),
        RequestAnswered(EPOCH, "r", Respond(request_id=NOBODY, approve=True)),
        OutcomesStated(EPOCH, "r", FrozenMap({NOBODY: Settlement(outcome="happened")}), "why"),
        FoundOut(EPOCH, NOBODY, Finding(outcome="did_not_happen")),
        ResumeRequested(EPOCH, NOBODY, "r"),
        CancelRequested(EPOCH, NOBODY),
        *(_again(turn_id) for turn_id in (*(one.turn_id for one in witness.submits[-1:]), *witness.joined[-1:])),
    ]
    for fact in facts:
        assert advance(session, fact) is session, f"what should mean nothing changed something: {fact}"


def _again(turn_id: str) -> TurnSubmitted:
    return TurnSubmitted(EPOCH, turn_id, "r", (), OnBusy.ROLLBACK, FrozenMap())


def _reports(operation_id: str) -> tuple[Fact, ...]:
    return (
        ModelStarted(EPOCH, operation_id),
        ModelAnswered(EPOCH, operation_id, ANSWER),
        ModelFailed(EPOCH, operation_id, ERROR),
        ToolStarted(EPOCH, operation_id),
        ToolFinished(EPOCH, operation_id, NOTHING),
        ToolLost(EPOCH, operation_id, "why"),
        GraceExpired(EPOCH, operation_id),
    )


ANSWER = ModelAnswer(message=Message(id="m", role=Role.ASSISTANT, content="late"))


def a_session_is_its_json(session: Session) -> None:
    """What continues as new is the same session, and the same value."""
    assert Session.model_validate(session.model_dump(mode="json")) == session
