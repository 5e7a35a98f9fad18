"""Flights: the activities that are under way for a session. Starts what is wanted, stops what is not, reports facts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import assert_never

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    TimeoutError as TemporalTimeoutError,
    TimeoutType,
    is_cancelled_exception,
)

from perdure import contract
from perdure.contract import ArchiveAnswer, CallPlan, Finding, Limits, ModelAnswer, ToolAnswer
from perdure.decide import (
    AskTool,
    CallModel,
    CallTool,
    KeepTranscript,
    Wanted,
    Wish,
    inquiry,
    model_call,
    tool_invocation,
)
from perdure.facts import (
    Archived,
    ArchiveFailed,
    Fact,
    FoundOut,
    GraceExpired,
    ModelAnswered,
    ModelFailed,
    ModelStarted,
    ToolFinished,
    ToolLost,
    ToolStarted,
)
from perdure.messages import ResultState, TextBlock, ToolResultBlock
from perdure.operations import Effect
from perdure.results import TurnError
from perdure.session import Session
from workflows import timeouts

Take = Callable[[Fact], None]
ReadSession = Callable[[], Session]


class Flights:
    """The operations in flight, by operation id."""

    def __init__(self, take: Take, session: ReadSession) -> None:
        """Report facts to `take`; read payloads from `session`."""
        self._take = take
        self._session = session
        self._handles: dict[
            str,
            workflow.ActivityHandle[ModelAnswer]
            | workflow.ActivityHandle[ToolAnswer]
            | workflow.ActivityHandle[Finding]
            | workflow.ActivityHandle[ArchiveAnswer],
        ] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._graces: dict[str, asyncio.Task[None]] = {}
        self._effectful: set[str] = set()
        self._repeatable: set[str] = set()
        self._loose: dict[str, asyncio.Task[None]] = {}
        self._failure: BaseException | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing is in flight whose result a new run would miss.

        A question to a tool it asks again, and what the archive has got it gives it once more.
        """
        return self._tasks.keys() <= self._repeatable and not self._loose

    @property
    def settled(self) -> bool:
        """Whether no operation is under way whose effect may be happening."""
        return self._effectful.isdisjoint(self._tasks.keys() | self._loose.keys())

    @property
    def failed(self) -> bool:
        """Whether our own code failed, which must be seen and not swallowed."""
        return self._failure is not None

    def raise_failure(self) -> None:
        """Raise the failure of our own code, if there is one, so that the workflow task fails and is tried again."""
        if self._failure is not None:
            raise self._failure

    def perform(self, wishes: Sequence[Wish]) -> None:
        """Bring what is in flight in line with what is wanted."""
        wanted = {wish.operation_id: wish for wish in wishes}
        for operation_id in [one for one in self._tasks if one not in wanted]:
            self._abandon(operation_id)
        for wish in wishes:
            match wish.wanted:
                case Wanted.RUN:
                    if wish.operation_id not in self._tasks:
                        self._start(wish)
                case Wanted.SETTLE:
                    self._ask_to_settle(wish.operation_id)
                case _:  # pragma: no cover
                    assert_never(wish.wanted)

    def _start(self, wish: Wish) -> None:
        about = f"turn:{wish.turn_id}" if wish.turn_id else "the session"
        group = workflow.create_event_group(about, label=about.replace(":", " ", 1))
        with group.scope():  # the task has to be made inside: it takes the scope with it
            match wish:
                case CallModel():
                    flight = self._fly_model(wish)
                case CallTool():
                    flight = self._fly_tool(wish)
                case AskTool():
                    flight = self._fly_inquiry(wish)
                case KeepTranscript():
                    flight = self._fly_archive(wish)
            self._tasks[wish.operation_id] = asyncio.create_task(self._land(wish.operation_id, flight))

    async def _land(self, operation_id: str, flight: Awaitable[None]) -> None:
        """See a flight through to its end, whether anybody still cares for it or not."""
        try:
            await self.caught(flight)
        finally:
            self._handles.pop(operation_id, None)
            self._tasks.pop(operation_id, None)
            self._loose.pop(operation_id, None)
            self._end_grace(operation_id)

    async def caught(self, work: Awaitable[None]) -> None:
        """Keep a failure of our own code for the main loop to raise, where it would be lost with the task."""
        try:
            await work
        except Exception as error:  # noqa: BLE001  # the main loop raises it; activity failures never get here
            self._failure = error

    def _abandon(self, operation_id: str) -> None:
        """Stop caring for an operation: cancelled if it has no effect; whatever it still reports is a late fact."""
        handle = self._handles.pop(operation_id, None)
        if handle is not None and operation_id not in self._effectful:
            handle.cancel()
        task = self._tasks.pop(operation_id)
        if operation_id in self._effectful:
            self._loose[operation_id] = task
        self._end_grace(operation_id)

    def _ask_to_settle(self, operation_id: str) -> None:
        """Give a stopped operation a bounded time.

        A model call is cancelled, and hands back what it has streamed; a tool with an effect is left to finish, since
        its real result is worth more than its end.
        """
        if operation_id in self._graces:
            return
        handle = self._handles.get(operation_id)
        if handle is not None and operation_id not in self._effectful:
            handle.cancel()
        self._graces[operation_id] = asyncio.create_task(self.caught(self._grace(operation_id)))

    async def _grace(self, operation_id: str) -> None:
        await workflow.sleep(timeouts.INTERRUPT_GRACE, summary="time to settle after an interrupt")
        self._take(GraceExpired(workflow.now(), operation_id))

    def _end_grace(self, operation_id: str) -> None:
        grace = self._graces.pop(operation_id, None)
        if grace is not None:
            grace.cancel()

    # ---- model calls --------------------------------------------------------------------------------------------

    async def _fly_model(self, wish: CallModel) -> None:
        handle = workflow.start_activity(
            contract.MODEL_ACTIVITY,
            model_call(self._session(), wish),
            result_type=ModelAnswer,
            activity_id=wish.activity_id,
            start_to_close_timeout=timeouts.MODEL_ATTEMPT,
            heartbeat_timeout=timeouts.MODEL_HEARTBEAT,
            retry_policy=timeouts.MODEL_RETRIES,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=f"step {wish.step}" if wish.step else wish.purpose.value,
        )
        self._handles[wish.operation_id] = handle
        self._take(ModelStarted(workflow.now(), wish.operation_id))
        try:
            answer = await handle
        except ActivityError as error:
            self._take(ModelFailed(workflow.now(), wish.operation_id, _turn_error(error), _limits(error)))
        else:
            self._take(ModelAnswered(workflow.now(), wish.operation_id, answer))

    # ---- tool calls ---------------------------------------------------------------------------------------------

    async def _fly_tool(self, wish: CallTool) -> None:
        plan = wish.plan
        if plan.effect is not Effect.READ:
            self._effectful.add(wish.operation_id)
        handle = workflow.start_activity(
            plan.tool,
            tool_invocation(self._session(), wish),
            result_type=ToolAnswer,
            activity_id=wish.activity_id,
            task_queue=plan.task_queue,
            start_to_close_timeout=timeouts.tool_attempt(plan),
            heartbeat_timeout=timeouts.tool_heartbeat(plan),
            retry_policy=timeouts.tool_retries(plan),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=plan.summary or None,
        )
        self._handles[wish.operation_id] = handle
        self._take(ToolStarted(workflow.now(), wish.operation_id))
        try:
            answer = await handle
        except ActivityError as error:
            self._take(_tool_fact(wish, error))
        else:
            self._take(ToolFinished(workflow.now(), wish.operation_id, answer.result))

    # ---- questions to tools -------------------------------------------------------------------------------------

    async def _fly_inquiry(self, wish: AskTool) -> None:
        question = inquiry(self._session(), wish)
        if question is None:
            return
        self._repeatable.add(wish.operation_id)
        handle = workflow.start_activity(
            contract.INQUIRY_ACTIVITY,
            question,
            result_type=Finding,
            activity_id=wish.activity_id,
            task_queue=wish.plan.task_queue,
            start_to_close_timeout=timeouts.tool_attempt(wish.plan),
            heartbeat_timeout=timeouts.tool_heartbeat(wish.plan),
            retry_policy=timeouts.INQUIRY_RETRIES,
            summary=f"what became of {wish.plan.tool}?",
        )
        self._handles[wish.operation_id] = handle
        try:
            finding = await handle
        except ActivityError as error:
            finding = Finding(outcome="unknown", why=str(error.cause))
        self._take(FoundOut(workflow.now(), wish.about, finding))

    # ---- the archive --------------------------------------------------------------------------------------------

    async def _fly_archive(self, wish: KeepTranscript) -> None:
        self._repeatable.add(wish.operation_id)
        last = wish.call.checkpoint
        handle = workflow.start_activity(
            contract.ARCHIVE_ACTIVITY,
            wish.call,
            result_type=ArchiveAnswer,
            activity_id=wish.activity_id,
            start_to_close_timeout=timeouts.ARCHIVE_ATTEMPT,
            retry_policy=timeouts.ARCHIVE_LAST_RETRIES if last else timeouts.ARCHIVE_RETRIES,
            summary=f"entries {wish.call.after + 1} to {wish.call.upto}",
        )
        self._handles[wish.operation_id] = handle
        try:
            answer = await handle
        except ActivityError as error:
            if not is_cancelled_exception(error):
                self._take(ArchiveFailed(workflow.now()))
        else:
            self._take(Archived(workflow.now(), answer.upto, answer.kept, checkpoint=last))


def _turn_error(error: ActivityError) -> TurnError:
    match error.cause:
        case ApplicationError() as cause:
            return TurnError(type=cause.type or "ModelError", message=cause.message)
        case TemporalTimeoutError() as cause:
            return TurnError(type="ModelTimeout", message=f"the model call timed out: {cause.message}")
        case _:
            return TurnError(type="ModelCancelled", message="the model call was cancelled")


def _limits(error: ActivityError) -> Limits | None:
    """Return the agent's limits, which a failed model call brings along if it got as far as to its agent."""
    details = error.cause.details if isinstance(error.cause, ApplicationError) else ()
    try:
        return Limits.model_validate(details[0]) if details else None
    except ValidationError:
        return None


def _tool_fact(wish: CallTool, error: ActivityError) -> Fact:
    """Tell a definite failure of a tool call from an unknown outcome."""
    at = workflow.now()
    cause = error.cause
    may_have_happened = wish.plan.effect is Effect.ONCE
    if is_cancelled_exception(error):
        state, text = ResultState.INTERRUPTED, "the call was cancelled"
        may_have_happened = may_have_happened and bool(error.started_event_id)
    elif isinstance(cause, TemporalTimeoutError):
        state, text = ResultState.ERROR, _timeout_text(wish.plan, cause)
        may_have_happened = may_have_happened and cause.type is not TimeoutType.SCHEDULE_TO_START
    else:
        state, text = ResultState.ERROR, cause.message if isinstance(cause, ApplicationError) else str(cause)
        kind = cause.type if isinstance(cause, ApplicationError) else None
        if kind == contract.ERROR_UNWANTED:
            state = ResultState.INTERRUPTED
        known = kind in (contract.ERROR_NOT_STARTED, contract.ERROR_UNWANTED)
        may_have_happened = (may_have_happened and not known) or kind == contract.ERROR_UNCERTAIN
    if may_have_happened:
        return ToolLost(at, wish.operation_id, text, over=_over(cause))
    block = ToolResultBlock(id=wish.plan.call_id, name=wish.plan.tool, output=(TextBlock(text),), state=state)
    return ToolFinished(at, wish.operation_id, block)


def _over(cause: BaseException | None) -> bool:
    """Tell whether an attempt has surely ended. One of a worker that was lost, or in a thread, may still be at it."""
    if isinstance(cause, ApplicationError):
        return contract.NOT_OVER not in cause.details
    return not isinstance(cause, TemporalTimeoutError)


def _timeout_text(plan: CallPlan, cause: TemporalTimeoutError) -> str:
    if cause.type is TimeoutType.HEARTBEAT:
        return f"the worker that ran {plan.tool} was lost"
    if cause.type is TimeoutType.SCHEDULE_TO_START:
        return f"no worker took {plan.tool} up; it did not run"
    return f"{plan.tool} did not answer within {plan.timeout_seconds:g} s"
