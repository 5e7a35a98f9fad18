"""From an accepted command to the fact that it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from perdure import facts
from perdure.commands import (
    AnyCommand,
    CancelTurn,
    ClearContext,
    Close,
    Compact,
    Inject,
    Interrupt,
    Pause,
    Reconcile,
    Renew,
    Respond,
    ResumeTurn,
    Steer,
    SubmitTurn,
    Unpause,
    UpdateState,
    WaitTurn,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


def fact_of(  # noqa: C901, PLR0912  # a table: one case a command
    command: AnyCommand, at: datetime, new_id: Callable[[], str]
) -> facts.Fact | None:
    """Return what an accepted command means for its session; None for one that does nothing to it.

    Ids that the caller left open are made by `new_id`: the turn's first, then the run's.
    """
    actor = command.actor
    match command:
        case SubmitTurn():
            return facts.TurnSubmitted(
                at,
                command.turn_id or new_id(),
                command.run_id or new_id(),
                command.input,
                command.on_busy,
                command.attributes,
                actor,
                command.after_interrupt,
                command.after_failure,
            )
        case ResumeTurn():
            return facts.ResumeRequested(at, command.turn_id, command.run_id or new_id(), actor)
        case CancelTurn():
            return facts.CancelRequested(at, command.turn_id, actor)
        case Steer():
            return facts.InputSteered(at, command.input, actor)
        case Inject():
            return facts.InputInjected(at, command.input, actor)
        case Interrupt():
            return facts.InterruptRequested(at, command.run_id, command.message, command.partial, actor)
        case Respond():
            return facts.RequestAnswered(at, new_id(), command)
        case Reconcile():
            return facts.OutcomesStated(at, new_id(), command.outcomes, command.reason, actor)
        case UpdateState():
            return facts.StateChanged(at, command.changes, command.reason, actor)
        case ClearContext():
            return facts.ClearRequested(at, actor)
        case Compact():
            return facts.CompactionRequested(at, actor)
        case Pause():
            return facts.PauseRequested(at, command.reason, actor)
        case Unpause():
            return facts.UnpauseRequested(at, command.reason, actor)
        case Close():
            return facts.CloseRequested(at, command.reason, actor)
        case Renew() | WaitTurn():
            return None
        case _:  # pragma: no cover
            assert_never(command)
