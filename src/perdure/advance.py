"""`advance(session, fact)`: the one place where a session changes. The rules themselves are in `perdure.rules`.

Total: any fact is taken in any state and never raises. A fact that no longer matters (a late answer, a repeated
submit) changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from perdure import facts
from perdure.rules import archiving, asked, calls, changes, compacting, interactions, outcomes, reported
from perdure.rules.progress import go_on

if TYPE_CHECKING:
    from perdure.session import Session


def advance(session: Session, fact: facts.Fact) -> Session:
    """Return the session after a fact, and after all that follows from it."""
    return go_on(_taken(session, fact), fact.at)


def _taken(session: Session, fact: facts.Fact) -> Session:  # noqa: C901, PLR0912  # a table: one case a fact
    match fact:
        case facts.TurnSubmitted():
            return asked.turn_submitted(session, fact)
        case facts.ResumeRequested():
            return asked.resume_requested(session, fact)
        case facts.CancelRequested():
            return asked.cancel_requested(session, fact)
        case facts.InputSteered():
            return asked.input_steered(session, fact)
        case facts.InputInjected():
            return asked.input_injected(session, fact)
        case facts.RequestAnswered():
            return interactions.request_answered(session, fact)
        case facts.OutcomesStated():
            return interactions.wake(outcomes.outcomes_stated(session, fact), fact.at, fact.run_id)
        case facts.StateChanged():
            return changes.state_changed(session, fact)
        case facts.ClearRequested():
            return changes.clear_requested(session, fact)
        case facts.CompactionRequested():
            return compacting.compaction_requested(session, fact)
        case facts.PauseRequested():
            return asked.pause_requested(session, fact)
        case facts.UnpauseRequested():
            return asked.unpause_requested(session, fact)
        case facts.InterruptRequested():
            return asked.interrupt_requested(session, fact)
        case facts.CloseRequested():
            return asked.close_requested(session, fact)
        case facts.CommandRejected():
            return asked.command_rejected(session, fact)
        case facts.ModelStarted():
            return reported.model_started(session, fact)
        case facts.ModelAnswered():
            return reported.model_answered(session, fact)
        case facts.ModelFailed():
            return reported.model_failed(session, fact)
        case facts.ToolStarted():
            return calls.start_call(session, fact.at, fact.operation_id)
        case facts.ToolFinished():
            session = outcomes.finish_call(session, fact.at, fact.operation_id, fact.result)
            return interactions.wake_of_itself(session, fact.at)
        case facts.ToolLost():
            return outcomes.lose_call(session, fact)
        case facts.FoundOut():
            return outcomes.found_out(session, fact)
        case facts.GraceExpired():
            return reported.grace_expired(session, fact)
        case facts.TimeExpired():
            return reported.time_expired(session, fact)
        case facts.ArchiveWanted():
            return archiving.wanted(session, fact)
        case facts.Archived():
            return archiving.archived(session, fact)
        case facts.ArchiveFailed():
            return archiving.archive_failed(session, fact)
        case _:  # pragma: no cover
            assert_never(fact)
