"""A session's life without a server: commands are admitted, facts are taken in, and time goes by at each one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from perdure.admission import admit, repeats
from perdure.advance import advance
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
)
from perdure.contract import AfterStop, CallPlan, Finding, Limits, ModelAnswer, SessionStart
from perdure.decide import AskTool, CallModel, CallTool, KeepTranscript, Wanted, Wish, deadline, decide
from perdure.facts import (
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
from perdure.identity import SessionKey
from perdure.intake import fact_of
from perdure.messages import (
    INTERRUPTED_MARK,
    Block,
    Message,
    ResultState,
    Role,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    as_blocks,
)
from perdure.models import Purpose
from perdure.operations import Effect, derived_id
from perdure.results import Interaction, TurnError, TurnStatus
from perdure.session import Session
from perdure.values import EMPTY, FrozenDict, FrozenMap, freeze_object, parse_json
from perdure.views import interactions
from tests.support.strategies import EPOCH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.changes import AnyChange
    from perdure.judging import Opinion

KEY = SessionKey("support", "order-A1042", "alice")


@dataclass(frozen=True)
class Call:
    """A tool call that a model asks for, in the words of a test."""

    tool: str = "look"
    effect: Effect = Effect.READ
    refusal: str | None = None
    planned: bool = True
    opinion: Opinion | None = None
    subject: str | None = None
    external: bool = False
    builtin: bool = False
    reconcilable: bool = False
    arguments: FrozenDict = EMPTY


@dataclass
class Life:
    """One session and its clock. Methods that give a fact return the session after it."""

    session: Session = field(default_factory=lambda: Session.new(KEY))
    at: datetime = EPOCH
    limits: Limits = field(default_factory=Limits)
    ids: int = 0

    eager: bool = True
    """Whether a model call is handed out as soon as it is wanted, as it is by the workflow."""

    usage: Usage = field(default_factory=lambda: Usage(10, 5))
    """The tokens that each answer says it has used."""

    tick: timedelta = timedelta(seconds=1)
    """How much time passes with each fact."""

    def take(self, fact: Fact) -> Session:
        """Take in a fact."""
        self.session = advance(self.session, fact)
        if self.eager:
            self.begin()
        return self.session

    def begin(self) -> Session:
        """Hand out the model call that is wanted, if one is."""
        for wish in decide(self.session):
            if isinstance(wish, CallModel) and wish.wanted is Wanted.RUN:
                self.session = advance(self.session, ModelStarted(self.at, wish.operation_id))
        return self.session

    def command(self, command: AnyCommand) -> Session:
        """Have a command admitted like the workflow admits it, which raises when it is refused, and take it in."""
        admit(self.session, command)
        if isinstance(command, SubmitTurn) and repeats(self.session, command):
            return self.session
        fact = fact_of(command, self.now(), self.fresh_id)
        return self.session if fact is None else self.take(fact)

    def fresh_id(self) -> str:
        """Return an id that was never used."""
        self.ids += 1
        return f"id-{self.ids}"

    def now(self) -> datetime:
        """Let some time pass, and return what time it is."""
        self.at += self.tick
        return self.at

    def carry_over(self) -> None:
        """Continue as new: nothing but the JSON of the next run's input survives."""
        start = json.dumps({"carried": self.session.model_dump(mode="json")})
        self.session = Session.model_validate(SessionStart.model_validate(parse_json(start)).carried)

    # ---- commands -------------------------------------------------------------------------------------------------

    def submit(
        self,
        text: str = "hello",
        *,
        turn_id: str,
        run_id: str | None = None,
        on_busy: OnBusy = OnBusy.ENQUEUE,
        after_interrupt: AfterStop | None = None,
        after_failure: AfterStop | None = None,
    ) -> Session:
        """Submit a turn."""
        command = SubmitTurn(
            input=(TextBlock(text),),
            turn_id=turn_id,
            run_id=run_id or f"run-of-{turn_id}",
            on_busy=on_busy,
            after_interrupt=after_interrupt,
            after_failure=after_failure,
        )
        return self.command(command)

    def interrupt(
        self, *, run_id: str | None = None, message: str | None = None, partial: Partial = Partial.KEEP
    ) -> Session:
        """Interrupt what runs."""
        return self.command(Interrupt(run_id=run_id, message=message, partial=partial))

    def resume(self, turn_id: str, *, run_id: str | None = None) -> Session:
        """Resume a turn."""
        return self.command(ResumeTurn(turn_id=turn_id, run_id=run_id))

    def cancel(self, turn_id: str) -> Session:
        """Cancel a turn."""
        return self.command(CancelTurn(turn_id=turn_id))

    def steer(self, text: str = "and this", *, run_id: str | None = None) -> Session:
        """Steer the running turn."""
        return self.command(Steer(input=(TextBlock(text),), run_id=run_id))

    def inject(self, text: str = "by the way") -> Session:
        """Inject input."""
        return self.command(Inject(input=(TextBlock(text),)))

    def respond(self, approve: bool | dict[str, Decision] | None = None, **fields: object) -> Session:  # noqa: FBT001
        """Answer what is asked, or the request that is named."""
        given = {"request_id": self.asked.request_id, **fields} if "request_id" not in fields else fields
        return self.command(Respond.model_validate({"approve": approve, **given}))

    def reconcile(self, **outcomes: str) -> Session:
        """Say of each tool's operation, or of all by `every`, what became of it."""
        stated = {
            one.operation_id: Settlement.model_validate(
                {"outcome": outcomes.get(one.tool, outcomes.get("every")), "result": "as the ledger says"}
            )
            for one in self.session.uncertain
            if one.tool in outcomes or "every" in outcomes
        }
        return self.command(Reconcile(outcomes=FrozenMap(stated), reason="looked it up", actor="bob"))

    def update(self, *changes: AnyChange, revision: int | None = None) -> Session:
        """Change the state."""
        expected = self.session.state.revision if revision is None else revision
        return self.command(UpdateState(changes=changes, expected_revision=expected, reason="because", actor="bob"))

    def clear(self, *, when_idle: bool = False) -> Session:
        """Clear the context."""
        return self.command(ClearContext(when_idle=when_idle))

    def compact(self) -> Session:
        """Ask for a summary."""
        return self.command(Compact(actor="bob"))

    def pause(self) -> Session:
        """Pause the session."""
        return self.command(Pause(reason="wait"))

    def unpause(self) -> Session:
        """Go on."""
        return self.command(Unpause())

    def close(self, reason: str | None = None) -> Session:
        """Close the session."""
        return self.command(Close(reason=reason))

    def reject(self, error: str = "InvalidCommand") -> Session:
        """Record a refused signal."""
        return self.take(CommandRejected(self.now(), "submit_turn", error, "refused"))

    # ---- what comes back from the edge ------------------------------------------------------------------------------

    def answer(self, text: str = "", *calls: Call, operation_id: str | None = None, partial: bool = False) -> Session:
        """Have the model answer."""
        operation_id = operation_id or self.model_operation
        return self.take(ModelAnswered(self.now(), operation_id, self.model_answer(operation_id, text, calls, partial)))

    def model_answer(self, operation_id: str, text: str, calls: Sequence[Call], partial: bool) -> ModelAnswer:  # noqa: FBT001
        """Return an answer with calls whose ids are new."""
        ids = [f"call_{derived_id(operation_id, str(index))[:13]}" for index in range(len(calls))]
        said: list[Block] = [TextBlock(text)] if text or not calls else []
        used = [
            ToolUseBlock(id=call_id, name=call.tool, input=call.arguments)
            for call_id, call in zip(ids, calls, strict=True)
        ]
        message = Message(
            id=derived_id("message", operation_id),
            role=Role.ASSISTANT,
            content=(*said, *used),
            metadata=freeze_object({INTERRUPTED_MARK: True}) if partial else EMPTY,
        )
        plans = tuple(
            CallPlan(
                call_id=call_id,
                tool=call.tool,
                effect=call.effect,
                refusal=call.refusal,
                opinion=call.opinion,
                subject=call.subject,
                external=call.external,
                builtin=call.builtin,
                reconcilable=call.reconcilable,
                arguments=call.arguments,
                meta_groups=("web", "shop") if call.builtin else (),
            )
            for call_id, call in zip(ids, calls, strict=True)
            if call.planned
        )
        return ModelAnswer(message=message, plans=plans, limits=self.limits, usage=self.usage, partial=partial)

    def fail(self, *, operation_id: str | None = None) -> Session:
        """Have the model call fail for good."""
        error = TurnError(type="ModelError", message="no such model")
        return self.take(ModelFailed(self.now(), operation_id or self.model_operation, error))

    def start(self, index: int) -> Session:
        """Hand a tool call out."""
        return self.take(ToolStarted(self.now(), self.tool_operation(index)))

    def finish(self, index: int, text: str = "done", *, operation_id: str | None = None) -> Session:
        """Have a tool call end with a result."""
        block = ToolResultBlock(id="whatever", name="whatever", output=as_blocks_of_text(text))
        return self.take(ToolFinished(self.now(), operation_id or self.tool_operation(index), block))

    def lose(self, index: int, *, operation_id: str | None = None) -> Session:
        """Lose a tool call's outcome."""
        return self.take(ToolLost(self.now(), operation_id or self.tool_operation(index), "the worker was lost"))

    def find_out(self, outcome: str, text: str = "as the ledger says") -> Session:
        """Have the tool that is asked say what became of its call."""
        (wish,) = [wish for wish in decide(self.session) if isinstance(wish, AskTool)]
        block = ToolResultBlock(id="whatever", name="whatever", output=as_blocks_of_text(text))
        finding = Finding.model_validate({"outcome": outcome, "result": block if outcome == "happened" else None})
        return self.take(FoundOut(self.now(), wish.about, finding))

    def ring(self) -> Session:
        """Let the time pass until it brings something."""
        due = deadline(self.session)
        assert due is not None
        self.at = max(self.at, due.at)
        return self.take(TimeExpired(self.at, due.about))

    def expire(self, operation_id: str) -> Session:
        """Let the time run out that a stopped operation had."""
        return self.take(GraceExpired(self.now(), operation_id))

    def time_out(self, run_id: str | None = None) -> Session:
        """Let the time run out that a run may take, if it has a limit."""
        running, due = self.session.running, deadline(self.session)
        self.at = max(self.now(), due.at if due else self.at)
        return self.take(TimeExpired(self.at, run_id or (running.run_id if running else "nobody's")))

    # ---- what can be seen -------------------------------------------------------------------------------------------

    @property
    def model_operation(self) -> str:
        """The model call that is wanted."""
        (wish,) = [wish for wish in decide(self.session) if isinstance(wish, CallModel)]
        return wish.operation_id

    def tool_operation(self, index: int) -> str:
        """The tool call of this index that is wanted."""
        (wish,) = [wish for wish in decide(self.session) if isinstance(wish, CallTool) and wish.index == index]
        return wish.operation_id

    @property
    def wanted(self) -> list[str]:
        """What should be in flight, in short: `model`, `summary`, a tool's name; with `?` when it was asked to end."""
        return [_short(wish) + ("?" if wish.wanted is Wanted.SETTLE else "") for wish in decide(self.session)]

    @property
    def asked(self) -> Interaction:
        """The one thing that the suspended turn waits for."""
        (one,) = interactions(self.session)
        return one

    def status(self, turn_id: str) -> TurnStatus:
        """Where a turn is."""
        record = self.session.record(turn_id)
        assert record is not None, turn_id
        return record.status

    @property
    def said(self) -> list[tuple[str, str]]:
        """The context, in short: who said which text."""
        return [(message.role.value, message.text) for message in self.session.state.context]

    @property
    def results(self) -> list[ToolResultBlock]:
        """The tool results that the model will see, in order."""
        return [result for message in self.session.state.context for result in message.results]

    def kinds(self, turn_id: str) -> list[str]:
        """The kinds of a turn's transcript entries, in order."""
        return [entry.kind for entry in self.session.transcript if entry.turn_id == turn_id]


def _short(wish: Wish) -> str:
    match wish:
        case CallModel():
            return "summary" if wish.purpose is Purpose.SUMMARY else "model"
        case CallTool():
            return wish.plan.tool
        case AskTool():
            return f"what became of {wish.plan.tool}"
        case KeepTranscript():
            return "archive"


def as_blocks_of_text(text: str) -> tuple[TextBlock, ...]:
    """Return text as a tool's output."""
    return tuple(block for block in as_blocks(text) if isinstance(block, TextBlock))


def result_states(life: Life) -> list[ResultState]:
    """Return how the tool calls of a session ended, in order."""
    return [result.state for result in life.results]
