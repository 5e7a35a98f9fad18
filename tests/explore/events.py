"""Everything that can happen to a small session: what people may ask, and how what is under way may end.

Two turns, one steering, one injected input, one interrupt with words, two resumes, three answers: each adds to what was
said, so that without a bound there would be no end. Everything else may come as often as it likes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING

from perdure.commands import (
    AnyCommand,
    CancelTurn,
    Close,
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
)
from perdure.contract import AfterStop, Limits, ModelAnswer
from perdure.decide import AskTool, CallTool, Wanted, Wish, deadline, decide
from perdure.facts import (
    Fact,
    GraceExpired,
    ModelAnswered,
    ModelFailed,
    ModelStarted,
    TimeExpired,
    ToolFinished,
    ToolLost,
    ToolStarted,
)
from perdure.judging import Opinion
from perdure.messages import TextBlock, ToolResultBlock
from perdure.operations import Effect
from perdure.results import TurnError
from perdure.turns import Acting, Thinking
from perdure.values import FrozenMap
from perdure.views import interactions
from tests.support.lives import Call, Life
from tests.support.strategies import EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.results import Operation
    from perdure.session import Session
    from perdure.turns import PlannedCall
    from tests.support.witness import Witness

ONE, TWO, UNKNOWN = "t1", "t2", "t3"
STEERED, INJECTED, STOPPED = "<steered>", "<injected>", "<stopped>"
ASKED = {ONE: "<ask t1>", TWO: "<ask t2>", UNKNOWN: "<ask t3>"}
MAX_RESUMES = 2
MAX_ANSWERS = 3

LIMITS = Limits(max_steps=2, queue_limit=2, turn_timeout_seconds=0)

CALLS = (Call("look", Effect.READ), Call("send", Effect.IDEMPOTENT), Call("pay", Effect.ONCE))
"""What the model asks for in one step: a tool of each effect."""

ASKING = (Call("look", Effect.READ), Call("refund", Effect.ONCE, opinion=Opinion(behavior="ask")))
"""Or this: of two calls one asks."""

ERROR = TurnError(type="ModelError", message="no such model")
DONE = ToolResultBlock(id="x", name="x")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that can happen, in words, and what it is: a command, which may be refused, or facts at one moment."""

    words: str
    what: AnyCommand | tuple[Fact, ...]


def life() -> Life:
    """Return the small session, in which time stands still: none of the rules asks for it but deadlines, which ring."""
    living = Life(limits=LIMITS, eager=False, tick=timedelta(0))
    living.session = living.session.model_copy(update={"limits": LIMITS})
    return living


def events(session: Session, witness: Witness) -> Iterator[Event]:
    """Yield what can happen now, in a fixed order."""
    yield from _submits(session)
    yield from _stops(session, witness)
    yield from _inputs(session, witness)
    yield from _holds(session)
    yield from _answers_of_people(session)
    yield from _handed_out(session)
    yield from _ends(session)
    yield from _clocks(session)


# ---- what people ask --------------------------------------------------------------------------------------------


def _submits(session: Session) -> Iterator[Event]:
    if session.find(ONE) is None:
        yield Event("submit t1", submit(ONE))
        yield Event("submit t1, after which the queue is parked", submit(ONE, after="park"))
        return
    yield Event("submit t1 again, with another input", submit(ONE, text="another"))
    if session.find(TWO) is not None:
        yield Event("submit t2 again", submit(TWO, OnBusy.ROLLBACK))
        return
    for on_busy in OnBusy:
        yield Event(f"submit t2, on_busy={on_busy.value}", submit(TWO, on_busy))
    yield Event("submit t2 with the run id of t1", submit(TWO, run_id=f"{ONE}/1"))


@cache
def submit(
    turn_id: str,
    on_busy: OnBusy = OnBusy.ENQUEUE,
    *,
    text: str | None = None,
    run_id: str | None = None,
    after: AfterStop | None = None,
) -> SubmitTurn:
    """Return the command that submits a turn."""
    return SubmitTurn(
        input=(TextBlock(text or ASKED[turn_id]),),
        turn_id=turn_id,
        run_id=run_id or f"{turn_id}/1",
        on_busy=on_busy,
        after_interrupt=after,
        after_failure=after,
    )


def _stops(session: Session, witness: Witness) -> Iterator[Event]:
    yield Event("interrupt", INTERRUPT)
    if session.running is not None and isinstance(session.running.phase, Thinking):
        yield Event("interrupt, discarding what the model has said", DISCARD)
    yield Event("interrupt a run of long ago", STALE)
    if not _has_said(witness, STOPPED):
        yield Event("interrupt with words", WORDS)
    runs = sum(len(record.runs) for record in session.turns)
    for record in session.turns:
        run_id = f"{record.turn_id}/{len(record.runs) + 1}"
        if runs < len(session.turns) + MAX_RESUMES:
            yield Event(f"resume {record.turn_id}", resume(record.turn_id, run_id))
        yield Event(f"cancel {record.turn_id}", cancel(record.turn_id))
    yield Event("cancel a turn that nobody knows", cancel(UNKNOWN))
    yield Event("close", CLOSE)


INTERRUPT, DISCARD, WORDS = Interrupt(), Interrupt(partial=Partial.DISCARD), Interrupt(message=STOPPED)
STALE = Interrupt(run_id="long ago")
CLOSE, PAUSE, UNPAUSE = Close(), Pause(), Unpause()
STEER, INJECT = Steer(input=(TextBlock(STEERED),)), Inject(input=(TextBlock(INJECTED),))


@cache
def cancel(turn_id: str) -> CancelTurn:
    """Return the command that cancels a turn."""
    return CancelTurn(turn_id=turn_id)


@cache
def resume(turn_id: str, run_id: str) -> ResumeTurn:
    """Return the command that resumes a turn."""
    return ResumeTurn(turn_id=turn_id, run_id=run_id)


def _inputs(session: Session, witness: Witness) -> Iterator[Event]:
    if not _has_said(witness, STEERED):
        yield Event("steer", STEER)
    if not _has_said(witness, INJECTED):
        yield Event("inject", INJECT)


def _has_said(witness: Witness, text: str) -> bool:
    return any(one.text == text for one in witness.said)


def _holds(session: Session) -> Iterator[Event]:
    yield Event("unpause", UNPAUSE) if session.paused else Event("pause", PAUSE)


def _answers_of_people(session: Session) -> Iterator[Event]:
    for request in interactions(session):
        if request.kind == "approval":
            yield Event("approve", respond(request.request_id, approve=True))
            yield Event("deny", respond(request.request_id, approve=False))
    if session.answered:
        yield Event("approve what was answered before", respond(session.answered[-1].request_id, approve=True))
    runs = sum(len(record.runs) for record in session.turns)
    if session.uncertain and runs < len(session.turns) + MAX_ANSWERS:
        ids = tuple(one.operation_id for one in session.uncertain)
        for outcome in ("happened", "did_not_happen"):
            yield Event(f"somebody says that it {outcome}", reconcile(ids, outcome))
        yield Event("somebody says it of another", reconcile(("another",), "happened"))


@cache
def respond(request_id: str, *, approve: bool) -> Respond:
    """Return the command that answers a question."""
    return Respond(request_id=request_id, approve=approve)


@cache
def reconcile(operation_ids: tuple[str, ...], outcome: str) -> Reconcile:
    """Return the command that says what became of operations."""
    settlement = Settlement.model_validate({"outcome": outcome})
    return Reconcile(outcomes=FrozenMap(dict.fromkeys(operation_ids, settlement)), reason="looked")


# ---- how what is under way goes on ------------------------------------------------------------------------------


def _handed_out(session: Session) -> Iterator[Event]:
    """A worker takes up whatever is wanted, in one go as the workflow does it."""
    current = session.steerable
    if current is None:
        return
    match current.phase:
        case Thinking(started=False):
            yield Event("the model call is handed out", (ModelStarted(EPOCH, current.phase.operation_id),))
        case Acting(calls=calls):
            new = [call for call in calls if call.started_at is None and not call.settled and not call.asking]
            if new:
                started = tuple(ToolStarted(EPOCH, call.operation_id) for call in new)
                yield Event("the tool calls are handed out", started)
        case _:
            pass


def _ends(session: Session) -> Iterator[Event]:
    current = session.running
    match current.phase if current is not None else None:
        case Thinking(started=True, operation_id=operation_id):
            yield from _answers(operation_id)
        case Acting(calls=calls):
            for call in calls:
                if call.started_at is not None and not call.settled:
                    yield from _ends_of(call)
        case _:
            pass
    for one in session.uncertain:
        yield Event(f"{_name(one)} turns out to have happened", (ToolFinished(EPOCH, one.operation_id, DONE),))


def _answers(operation_id: str) -> Iterator[Event]:
    yield Event("the model answers", (answered(operation_id, "whole"),))
    yield Event("the model asks for three tools", (answered(operation_id, "tools"),))
    yield Event("the model asks for what needs approval", (answered(operation_id, "asking"),))
    yield Event("the model hands back what it had said", (answered(operation_id, "partial"),))
    yield Event("the model call fails", (ModelFailed(EPOCH, operation_id, ERROR),))


@cache
def answered(operation_id: str, kind: str) -> ModelAnswered:
    """Return an answer to a model call."""
    answer: ModelAnswer = life().model_answer(
        operation_id, "answer", {"tools": CALLS, "asking": ASKING}.get(kind, ()), partial=kind == "partial"
    )
    return ModelAnswered(EPOCH, operation_id, answer)


def _ends_of(call: PlannedCall) -> Iterator[Event]:
    yield Event(f"{call.plan.tool} ends", (ToolFinished(EPOCH, call.operation_id, DONE),))
    yield Event(f"{call.plan.tool} is lost", (ToolLost(EPOCH, call.operation_id, "the worker was lost"),))


def _name(one: Operation) -> str:
    return f"{one.tool} of {one.turn_id}"


def _clocks(session: Session) -> Iterator[Event]:
    current = session.running
    if current is None:
        return
    for wish in decide(session):
        if wish.wanted is Wanted.SETTLE:
            yield Event(f"the time of {_asked(wish)} to settle is over", (GraceExpired(EPOCH, wish.operation_id),))
    if deadline(session) is not None:  # time stands still here: a run's time is over from the start
        yield Event(f"the time of {current.turn_id} is over", (TimeExpired(EPOCH, current.run_id),))


def _asked(wish: Wish) -> str:
    return wish.plan.tool if isinstance(wish, CallTool | AskTool) else "the model call"
