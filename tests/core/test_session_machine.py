from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from perdure.changes import AddRule, AnyChange, SetPermissionMode, SetPlanMode
from perdure.commands import (
    AnyCommand,
    CancelTurn,
    ClearContext,
    Close,
    Compact,
    Decision,
    Inject,
    Interrupt,
    OnBusy,
    Partial,
    Pause,
    Reconcile,
    Respond,
    ResumeTurn,
    Settlement,
    Steer,
    SubmitTurn,
    Unpause,
    UpdateState,
    WaitTurn,
)
from perdure.contract import AfterStop, Finding, Limits
from perdure.decide import AskTool, CallModel, CallTool, KeepTranscript, Wanted, Wish, deadline, decide
from perdure.facts import (
    Archived,
    CommandRejected,
    Fact,
    FoundOut,
    GraceExpired,
    ModelAnswered,
    ModelFailed,
    ModelStarted,
    TimeExpired,
    ToolFinished,
    ToolLost,
    ToolStarted,
)
from perdure.intake import fact_of
from perdure.judging import Opinion
from perdure.messages import TextBlock, ToolResultBlock, flaws
from perdure.models import Purpose
from perdure.operations import Effect
from perdure.permissions import PermissionBehavior, PermissionMode, PermissionRule
from perdure.results import TurnError
from perdure.session import Session, change
from perdure.turns import Acting
from perdure.values import FrozenMap, freeze_object
from perdure.views import interactions, turn_view
from tests.support.invariants import a_session_is_its_json, check
from tests.support.lives import KEY, Call, Life
from tests.support.refusals import accepted
from tests.support.witness import Witness

if TYPE_CHECKING:
    from perdure.commands import InputBlock

TURNS = [f"t{number}" for number in range(12)]
AFTER: st.SearchStrategy[AfterStop | None] = st.sampled_from((None, None, None, None, "park", "continue"))
POLICIES = st.sampled_from([OnBusy.ENQUEUE, OnBusy.ENQUEUE, *OnBusy])
RUNS = st.sampled_from(["any", "any", "any", "any", "active", "active", "used", "nobody's"])

OPINIONS = st.sampled_from(
    [None, None, None, Opinion(behavior="ask"), Opinion(behavior="ask", safety=True), Opinion(behavior="deny")]
)
CALLS = st.builds(
    Call,
    tool=st.sampled_from(["pay", "look"]),
    effect=st.sampled_from(Effect),
    refusal=st.sampled_from([None, None, None, "no"]),
    planned=st.sampled_from([True, True, True, True, False]),
    opinion=OPINIONS,
    subject=st.sampled_from([None, "A1", "A2"]),
    external=st.sampled_from([False, False, False, True]),
    reconcilable=st.booleans(),
) | st.sampled_from(
    [
        Call("plan_enter", builtin=True),
        Call("plan_exit", builtin=True),
        Call("todo_write", builtin=True),
        Call("reset_equipped_tools", builtin=True),
    ]
)
OUTCOMES = st.sampled_from(["happened", "did_not_happen", "unknown"])
CHANGES: st.SearchStrategy[AnyChange] = st.sampled_from(
    [
        SetPermissionMode(PermissionMode.DEFAULT),
        SetPermissionMode(PermissionMode.EXPLORE),
        SetPermissionMode(PermissionMode.DONT_ASK),
        AddRule(PermissionRule(tool_name="pay", behavior=PermissionBehavior.ASK)),
        AddRule(PermissionRule(tool_name="pay", rule_content="A1", behavior=PermissionBehavior.DENY)),
        AddRule(PermissionRule(tool_name="look", behavior=PermissionBehavior.ALLOW)),
        SetPlanMode(active=False),
    ]
)

TEXTS = st.sampled_from(["", "yes", "no"])
MODEL_ENDS = st.sampled_from(["whole", "whole", "whole", "partial", "failed"])
TOOL_ENDS = st.sampled_from(["result", "result", "result", "lost"])
DONE = ToolResultBlock(id="x", name="x")
EDITED = freeze_object({"edited": True})


class SessionMachine(RuleBasedStateMachine):
    """Any order of commands and reports, with a driver that does what the workflow does with what `decide` wants."""

    def __init__(self) -> None:
        super().__init__()
        self.life = Life(limits=Limits(max_steps=3, queue_limit=2), eager=False)
        self.flights: dict[str, Wish] = {}
        self.inputs: dict[str, str] = {}
        self.witness = Witness()

    @property
    def session(self) -> Session:
        return self.life.session

    def take(self, fact: Fact) -> None:
        """Have something happen, before the eyes of the witness."""
        before = self.session
        self.witness = self.witness.sees(before, fact, self.life.take(fact))

    def ask(self, command: AnyCommand) -> bool:
        """Ask for something, and tell whether it was taken. Whether it was, and why not, has to be right."""
        before = self.session
        if not accepted(before, self.witness, command):
            return False
        fact = fact_of(command, self.life.now(), self.life.fresh_id)
        if fact is not None:
            self.take(fact)
        return True

    def words(self, text: str = "say") -> tuple[InputBlock, ...]:
        """Return words that nobody has said before."""
        return (TextBlock(f"<{text} {self.life.fresh_id()}>"),)

    @property
    def full(self) -> bool:
        return len(self.session.queue) >= self.session.limits.queue_limit

    def run_id(self, which: str) -> str | None:
        active, used = self.session.running, next(self.session.run_ids(), None)
        return {"any": None, "active": active.run_id if active else None, "used": used}.get(which, which)

    # ---- what people ask --------------------------------------------------------------------------------------------

    @initialize(seeded=st.booleans(), after_interrupt=AFTER, after_failure=AFTER, seconds=st.sampled_from([None, 60.0]))
    def begin(
        self,
        seeded: bool,  # noqa: FBT001
        after_interrupt: AfterStop | None,
        after_failure: AfterStop | None,
        seconds: float | None,
    ) -> None:
        rules = {"after_interrupt": after_interrupt or "continue", "after_failure": after_failure or "continue"}
        patience = {
            "approval_timeout_seconds": None if seconds is None else 150.0,
            "approval_reminder_seconds": seconds,
        }
        self.life.limits = change(self.life.limits, turn_timeout_seconds=seconds, **rules, **patience)
        if seeded:
            life = Life()
            life.submit(turn_id="before")
            life.answer("of another time", Call())
            life.interrupt()
            self.life.session = Session.new(KEY, change(life.session.state, summary="so far", revision=40))
        self.life.session = change(self.session, limits=self.life.limits)
        self.witness = Witness.of(self.session)

    @precondition(lambda self: not self.full and not self.session.closing)
    @rule(on_busy=POLICIES, after_interrupt=AFTER, after_failure=AFTER)
    def submit(self, on_busy: OnBusy, after_interrupt: AfterStop | None, after_failure: AfterStop | None) -> None:
        turn_id = next((turn_id for turn_id in TURNS if turn_id not in self.inputs), TURNS[0])
        (block,) = self.words(turn_id)
        assert isinstance(block, TextBlock)
        command = SubmitTurn(
            input=(block,),
            turn_id=turn_id,
            on_busy=on_busy,
            after_interrupt=after_interrupt,
            after_failure=after_failure,
        )
        if self.ask(command):
            self.inputs[turn_id] = block.text

    @precondition(lambda self: len(self.inputs) > 1)
    @rule(data=st.data(), same=st.booleans(), which=RUNS, on_busy=POLICIES)
    def submit_again(self, data: st.DataObject, same: bool, which: str, on_busy: OnBusy) -> None:  # noqa: FBT001
        """Submit a turn id that is known, with the same input or another, or a new one with a run id that is taken."""
        before = self.session
        turn_id = data.draw(st.sampled_from([*self.inputs, "new"]))
        if turn_id == "new":
            command = SubmitTurn(input=self.words(), run_id=next(before.run_ids()), on_busy=on_busy)
        else:
            content = (TextBlock(self.inputs[turn_id]),) if same else self.words()
            command = SubmitTurn(input=content, turn_id=turn_id, run_id=self.run_id(which), on_busy=on_busy)
        assert not self.ask(command)
        assert self.session is before

    @precondition(lambda self: self.session.unfinished is not None)
    @rule(which=RUNS)
    def resume(self, which: str) -> None:
        assert self.session.unfinished is not None
        self.ask(ResumeTurn(turn_id=self.session.unfinished.turn_id, run_id=self.run_id(which)))

    @precondition(lambda self: bool(self.inputs))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        turn_id = data.draw(st.sampled_from(list(self.inputs)))
        if self.ask(CancelTurn(turn_id=turn_id)) and self.session.running is None:
            # Twice is the same as once, when it is over.
            before = self.session
            self.ask(CancelTurn(turn_id=turn_id))
            assert self.session is before

    @precondition(lambda self: self.session.running is not None)
    @rule(which=RUNS)
    def steer(self, which: str) -> None:
        self.ask(Steer(input=self.words("steer"), run_id=self.run_id(which)))

    @rule()
    def inject(self) -> None:
        self.ask(Inject(input=self.words("inject")))

    @precondition(lambda self: self.session.running is not None)
    @rule(which=RUNS, says=st.booleans(), partial=st.sampled_from(Partial))
    def interrupt(self, which: str, says: bool, partial: Partial) -> None:  # noqa: FBT001
        before = self.session
        message = f"<stop {self.life.fresh_id()}>" if says else None
        taken = self.ask(Interrupt(run_id=self.run_id(which), message=message, partial=partial))
        assert taken == (self.session is not before)

    @precondition(lambda self: bool(interactions(self.session)))
    @rule(data=st.data(), approve=st.booleans(), remember=st.booleans(), whole=st.booleans(), edited=st.booleans())
    def somebody_answers(
        self,
        data: st.DataObject,
        approve: bool,  # noqa: FBT001
        remember: bool,  # noqa: FBT001
        whole: bool,  # noqa: FBT001
        edited: bool,  # noqa: FBT001
    ) -> None:
        """Answer what is asked in some way, of which some are refused."""
        request = data.draw(st.sampled_from(interactions(self.session)))
        ids = [call.call_id for call in request.calls]
        some = data.draw(st.lists(st.sampled_from(ids), min_size=1, unique=True))
        arguments = EDITED if edited and request.kind == "approval" and approve else None
        decision = Decision(approve=approve, arguments=arguments)
        decisions = approve if whole else FrozenMap(dict.fromkeys(some, decision))
        result = None if request.kind == "approval" else freeze_object(dict.fromkeys(some, "done outside"))
        before = self.session
        command = Respond(
            request_id=request.request_id,
            approve=decisions if result is None else None,
            remember=remember and approve and result is None,
            result=result,
        )
        if edited and not whole and _has_no_worker(before):
            return
        if self.ask(command):
            assert (
                request.request_id not in {one.request_id for one in interactions(self.session)} or result is not None
            )

    @precondition(lambda self: bool(self.session.uncertain))
    @rule(data=st.data(), whole=st.booleans())
    def somebody_says_what_happened(self, data: st.DataObject, whole: bool) -> None:  # noqa: FBT001
        ids = [one.operation_id for one in self.session.uncertain if whole or data.draw(st.booleans())]
        outcomes = st.sampled_from(["happened", "did_not_happen", "unresolved"])
        stated = {one: Settlement.model_validate({"outcome": data.draw(outcomes)}) for one in ids}
        self.ask(Reconcile(outcomes=FrozenMap(stated), reason="looked"))

    @rule(change=CHANGES, stale=st.sampled_from([0, 0, 0, 1]))
    def change_the_state(self, change: AnyChange, stale: int) -> None:
        revision = self.session.state.revision - stale
        if self.ask(UpdateState(changes=(change,), expected_revision=revision, reason="because")):
            assert self.session.state.revision == revision + 1

    @precondition(lambda self: len(self.inputs) > 3)
    @rule(when_idle=st.booleans())
    def clear(self, when_idle: bool) -> None:  # noqa: FBT001
        self.ask(ClearContext(when_idle=when_idle))

    @precondition(lambda self: len(self.inputs) > 1)
    @rule()
    def compact(self) -> None:
        self.ask(Compact())

    @precondition(lambda self: not self.session.paused and len(self.inputs) > 1)
    @rule()
    def pause(self) -> None:
        self.ask(Pause())

    @precondition(lambda self: self.session.paused)
    @rule()
    def go_on(self) -> None:
        self.ask(Unpause())

    @precondition(lambda self: len(self.inputs) > 6)
    @rule()
    def close(self) -> None:
        before = self.session
        waiting = [turn.turn_id for turn in before.queue]
        assert self.ask(Close(reason="over"))
        if not before.closing:
            current = [] if before.current is None else [before.current.turn_id]
            assert list(self.session.cancelled_by_close) == [*current, *waiting]

    @rule(data=st.data(), turn_id=st.sampled_from(TURNS))
    def ask_for_what_means_nothing_now(self, data: st.DataObject, turn_id: str) -> None:
        """What is refused, or accepted and means nothing, changes nothing."""
        before = self.session
        commands: list[AnyCommand] = [WaitTurn(turn_id=turn_id), Interrupt(run_id="of no run")]
        if before.running is None:
            commands += [Interrupt(message="stop"), Steer(input=self.words())]
        if before.unfinished is None or before.unfinished.turn_id != turn_id:
            commands.append(ResumeTurn(turn_id=turn_id))
        if self.full or before.closing:
            commands.append(SubmitTurn(input=self.words()))
        if turn_id not in self.inputs:
            commands.append(CancelTurn(turn_id=turn_id))
        if not before.closing:
            commands.append(Pause() if before.paused else Unpause())
        self.ask(data.draw(st.sampled_from(commands)))
        assert self.session is before

    @rule()
    def refuse_a_signal(self) -> None:
        before = self.session
        self.take(CommandRejected(self.life.now(), "submit_turn", "InvalidCommand", "refused"))
        assert self.session.rejected_count == before.rejected_count + 1
        assert change(self.session, rejections=before.rejections, rejected_count=before.rejected_count) == before

    # ---- the driver ---------------------------------------------------------------------------------------------

    @precondition(lambda self: bool(self.witness.wanted - self.flights.keys()))
    @rule()
    def perform(self) -> None:
        """Do with the wishes what the workflow does."""
        for wish in decide(self.session):
            if wish.wanted is Wanted.RUN and wish.operation_id not in self.flights:
                self.flights[wish.operation_id] = wish
                if not isinstance(wish, AskTool):
                    started = ModelStarted if isinstance(wish, CallModel) else ToolStarted
                    self.take(started(self.life.now(), wish.operation_id))

    @precondition(lambda self: bool(self.witness.wanted or self.flights))
    @rule(
        data=st.data(),
        text=TEXTS,
        calls=st.just([]) | st.lists(CALLS, max_size=3),
        end=MODEL_ENDS,
        tool_end=TOOL_ENDS,
        outcome=OUTCOMES,
    )
    def something_ends(  # noqa: PLR0917  # what is drawn
        self, data: st.DataObject, text: str, calls: list[Call], end: str, tool_end: str, outcome: str
    ) -> None:
        """One operation that is under way ends, wanted or not: a model call or a tool call."""
        if not self.flights.keys() & self.witness.wanted:
            self.perform()
        if not self.flights:
            return
        operation_id = data.draw(st.sampled_from(list(self.flights)))
        wish = self.flights.pop(operation_id)
        if isinstance(wish, CallModel):
            self.model_call_ends(operation_id, text, [] if wish.purpose is Purpose.SUMMARY else calls, end)
        elif isinstance(wish, AskTool):
            finding = {"outcome": outcome, "result": DONE if outcome == "happened" else None}
            self.take(FoundOut(self.life.now(), wish.about, Finding.model_validate(finding)))
        elif tool_end == "lost":
            self.take(ToolLost(self.life.now(), operation_id, "the worker was lost"))
        else:
            self.take(ToolFinished(self.life.now(), operation_id, DONE))

    @precondition(lambda self: bool(self.witness.wanted))
    @rule(data=st.data(), calls=st.lists(CALLS, min_size=1, max_size=3), tool_end=TOOL_ENDS)
    def something_goes_on(self, data: st.DataObject, calls: list[Call], tool_end: str) -> None:
        """The same, such that a turn has a long life."""
        self.something_ends(data, "", calls, "whole", tool_end, "unknown")

    def model_call_ends(self, operation_id: str, text: str, calls: list[Call], end: str) -> None:
        if end == "failed":
            self.take(ModelFailed(self.life.now(), operation_id, TurnError(type="ModelError", message="no")))
            return
        answer = self.life.model_answer(operation_id, text, calls if end == "whole" else [], partial=end == "partial")
        self.take(ModelAnswered(self.life.now(), operation_id, answer))

    @precondition(lambda self: bool(self.session.uncertain))
    @rule(data=st.data())
    def what_was_uncertain_settles_by_itself(self, data: st.DataObject) -> None:
        """As it does when its time to settle was too short."""
        one = data.draw(st.sampled_from(self.session.uncertain))
        self.flights.pop(one.operation_id, None)
        self.take(ToolFinished(self.life.now(), one.operation_id, DONE))

    @precondition(lambda self: bool(self.asked_to_settle()))
    @rule(data=st.data())
    def time_to_settle_runs_out(self, data: st.DataObject) -> None:
        """Whatever was asked to end has a bounded time."""
        self.take(GraceExpired(self.life.now(), data.draw(st.sampled_from(self.asked_to_settle()))))

    def asked_to_settle(self) -> list[str]:
        return [wish.operation_id for wish in decide(self.session) if wish.wanted is Wanted.SETTLE]

    @precondition(lambda self: self.session.running is not None)
    @rule()
    def the_time_of_the_run_is_over(self) -> None:
        assert self.session.running is not None
        due = deadline(self.session)
        self.life.at = max(self.life.now(), due.at if due else self.life.at)
        self.take(TimeExpired(self.life.at, self.session.running.run_id))

    @precondition(lambda self: self.session.running is None and deadline(self.session) is not None)
    @rule()
    def the_time_of_a_request_comes(self) -> None:
        due = deadline(self.session)
        assert due is not None
        self.life.at = max(self.life.now(), due.at)
        self.take(TimeExpired(self.life.at, due.about))

    @rule()
    def continue_as_new(self) -> None:
        before = self.session
        a_session_is_its_json(before)
        self.life.carry_over()
        assert self.session == before
        assert hash(self.session) == hash(before)

    # ---- what always holds ----------------------------------------------------------------------------------------

    @invariant()
    def every_rule_holds(self) -> None:
        check(self.session, self.witness)
        for record in self.session.turns[-1:]:
            view = turn_view(self.session, record.turn_id)
            assert view is not None
            assert view.input == (TextBlock(self.inputs[record.turn_id]),)

    def teardown(self) -> None:
        """Whatever happened: when all that is under way ends, so does every turn, and the session can be closed."""
        self.ask(Unpause())
        self.let_everything_end()
        if self.session.parked is not None and self.session.current is None:
            self.ask(CancelTurn(turn_id=self.session.parked))
            self.let_everything_end()
        current, parked = self.session.current, self.session.parked
        assert current is None or current.suspended
        assert self.session.queue == () or current is not None or parked is not None
        assert self.ask(Close())
        assert self.session.closed
        assert all(record.status.settled for record in self.session.turns)
        assert not list(flaws(self.session.state.context))
        check(self.session, self.witness)

    def let_everything_end(self) -> None:
        """Perform what is wanted, and end it, until nothing is."""
        for _ in range(200):
            for operation_id in self.asked_to_settle():
                self.take(GraceExpired(self.life.now(), operation_id))
            self.perform()
            if not self.flights:
                break
            operation_id, wish = self.flights.popitem()
            match wish:
                case CallModel():
                    self.model_call_ends(operation_id, "done", [], "whole")
                case CallTool():
                    self.take(ToolFinished(self.life.now(), operation_id, DONE))
                case AskTool():
                    self.take(FoundOut(self.life.now(), wish.about, Finding(outcome="unknown")))
                case KeepTranscript():
                    self.take(Archived(self.life.now(), wish.call.upto, checkpoint=wish.call.checkpoint))


def _has_no_worker(session: Session) -> bool:
    """Whether a call asks whose arguments no worker would check."""
    current = session.current
    calls = current.phase.calls if current is not None and isinstance(current.phase, Acting) else ()
    return any(call.asking and (call.plan.external or call.plan.builtin) for call in calls)


TestSessionMachine = pytest.mark.timeout(600)(SessionMachine.TestCase)  # a life that breaks is made short first
TestSessionMachine.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
