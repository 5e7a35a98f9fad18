"""An onlooker of a session's life: remembers what was asked and said, and holds each step of the session to it.

What must hold between two moments is here; what must hold at any moment is in `invariants`. An onlooker is a value, so
that a life can be looked at on many ways at once. It believes the facts, and of the session only what it has checked.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from perdure.commands import OnBusy
from perdure.decide import CallTool, decide
from perdure.facts import (
    CancelRequested,
    FoundOut,
    InputInjected,
    InputSteered,
    InterruptRequested,
    ModelAnswered,
    OutcomesStated,
    ResumeRequested,
    ToolLost,
    ToolStarted,
    TurnSubmitted,
)
from perdure.messages import Role, ToolResultBlock, Usage, blocks_text
from perdure.operations import Effect, derived_id
from perdure.results import TurnStatus
from perdure.turns import Acting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.commands import InputBlock
    from perdure.facts import Fact
    from perdure.messages import Message
    from perdure.session import Session
    from perdure.turns import TurnRecord

MOVES: dict[TurnStatus | None, set[TurnStatus]] = {
    None: {TurnStatus.QUEUED, TurnStatus.RUNNING},
    TurnStatus.QUEUED: {TurnStatus.RUNNING, TurnStatus.CANCELLED},
    TurnStatus.RUNNING: {
        TurnStatus.COMPLETED,
        TurnStatus.SUSPENDED,
        TurnStatus.INTERRUPTED,
        TurnStatus.FAILED,
        TurnStatus.CANCELLED,
    },
    TurnStatus.SUSPENDED: {TurnStatus.RUNNING, TurnStatus.INTERRUPTED, TurnStatus.CANCELLED},
    TurnStatus.INTERRUPTED: {TurnStatus.RUNNING, TurnStatus.CANCELLED},
    TurnStatus.FAILED: {TurnStatus.RUNNING, TurnStatus.CANCELLED},
}
"""Where a turn may go from where it is, by one fact. It begins with None, and a final one goes nowhere."""

STOPPED = (TurnStatus.INTERRUPTED, TurnStatus.FAILED)

URGENT = (OnBusy.INTERRUPT, OnBusy.ROLLBACK)
"""The policies by which a turn takes the place of the one that it stops."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a person has said, in words that nobody else says, to which turn, and whether it went away with that turn.

    Without a turn it is for whichever comes. The turn is None for what was injected.
    """

    text: str
    turn_id: str | None
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Witness:
    """What an onlooker remembers. `owners` says whose each message of the context is."""

    submits: tuple[TurnSubmitted, ...] = ()
    joined: tuple[str, ...] = ()
    said: tuple[Said, ...] = ()
    owners: tuple[str | None, ...] = ()
    wanted: frozenset[str] = frozenset()
    over: frozenset[str] = frozenset()
    touched: frozenset[str] = frozenset()
    """Turns of which a tool was handed out that does more than read."""
    used: Usage = field(default_factory=Usage)
    summed: Usage = field(default_factory=Usage)
    """What of it was used for summaries, which are no turn's."""

    @classmethod
    def of(cls, session: Session) -> Witness:
        """Begin to look at a session in which nothing has happened yet. What its seed says is nobody's."""
        return cls(owners=(None,) * len(session.state.context))

    def submit(self, turn_id: str) -> TurnSubmitted | None:
        """Return how a turn was submitted."""
        return next((one for one in self.submits if one.turn_id == turn_id), None)

    def urgent(self, turn_id: str) -> bool:
        """Whether a turn takes the place of the one that it stops."""
        submit = self.submit(turn_id)
        return submit is not None and submit.on_busy in URGENT

    def sees(self, before: Session, fact: Fact, after: Session) -> Witness:
        """See one step, and return the onlooker after it.

        Raises:
            AssertionError: the session did what no session may.
        """
        statuses = {record.turn_id: record.status for record in before.turns}
        turned = [record for record in after.turns if record.status is not statuses.get(record.turn_id)]
        _moves_are_allowed(before, fact, turned)
        heard = self._hears(before, fact, turned)
        _turns_start_in_order(heard, before, after)
        _queue_is_held_and_released(heard, before, fact, after, turned)
        _nothing_begins_while_paused(before, after)
        heard = heard._watches_operations(before, fact, after)  # a copy of itself
        heard = heard._reads(before, fact, after)  # the same
        heard = heard._sees_calls_go_out(after)  # the same
        _nothing_said_is_lost(heard, before, after)
        return heard

    # ---- what is said -----------------------------------------------------------------------------------------------

    def _hears(self, before: Session, fact: Fact, turned: list[TurnRecord]) -> Witness:
        """Remember what the fact says, and what went away with a turn by it."""
        heard = self
        match fact:
            case TurnSubmitted() if fact.on_busy is OnBusy.STEER and before.steerable is not None:
                joined = (*self.joined, fact.turn_id)
                heard = replace(self._with(fact.input, before.steerable.turn_id), joined=joined)
            case TurnSubmitted():
                heard = replace(self._with(fact.input, fact.turn_id), submits=(*self.submits, fact))
            case InputSteered():
                assert before.steerable is not None, "input was steered into nothing"
                heard = self._with(fact.input, before.steerable.turn_id)
            case InputInjected():
                heard = self._with(fact.input, None)
            case InterruptRequested() if fact.message and before.running is not None:
                heard = replace(self, said=(*self.said, Said(fact.message, before.running.turn_id)))
            case ModelAnswered() if fact.operation_id in self.wanted:
                summary = before.compaction is not None and before.compaction.operation_id == fact.operation_id
                summed = self.summed + fact.answer.usage if summary else self.summed
                heard = replace(self, used=self.used + fact.answer.usage, summed=summed)
            case ToolStarted():
                touches = any(
                    wish.plan.effect is not Effect.READ
                    for wish in decide(before)
                    if isinstance(wish, CallTool) and wish.operation_id == fact.operation_id
                )
                if touches and before.running is not None:
                    heard = replace(self, touched=self.touched | {before.running.turn_id})
            case _:
                pass
        never_ran = {record.turn_id for record in turned if record.status is TurnStatus.CANCELLED and not record.runs}
        return heard._without({*never_ran, rolled_back(before, fact)})  # a copy of itself

    def _with(self, content: tuple[InputBlock, ...], turn_id: str | None) -> Witness:
        return replace(self, said=(*self.said, Said(blocks_text(content), turn_id)))

    def _without(self, turns: set[str | None]) -> Witness:
        turns.discard(None)
        if not turns:
            return self
        return replace(self, said=tuple(replace(one, gone=one.gone or one.turn_id in turns) for one in self.said))

    def _reads(self, before: Session, fact: Fact, after: Session) -> Witness:
        """Read what is new in the context. Nothing that stood there is changed, and only few things take away."""
        was, now = before.state.context, after.state.context
        if now is was:
            return self
        heard, summed_up = self, _summed_up(before, after)
        if summed_up:
            assert isinstance(fact, ModelAnswered), "a summary came from nowhere"
        if summed_up or _cleared(before, after):
            taken = summed_up or len(was)
            heard, was = self._forgets(taken, after), was[taken:]
        gone = rolled_back(before, fact)
        owned = zip(was, heard.owners, strict=True)
        kept = [(message, owner) for message, owner in owned if not gone or owner != gone]
        late = {one.call_id for one in (*before.late, *after.late)}
        stayed = len(now) >= len(kept) and all(
            _same(message, now[index], late) for index, (message, _) in enumerate(kept)
        )
        assert stayed, "what stood in the context has changed"
        assert after.state.revision > before.state.revision, "the state changed under the same revision"
        new = tuple(heard._owner(message, before) for message in now[len(kept) :])  # a copy of itself
        return replace(heard, owners=(*(owner for _, owner in kept), *new))

    def _sees_calls_go_out(self, after: Session) -> Witness:
        """What somebody outside is asked to do may have been done."""
        current = after.current
        if current is None or not current.suspended or not isinstance(current.phase, Acting):
            return self
        if not any(call.outside and call.plan.effect is not Effect.READ for call in current.phase.calls):
            return self
        return replace(self, touched=self.touched | {current.turn_id})

    def _forgets(self, messages: int, after: Session) -> Witness:
        """What went into a summary, or was cleared, is not there any more."""
        texts = list(_texts(after))
        said = tuple(replace(one, gone=one.gone or not any(one.text in text for text in texts)) for one in self.said)
        current = None if after.current is None else after.current.turn_id
        touched = self.touched | {current} if current and current in self.owners[:messages] else self.touched
        return replace(self, owners=self.owners[messages:], said=said, touched=touched)

    def _owner(self, message: Message, before: Session) -> str | None:
        if message.role is Role.USER:
            spoken = [one for one in self.said if one.text in message.text]
            assert spoken, f"nobody has said {message.text!r}"
            return spoken[0].turn_id
        assert before.current is not None, "an answer came while no turn was there"
        return before.current.turn_id

    # ---- operations -------------------------------------------------------------------------------------------------

    def _watches_operations(self, before: Session, fact: Fact, after: Session) -> Witness:
        wishes = decide(after)
        wanted = frozenset(wish.operation_id for wish in wishes)
        assert len(wanted) == len(wishes), "one operation is wanted twice"
        again = wanted & self.over
        assert again <= {*_did_not_happen(before, fact), *_asked_again(fact)}, "what was over is wanted again"
        ended = self.wanted - wanted
        reported = getattr(fact, "operation_id", None)
        if reported is not None and before.steerable is not None:
            mine = {reported, derived_id("inquiry", reported)}
            assert ended <= mine, "an operation that nobody stopped is not wanted any more"
        if wanted == self.wanted:
            return self
        return replace(self, wanted=wanted, over=(self.over | ended) - wanted)


def _same(before: Message, after: Message, late: set[str]) -> bool:
    """Whether a message is what it was, but for results that stood in for those that have come since."""
    if before is after:
        return True
    results = zip(before.content, after.content, strict=True)
    changed = {block.id for block, new in results if block != new and isinstance(block, ToolResultBlock)}
    return before.id == after.id and before.role is Role.TOOL and changed <= late


def _cleared(before: Session, after: Session) -> bool:
    """Whether the context was cleared: the transcript says so, and somebody has asked for it."""
    new = after.transcript[len(before.transcript) :]
    return any(entry.data.get("change") == "clear_context" for entry in new)


def _summed_up(before: Session, after: Session) -> int:
    """Return how many messages a summary took the place of."""
    new = [entry for entry in after.transcript[len(before.transcript) :] if entry.kind == "summary"]
    return int(str(new[0].data["messages"])) if new else 0


def _did_not_happen(before: Session, fact: Fact) -> set[str]:
    """Return the operations that are known not to have happened by this fact, and may be run again."""
    match fact:
        case FoundOut(operation_id=operation_id) if fact.finding.outcome == "did_not_happen":
            return {operation_id}
        case OutcomesStated():
            return {key for key, stated in fact.outcomes.items() if stated.outcome == "did_not_happen"}
        case _:
            return set()


def _asked_again(fact: Fact) -> set[str]:
    """Return the question that is put to a tool about a call that was lost, perhaps once more."""
    return {derived_id("inquiry", fact.operation_id)} if isinstance(fact, ToolLost) else set()


def rolled_back(before: Session, fact: Fact) -> str | None:
    """Return the turn that a submit takes out of the context, if it is one that does."""
    rolls = isinstance(fact, TurnSubmitted) and fact.on_busy is OnBusy.ROLLBACK and before.current is not None
    return before.current.turn_id if rolls and before.current else None


def _moves_are_allowed(before: Session, fact: Fact, turned: list[TurnRecord]) -> None:
    for record in turned:
        old = before.record(record.turn_id)
        was = None if old is None else old.status
        move = f"turn {record.turn_id} went from {was} to {record.status}"
        assert record.status in MOVES.get(was, set()), move
        if was in STOPPED and record.status is TurnStatus.RUNNING:
            assert isinstance(fact, ResumeRequested), f"{move}, and nobody resumed it"
            assert record.turn_id == fact.turn_id, f"{move}, and another one was resumed"
            assert record.runs[-1].run_id == fact.run_id, f"{move} in another run than was said"


def _turns_start_in_order(witness: Witness, before: Session, after: Session) -> None:
    """First come, first served, but for turns that take the place of the one that they stopped."""
    started = [record.turn_id for record in after.turns if record.runs and not _has_run(before, record.turn_id)]
    if not started:
        return
    (turn_id,) = started
    waiting = {turn.turn_id for turn in after.queue}
    if witness.urgent(turn_id):
        return
    assert after.parked is None, f"turn {turn_id} started while {after.parked} held the queue"
    for submit in witness.submits:
        if submit.turn_id == turn_id:
            break
        assert submit.turn_id not in waiting, f"turn {turn_id} started before {submit.turn_id}"
    assert not any(witness.urgent(one) for one in waiting), f"turn {turn_id} started before an urgent one"


def _has_run(session: Session, turn_id: str) -> bool:
    record = session.record(turn_id)
    return record is not None and bool(record.runs)


def _queue_is_held_and_released(
    witness: Witness, before: Session, fact: Fact, after: Session, turned: list[TurnRecord]
) -> None:
    """The turn that stopped last can be resumed; it holds the queue if it is to, until it is resumed or cancelled."""
    parked = before.parked
    unfinished = None if before.unfinished is None else before.unfinished.turn_id
    if isinstance(fact, ResumeRequested | CancelRequested):
        parked = None if parked == fact.turn_id else parked
        unfinished = None if unfinished == fact.turn_id else unfinished
    if _cleared(before, after):  # what could be resumed was of a context that is gone
        assert after.parked is None or any(record.status in STOPPED for record in turned)
        return
    for record in turned:
        if record.status in STOPPED:
            unfinished = record.turn_id
            # A queue that waits goes on waiting, for the one turn that can be resumed.
            parked = record.turn_id if parked is not None or _parks(witness, record, after) else None
    assert after.parked == parked, f"{after.parked} holds the queue, where {parked} should"
    kept = None if after.unfinished is None else after.unfinished.turn_id
    assert kept == unfinished, f"{kept} can be resumed, where {unfinished} should"


def _parks(witness: Witness, record: TurnRecord, after: Session) -> bool:
    submit = witness.submit(record.turn_id)
    assert submit is not None, f"nobody has submitted {record.turn_id}"
    if record.status is TurnStatus.FAILED:
        return (submit.after_failure or after.limits.after_failure) == "park"
    return (submit.after_interrupt or after.limits.after_interrupt) == "park"


def _nothing_begins_while_paused(before: Session, after: Session) -> None:
    for record in after.turns:
        old = before.record(record.turn_id)
        steps = 0 if old is None else old.steps
        assert steps <= record.steps <= steps + 1, f"turn {record.turn_id} went from step {steps} to {record.steps}"
        if record.steps != steps:
            assert not after.paused, f"a step of {record.turn_id} began while the session was paused"


def _nothing_said_is_lost(witness: Witness, before: Session, after: Session) -> None:
    """What people said is in the context once, or waits to be; it goes only with its turn."""
    same = after.state.context is before.state.context and after.asides is before.asides
    if same and after.queue is before.queue and after.current is before.current:
        return
    texts = list(_texts(after))
    for one in witness.said:
        found = sum(text.count(one.text) for text in texts)
        assert found == (0 if one.gone else 1), f"what was said, {one.text!r}, is there {found} times"


def _texts(session: Session) -> Iterator[str]:
    for message in session.state.context:
        if message.role is Role.USER:
            yield message.text
    for aside in session.asides:
        yield blocks_text(aside.input)
    for turn in session.queue:
        yield blocks_text(turn.input)
    stop = None if session.current is None else session.current.stop
    if stop is not None and stop.message:
        yield stop.message
