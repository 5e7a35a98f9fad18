"""The record of a turn's runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from perdure.messages import Usage
from perdure.results import RunView, TurnStatus
from perdure.session import Session, change, with_entry, with_record

if TYPE_CHECKING:
    from datetime import datetime

    from perdure.turns import CurrentTurn


def begin_run(session: Session, at: datetime, current: CurrentTurn) -> Session:
    """Record that a turn runs."""
    record = session.record(current.turn_id)
    runs = () if record is None else record.runs
    runs = (*runs, RunView(run_id=current.run_id, started_at=at))
    session = with_record(session, current.turn_id, status=TurnStatus.RUNNING, runs=runs, error=None)
    return with_entry(session, at, "run", turn_id=current.turn_id, run_id=current.run_id)


def end_run(session: Session, at: datetime, current: CurrentTurn, status: TurnStatus) -> Session:
    """Record how a run ended. One that had ended already, since its turn was suspended, keeps its own end."""
    record = session.record(current.turn_id)
    runs = () if record is None else record.runs
    if runs and runs[-1].ended_at is None:
        runs = (*runs[:-1], change(runs[-1], ended_at=at, outcome=status))
    session = with_record(session, current.turn_id, status=status, runs=runs)
    return with_entry(
        session,
        at,
        "turn",
        turn_id=current.turn_id,
        run_id=current.run_id,
        status=status.value,
        steps=current.step,
        usage=asdict(Usage() if record is None else record.usage),
    )
