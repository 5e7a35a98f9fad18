from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from perdure.commands import OnBusy, Partial
from perdure.contract import Limits, PageRequest
from perdure.decide import CallModel, CallTool, Wanted, Wish, decide, model_call, tool_invocation
from perdure.errors import CommandRefused, QueueFull, RunConflict, SessionBusy, SessionClosed, StaleRun, TurnConflict
from perdure.facts import (
    Fact,
    GraceExpired,
    ModelAnswered,
    ModelFailed,
    ToolFinished,
    ToolLost,
    ToolStarted,
    TurnSubmitted,
)
from perdure.messages import ToolResultBlock, Usage, chain, chain_all, context_origin, flaws
from perdure.operations import Effect
from perdure.results import TurnError, TurnStatus
from perdure.session import Session, change
from perdure.turns import Acting, Thinking
from perdure.values import FrozenMap
from perdure.views import context_page, interrupt_receipt, session_view, submit_receipt, transcript_page, turn_view
from tests.support.lives import KEY, Call, Life

if TYPE_CHECKING:
    from perdure.state import AgentState

TURNS = [f"t{number}" for number in range(12)]
RUNS = [None, None, None, "r0", "r1", "a used one"]

MOVES = {
    None: {TurnStatus.QUEUED, TurnStatus.RUNNING},
    TurnStatus.QUEUED: {TurnStatus.RUNNING, TurnStatus.CANCELLED},
    TurnStatus.RUNNING: {
        TurnStatus.COMPLETED,
        TurnStatus.SUSPENDED,
        TurnStatus.INTERRUPTED,
        TurnStatus.FAILED,
        TurnStatus.CANCELLED,
    },
    TurnStatus.SUSPENDED: {TurnStatus.CANCELLED},
}
"""Where a turn may go from where it is, with the commands that the machine knows. Several moves may come at once."""

CALLS = st.builds(
    Call,
    tool=st.sampled_from(["pay", "look"]),
    effect=st.sampled_from(Effect),
    refusal=st.sampled_from([None, None, None, "no"]),
    planned=st.sampled_from([True, True, True, True, False]),
)

TEXTS = st.sampled_from(["", "yes", "no"])
MODEL_ENDS = st.sampled_from(["whole", "whole", "whole", "partial", "failed"])
TOOL_ENDS = st.sampled_from(["result", "result", "lost"])


def reachable(start: TurnStatus | None) -> set[TurnStatus | None]:
    """Return every status that can follow by any number of moves, the present one included."""
    found: set[TurnStatus | None] = {start}
    for status in MOVES.get(start, set()):
        found |= reachable(status)
    return found


class SessionMachine(RuleBasedStateMachine):
    """Any order of commands and reports, with a driver that does what the workflow does with what `decide` wants."""

    def __init__(self) -> None:
        super().__init__()
        self.life = Life(limits=Limits(max_steps=3, queue_limit=2))
        self.life.session = change(self.life.session, limits=self.life.limits)
        self.flights: dict[str, Wish] = {}
        self.inputs: dict[str, str] = {}
        self.statuses: dict[str, TurnStatus] = {}
        self.starts: list[str] = []
        self.wanted_before: set[str] = set()
        self.gone: set[str] = set()
        self.facts: list[Fact] = []
        self.last_state: AgentState = self.session.state
        self.used = Usage()

    @property
    def session(self) -> Session:
        return self.life.session

    def take(self, fact: Fact) -> None:
        self.facts.append(fact)
        running, before = self.session.running, set(self.wanted_before)
        self.life.take(fact)
        self.observe()
        if running is not None and running.stop is None:
            # What nobody stopped is wanted until its own end is reported.
            assert before - self.wanted_before <= {getattr(fact, "operation_id", None)}

    def observe(self) -> None:
        """Look at every state that the session goes through, also between two facts of one rule."""
        wanted = [wish.operation_id for wish in decide(self.session)]
        assert len(set(wanted)) == len(wanted)
        assert not self.gone & set(wanted), "an operation that was over is wanted again"
        self.gone |= self.wanted_before - set(wanted)
        self.wanted_before = set(wanted)
        for record in self.session.turns:
            before = self.statuses.get(record.turn_id)
            assert record.status in reachable(before), f"{record.turn_id}: {before} to {record.status}"
            self.statuses[record.turn_id] = record.status
            if record.runs and record.turn_id not in self.starts:
                self.starts.append(record.turn_id)

    # ---- commands -----------------------------------------------------------------------------------------------

    @initialize(seeded=st.booleans())
    def begin(self, seeded: bool) -> None:  # noqa: FBT001
        if seeded:
            life = Life()
            life.submit(turn_id="before")
            life.answer("of another time", Call())
            life.interrupt()
            seed = change(life.session.state, summary="so far", revision=40)
            self.life.session = change(Session.new(KEY, seed), limits=self.life.limits)
            self.last_state = self.session.state

    @rule()
    def submit_another(self) -> None:
        self.submit(
            next((turn_id for turn_id in TURNS if turn_id not in self.inputs), TURNS[0]), "one", None, OnBusy.ENQUEUE
        )

    @rule(
        turn_id=st.sampled_from(TURNS),
        text=st.sampled_from(["one", "one", "one", "two"]),
        run_id=st.sampled_from(RUNS),
        on_busy=st.sampled_from([OnBusy.ENQUEUE, OnBusy.ENQUEUE, OnBusy.REJECT]),
    )
    def submit(self, turn_id: str, text: str, run_id: str | None, on_busy: OnBusy) -> None:
        before = self.session
        if run_id == "a used one":
            run_id = next(before.run_ids(), None)
        try:
            self.life.submit(text, turn_id=turn_id, run_id=run_id, on_busy=on_busy)
        except CommandRefused as refusal:
            assert self.session is before
            self.check_refusal(refusal, turn_id, text, run_id)
        else:
            if turn_id in self.inputs:
                assert self.session is before
                assert self.inputs[turn_id] == text
            self.inputs.setdefault(turn_id, text)
        self.observe()

    def check_refusal(self, refusal: CommandRefused, turn_id: str, text: str, run_id: str | None) -> None:
        """A refusal is right only if its reason is."""
        match refusal:
            case TurnConflict():
                assert self.inputs[turn_id] != text
            case SessionClosed():
                assert self.session.closing
            case RunConflict():
                assert run_id in set(self.session.run_ids())
            case SessionBusy():
                assert self.session.busy
            case QueueFull():
                assert len(self.session.queue) == self.session.limits.queue_limit
            case _:
                raise AssertionError(refusal)

    @rule(
        which=st.sampled_from(["any", "any", "active", "another"]),
        message=st.sampled_from([None, "wait"]),
        partial=st.sampled_from(Partial),
    )
    def interrupt(self, which: str, message: str | None, partial: Partial) -> None:
        before = self.session
        active = before.running
        run_id = {"any": None, "active": active.run_id if active else None, "another": "run of nobody"}[which]
        try:
            self.life.interrupt(run_id=run_id, message=message, partial=partial)
        except StaleRun:
            assert which == "another"
            assert self.session is before
        else:
            assert interrupt_receipt(before).interrupted == (active is not None)
            assert (self.session is before) == (active is None)
        self.observe()

    @precondition(lambda self: len(self.inputs) > 6)
    @rule()
    def close(self) -> None:
        before = self.session
        waiting = [turn.turn_id for turn in before.queue]
        self.life.close("over")
        assert self.session.queue == ()
        if not before.closing:
            current = [] if before.current is None else [before.current.turn_id]
            assert list(self.session.cancelled_by_close) == [*current, *waiting]
        self.observe()

    # ---- the driver ---------------------------------------------------------------------------------------------

    @rule()
    def perform(self) -> None:
        """Do with the wishes what the workflow does."""
        wishes = {wish.operation_id: wish for wish in decide(self.session)}
        for operation_id, wish in wishes.items():
            if wish.wanted is Wanted.RUN and operation_id not in self.flights:
                self.start(wish)

    def start(self, wish: Wish) -> None:
        self.flights[wish.operation_id] = wish
        match wish:
            case CallModel():
                call = model_call(self.session, wish)
                assert call.head == self.session.mark
                known = self.session.state.context[: call.base.position]
                assert call.delta is not None
                assert (*known, *call.delta) == self.session.state.context
            case CallTool():
                assert tool_invocation(self.session, wish).call_id == wish.plan.call_id
                self.take(ToolStarted(self.life.now(), wish.operation_id))

    @rule(
        data=st.data(), text=TEXTS, calls=st.just([]) | st.lists(CALLS, max_size=3), end=MODEL_ENDS, tool_end=TOOL_ENDS
    )
    def something_ends(self, data: st.DataObject, text: str, calls: list[Call], end: str, tool_end: str) -> None:
        """One operation that is under way ends, wanted or not: a model call or a tool call."""
        if not self.flights.keys() & self.wanted_before:
            self.perform()
        if not self.flights:
            return
        operation_id = data.draw(st.sampled_from(list(self.flights)))
        if isinstance(self.flights.pop(operation_id), CallModel):
            self.model_call_ends(operation_id, text, calls, end)
        elif tool_end == "lost":
            self.take(ToolLost(self.life.now(), operation_id, "the worker was lost"))
        else:
            self.take(ToolFinished(self.life.now(), operation_id, ToolResultBlock(id="x", name="x")))

    @rule(data=st.data(), calls=st.lists(CALLS, min_size=2, max_size=3), tool_end=TOOL_ENDS)
    def something_goes_on(self, data: st.DataObject, calls: list[Call], tool_end: str) -> None:
        """The same, such that a turn has a long life."""
        self.something_ends(data, "", calls, "whole", tool_end)

    def model_call_ends(self, operation_id: str, text: str, calls: list[Call], end: str) -> None:
        if end == "failed":
            self.take(ModelFailed(self.life.now(), operation_id, TurnError(type="ModelError", message="no")))
            return
        answer = self.life.model_answer(operation_id, text, calls if end == "whole" else [], partial=end == "partial")
        if operation_id in self.wanted_before:
            self.used += answer.usage
        self.take(ModelAnswered(self.life.now(), operation_id, answer))

    @rule(data=st.data())
    def time_runs_out(self, data: st.DataObject) -> None:
        """Whatever was asked to end has a bounded time, also what had not even begun."""
        asked = self.asked_to_settle()
        if asked:
            self.take(GraceExpired(self.life.now(), data.draw(st.sampled_from(asked))))

    def asked_to_settle(self) -> list[str]:
        return [wish.operation_id for wish in decide(self.session) if wish.wanted is Wanted.SETTLE]

    @rule(data=st.data(), kind=st.sampled_from(["refused", "again", "nobody's"]))
    def something_comes_that_changes_nothing(self, data: st.DataObject, kind: str) -> None:
        before = self.session
        match kind:
            case "refused":
                self.life.reject()
                assert self.session.rejected_count == before.rejected_count + 1
                same = {"rejections": before.rejections, "rejected_count": before.rejected_count}
                assert change(self.session, **same) == before
                return
            case "again":
                # Nothing has any effect when it comes again, unless it is of what is wanted still.
                facts = [fact for fact in self.facts if not self.matters(fact)]
            case _:
                facts = self.facts_of_nobody()
        if facts:
            self.life.take(data.draw(st.sampled_from(facts)))
            assert self.session == before

    def matters(self, fact: Fact) -> bool:
        operation_id = getattr(fact, "operation_id", None)
        return operation_id in self.wanted_before or any(
            one.operation_id == operation_id for one in self.session.uncertain
        )

    def facts_of_nobody(self) -> list[Fact]:
        at = self.life.now()
        again = [TurnSubmitted(at, turn_id, "r", (), OnBusy.ENQUEUE, FrozenMap()) for turn_id in self.inputs]
        return [
            ModelAnswered(at, "nobody's", self.life.model_answer("nobody's", "", [Call()], partial=False)),
            ModelFailed(at, "nobody's", TurnError(type="x", message="x")),
            ToolStarted(at, "nobody's"),
            ToolFinished(at, "nobody's", ToolResultBlock(id="x", name="x")),
            ToolLost(at, "nobody's", "why"),
            GraceExpired(at, "nobody's"),
            *again,
        ]

    @rule()
    def continue_as_new(self) -> None:
        before = self.session
        self.life.carry_over()
        assert self.session == before
        assert hash(self.session) == hash(before)
        assert Session.model_validate(before.model_dump(mode="json")) == before
        self.observe()

    # ---- what always holds ----------------------------------------------------------------------------------------

    @invariant()
    def every_rule_holds(self) -> None:
        self.turns_are_remembered_in_order_and_start_in_order()
        self.at_most_one_turn_runs_and_it_is_the_current_one()
        self.nothing_is_wanted_that_no_admitted_turn_needs()
        self.a_running_turn_always_wants_something()
        self.the_context_is_valid_input_for_a_model()
        self.digests_say_what_the_context_is()
        self.the_revision_counts_the_changes_of_the_state()
        self.the_transcript_is_whole_and_runs_have_names_of_their_own()
        self.uncertain_operations_are_told_once_and_a_suspended_turn_has_one()
        self.tokens_are_counted_once()
        self.everything_can_be_looked_at()

    def turns_are_remembered_in_order_and_start_in_order(self) -> None:
        assert [record.turn_id for record in self.session.turns] == list(self.inputs)
        assert self.session.turn_count == len(self.inputs)
        order = [turn_id for turn_id in self.inputs if turn_id in self.starts]
        assert self.starts == order
        waiting = [turn.turn_id for turn in self.session.queue]
        assert waiting == [turn_id for turn_id, status in self.statuses.items() if status is TurnStatus.QUEUED]
        assert len(waiting) <= self.session.limits.queue_limit

    def at_most_one_turn_runs_and_it_is_the_current_one(self) -> None:
        running = [turn_id for turn_id, status in self.statuses.items() if status is TurnStatus.RUNNING]
        active = self.session.running
        assert running == ([] if active is None else [active.turn_id])
        current = self.session.current
        if current is not None:
            assert current.suspended == (self.statuses[current.turn_id] is TurnStatus.SUSPENDED)
        if current is None and not self.session.closing:
            assert self.session.queue == ()

    def nothing_is_wanted_that_no_admitted_turn_needs(self) -> None:
        for wish in decide(self.session):
            assert wish.turn_id in self.inputs
            assert self.statuses[wish.turn_id] is TurnStatus.RUNNING
            assert self.session.running is not None
            assert wish.turn_id == self.session.running.turn_id

    def a_running_turn_always_wants_something(self) -> None:
        assert bool(decide(self.session)) == (self.session.running is not None)

    def the_context_is_valid_input_for_a_model(self) -> None:
        context = self.session.state.context
        current = self.session.current
        problems = list(flaws(context))
        if current is None or isinstance(current.phase, Thinking):
            assert problems == []
        else:
            assert isinstance(current.phase, Acting)
            assert problems == [f"no result for {', '.join(call.id for call in context[-1].calls)}"]
            assert [call.plan.call_id for call in current.phase.calls] == [call.id for call in context[-1].calls]
        ids = [message.id for message in context]
        assert len(set(ids)) == len(ids)

    def digests_say_what_the_context_is(self) -> None:
        state, known = self.session.state, self.session.known
        digests = [context_origin(state.summary)]
        for message in state.context:
            digests.append(chain(digests[-1], message))
        assert self.session.head == digests[-1] == chain_all(digests[0], state.context)
        assert known.digest == digests[known.position]

    def the_revision_counts_the_changes_of_the_state(self) -> None:
        before, now = self.last_state, self.session.state
        if now != before:
            assert now.revision > before.revision
        assert now.context[: len(before.context)] == before.context
        self.last_state = now

    def the_transcript_is_whole_and_runs_have_names_of_their_own(self) -> None:
        assert [entry.seq for entry in self.session.transcript] == list(range(1, self.session.last_seq + 1))
        runs = [run.run_id for record in self.session.turns for run in record.runs]
        assert len(set(runs)) == len(runs)
        for record in self.session.turns:
            ended = record.status.settled
            assert all((run.ended_at is not None) == (run.outcome is not None) == ended for run in record.runs)

    def uncertain_operations_are_told_once_and_a_suspended_turn_has_one(self) -> None:
        ids = [one.operation_id for one in self.session.uncertain]
        assert len(set(ids)) == len(ids)
        assert not set(ids) & self.wanted_before
        current = self.session.current
        if current is not None and current.suspended:
            assert any(one.turn_id == current.turn_id for one in self.session.uncertain)

    def tokens_are_counted_once(self) -> None:
        total = Usage()
        for record in self.session.turns:
            total += record.usage
        assert self.session.usage == total == self.used

    def everything_can_be_looked_at(self) -> None:
        hash(self.session)
        session_view(self.session).model_dump_json()
        for record in self.session.turns:
            view = turn_view(self.session, record.turn_id)
            assert view is not None
            assert view.result().status is record.status
            assert view.input
            submit_receipt(self.session, record.turn_id)
            submit_receipt(self.session, record.turn_id, repeated=True)
        assert turn_view(self.session, "nobody's") is None
        page = context_page(
            self.session, PageRequest(after=self.session.known.position, digest=self.session.known.digest)
        )
        assert page.start == self.session.known.position
        assert transcript_page(self.session, PageRequest(after=3)).last == self.session.last_seq

    def teardown(self) -> None:
        """Whatever happened: when everything that is under way ends, so does every turn, and the session can close."""
        for _ in range(200):
            for operation_id in self.asked_to_settle():
                self.take(GraceExpired(self.life.now(), operation_id))
            self.perform()
            if not self.flights:
                break
            operation_id, wish = self.flights.popitem()
            if isinstance(wish, CallModel):
                answer = self.life.model_answer(operation_id, "done", [], partial=False)
                self.take(ModelAnswered(self.life.now(), operation_id, answer))
            else:
                self.take(ToolFinished(self.life.now(), operation_id, ToolResultBlock(id="x", name="x")))
        current = self.session.current
        assert current is None or current.suspended
        self.life.close()
        assert self.session.closed
        assert all(record.status.settled for record in self.session.turns)
        assert not list(flaws(self.session.state.context))


TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
