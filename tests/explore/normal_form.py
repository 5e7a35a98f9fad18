"""What makes two states of the small session the same."""

from __future__ import annotations

from hashlib import blake2b
from itertools import groupby
from typing import TYPE_CHECKING

from perdure.turns import Acting, CurrentTurn, Due, PlannedCall, Thinking
from tests.explore.events import INJECTED, STEERED, STOPPED

if TYPE_CHECKING:
    from perdure.session import Session
    from tests.support.witness import Witness

KNOWN = "|"


def normal_form(session: Session, witness: Witness) -> bytes:
    """Return equal bytes for states that go on in the same ways.

    Left out are: the transcript and its numbers, revision, usage and rejections, which only count up; times, since time
    stands still; ids of runs, operations and messages, and steps in earlier runs, which only tell things apart; and the
    words of the context. No rule looks at those. Whether each of them is *right* is asked of every step, before its
    state is looked up here, so that none passes unseen because its state was there already. Of the context remains
    whose its messages are, in runs of one owner each, and how far the last worker has read it: a rollback takes all
    messages of an owner, and looks at no others.
    """
    current, kept = session.current, session.unfinished
    form = (
        [(record.turn_id, record.status.value) for record in session.turns],
        session.closing,
        session.paused,
        session.parked,
        None if current is None else (*_turn(current), *_phase(current), _stop(current), _steps(current)),
        None if kept is None else _turn(kept),
        [(turn.turn_id, turn.ahead, turn.after_interrupt) for turn in session.queue],
        [(aside.turn_id, aside.input[0].model_dump_json()) for aside in session.asides],
        [(one.turn_id, one.into) for one in session.joined],
        [(one.turn_id, one.tool, one.doubt.value) for one in session.uncertain],
        [one.result.state.value for one in session.late],
        bool(session.answered),
        _context(session, witness),
        sorted(one.text for one in witness.said if one.text in (STEERED, INJECTED, STOPPED)),
        sum(len(record.runs) for record in session.turns),
    )
    return blake2b(repr(form).encode(), digest_size=12).digest()


def _turn(turn: CurrentTurn) -> tuple[object, ...]:
    return turn.turn_id, turn.suspended, turn.effectful, turn.after_interrupt


def _phase(turn: CurrentTurn) -> tuple[object, ...]:
    match turn.phase:
        case Due():
            return ("due",)
        case Thinking(started=started):
            return ("thinking", started)
        case Acting(calls=calls):
            return ("acting", *(_call(call) for call in calls))


def _call(call: PlannedCall) -> str:
    if call.asking:
        return "asking"
    if call.result is not None:
        return "settled"
    if call.lost is not None:
        return "lost"
    return "wanted" if call.started_at is None else "started"


def _stop(turn: CurrentTurn) -> tuple[object, ...]:
    if turn.stop is None:
        return ()
    # What becomes of half an answer matters to a model call alone.
    partial = turn.stop.partial.value if isinstance(turn.phase, Thinking) else None
    return (turn.stop.reason.value, partial, turn.stop.message)


def _steps(turn: CurrentTurn) -> int:
    return turn.step - turn.first_step


def _context(session: Session, witness: Witness) -> list[str | None]:
    read = session.known.position
    before, behind = witness.owners[:read], witness.owners[read:]
    return [*(owner for owner, _ in groupby(before)), KNOWN, *(owner for owner, _ in groupby(behind))]
