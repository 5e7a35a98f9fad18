"""The session's workflow: feeds facts into `advance` and performs what `decide` wants. It holds no rule of a session.

Signals and updates are taken raw, by one dynamic handler each, so that nothing that anybody sends can be dropped
unseen or fail a workflow task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, assert_never, cast

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from temporalio.common import SearchAttributeUpdate

from pydantic import ValidationError

from perdure import contract
from perdure.admission import admit, repeats
from perdure.advance import advance
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
from perdure.contract import (
    CheckpointSlice,
    Closed,
    ContextPage,
    PageRequest,
    SessionStart,
    Slice,
    StateRequest,
    TranscriptPage,
    TurnRequest,
    WantedOperations,
)
from perdure.decide import Wanted, deadline, decide
from perdure.errors import ContextTooLarge, InvalidCommand, PerdureError
from perdure.facts import ArchiveWanted, CloseRequested, CommandRejected, Fact, TurnSubmitted
from perdure.identity import SessionKey
from perdure.intake import fact_of
from perdure.renewal import RunSize, renewal_due, weight
from perdure.results import (
    CloseReceipt,
    InterruptReceipt,
    Receipt,
    RenewReceipt,
    SessionStatus,
    SessionView,
    TurnAnswer,
    TurnView,
)
from perdure.rules import archiving
from perdure.session import Session, change, status_of
from perdure.state import AgentState
from perdure.values import json_bytes
from perdure.views import (
    cancel_receipt,
    change_receipt,
    checkpoint_slice,
    context_page,
    inject_receipt,
    interrupt_receipt,
    pause_receipt,
    reconcile_receipt,
    respond_receipt,
    resume_receipt,
    session_view,
    snapshot,
    steer_receipt,
    submit_receipt,
    transcript_page,
    turn_view,
)
from workflows import inspection, patches, wire
from workflows.alarm import Alarm
from workflows.flights import Flights
from workflows.opening import Opening

MAX_WAITERS = 4
"""Updates that may wait for a turn at once. Temporal delivers no more than ten updates at a time to a workflow, so
that ten waiters would keep an interrupt out; those above the bound are told to ask again."""

MAX_STOP_WAITERS = 3
"""Updates that may wait for a turn to stop, which takes a bounded time. Those above are answered at once."""

RENEWAL_ATTEMPTS = 2
RENEWAL_PAUSE = timedelta(milliseconds=1)
"""How often a new run is put off for answers of the same workflow task. While many ask, each task may have one; and the
server's timers take their time, in which the session does not go on."""

MAX_STATE_BYTES = 1_000_000
"""A state above this is not given whole by a query; it is read in pages. Temporal refuses an answer above 4 MB."""


@workflow.defn(name=contract.WORKFLOW_TYPE)
class AgentSession:
    """A conversation between a user and an agent, as one durable workflow."""

    @workflow.init
    def __init__(self, raw: RawValue = wire.NOTHING) -> None:
        """Seed the state before any handler runs, so that no signal is ahead of what was carried over."""
        self._broken: PerdureError | None = None
        self._draining = False
        self._leaving = False
        self._waiters = 0
        self._stop_waiters = 0
        self._answered_at = 0
        self._archive_asked = False
        self._seen_seq = 0
        self._flights = Flights(self._take, lambda: self._session)
        self._alarm = Alarm(self._take, self._flights.caught)
        self._carried = weight(len(raw.payload.data), stored=contract.RETRIEVED in raw.payload.metadata)
        self._opening: Opening | None = None
        self._early: list[tuple[str, Sequence[RawValue]]] = []
        try:
            self._session, self._ways, self._opening = _begin(workflow.info().workflow_id, raw)
        except PerdureError as error:
            self._broken = error
            self._session, self._ways = Session.new(SessionKey("unknown", "unknown")), frozenset[str]()

    @workflow.run
    async def run(self, raw: RawValue = wire.NOTHING) -> Closed:
        """Serve the session until it is closed, or until it continues as a new run."""
        del raw
        if self._broken is not None:
            raise wire.failure(self._broken)
        await self._open()
        cancelled: asyncio.CancelledError | None = None
        while not self._over():
            try:
                await self._serve()
            except asyncio.CancelledError as error:
                cancelled = error
                self._take(CloseRequested(workflow.now(), "cancelled in Temporal", for_good=True))
        self._show()
        await workflow.wait_condition(workflow.all_handlers_finished)
        if cancelled is not None:
            raise cancelled
        return Closed(reason=self._session.close_reason, turns=self._session.turn_count)

    def _over(self) -> bool:
        """Whether the session is closed and nothing of it can still happen."""
        if not self._session.closed or (self._session.archives and not self._session.checkpointed):
            return False
        return self._settled_all or not self._goes(patches.SETTLE_THEN_END)

    @property
    def _settled_all(self) -> bool:
        """Whether nothing more can come to a closed session: no effect, and no word of the archive."""
        return self._flights.settled and (not self._session.archives or self._session.checkpointed)

    async def _open(self) -> None:
        """Go on with what the archive has of a session that was closed, before anything is taken in."""
        if self._opening is None:
            return
        self._show()
        self._session = await self._opening.opened(self._session)
        self._opening, early = None, self._early
        for name, args in early:
            self.on_signal(name, args)

    async def _serve(self) -> None:
        """Perform what the session wants now, and wait until something has happened to it."""
        self._show()
        if self._flights.empty:
            due, self._seen_seq = self._due(), self._session.last_seq
            if due:
                await self._renew()
        seen, leaving = self._session, self._leaving
        self._flights.perform(decide(self._session))
        self._alarm.set(deadline(self._session))
        await workflow.wait_condition(
            lambda: (
                self._session is not seen
                or self._leaving is not leaving
                or self._flights.failed
                or (seen.closed and self._settled_all)
            )
        )
        self._flights.raise_failure()

    # ---- facts --------------------------------------------------------------------------------------------------

    def _take(self, fact: Fact) -> None:
        self._session = advance(self._session, fact)

    # ---- commands -----------------------------------------------------------------------------------------------

    @workflow.signal(dynamic=True)
    def on_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Take a command that waits for no answer. What can't be accepted is recorded; this never raises."""
        if self._broken is not None:
            return
        if self._opening is not None:
            self._early.append((name, args))
            return
        try:
            command = wire.command(name, args, by_signal=True)
            admit(self._session, command, workflow.now())
        except PerdureError as error:
            self._take(CommandRejected(_now(), name[:200], type(error).__name__, str(error)[:500]))
            return
        self._accept(command)

    @workflow.update(dynamic=True)
    async def on_update(self, name: str, args: Sequence[RawValue]) -> object:
        """Take a command and answer it."""
        command = wire.command(name, args)
        if self._opening is not None:
            await workflow.wait_condition(lambda: self._opening is None)
            self._check(command)
        try:
            return await self._answer(command)
        finally:
            if not isinstance(command, SubmitTurn | WaitTurn):  # those are asked again by who has lost the answer
                self._answered_at = workflow.info().get_current_history_length()

    async def _answer(self, command: AnyCommand) -> object:  # noqa: C901, PLR0912  # a table: one case a command
        match command:
            case SubmitTurn():
                return await self._submit(command)
            case WaitTurn():
                return await self._wait_turn(command.turn_id)
            case Interrupt() | CancelTurn():
                return await self._stop(command)
            case Close():
                self._accept(command)
                await workflow.wait_condition(lambda: self._session.closed)
                return CloseReceipt(cancelled=self._session.cancelled_by_close)
            case ResumeTurn():
                self._accept(command)
                return resume_receipt(self._session, command.turn_id)
            case Steer():
                answer = steer_receipt(self._session)
                self._accept(command)
                return answer
            case Inject():
                answer = inject_receipt(self._session)
                self._accept(command)
                return answer
            case Respond():
                turn_id = self._turn_id()
                self._accept(command)
                return respond_receipt(self._session, turn_id)
            case Reconcile():
                turn_id = self._turn_of(command)
                self._accept(command)
                return reconcile_receipt(self._session, turn_id)
            case UpdateState() | ClearContext() | Compact():
                self._accept(command)
                return change_receipt(self._session)
            case Pause() | Unpause():
                self._accept(command)
                return pause_receipt(self._session)
            case Renew():
                self._accept(command)
                return RenewReceipt(in_flight=not self._flights.empty)
            case _:  # pragma: no cover
                assert_never(command)

    @on_update.validator
    def check_update(self, name: str, args: Sequence[RawValue]) -> None:
        """Refuse what can't be carried out, before it leaves an event."""
        if self._broken is not None:
            raise wire.failure(self._broken)
        try:
            command = wire.command(name, args)
        except PerdureError as error:
            raise wire.failure(error) from None
        if self._opening is None:
            self._check(command)

    def _check(self, command: AnyCommand) -> None:
        try:
            admit(self._session, command, workflow.now())
        except PerdureError as error:
            raise wire.failure(error) from None

    def _accept(self, command: AnyCommand) -> Fact | None:
        """Take a command in. A submit that repeats another is accepted and means nothing."""
        if isinstance(command, SubmitTurn) and repeats(self._session, command):
            return None
        if isinstance(command, Renew):
            self._leaving = True
        fact = fact_of(command, _now(), _new_id)
        if fact is not None:
            self._take(fact)
        return fact

    async def _submit(self, command: SubmitTurn) -> Receipt | TurnAnswer:
        fact = self._accept(command)
        turn_id = fact.turn_id if isinstance(fact, TurnSubmitted) else command.turn_id or ""
        answer = submit_receipt(self._session, turn_id, repeated=fact is None)
        if answer is None:
            msg = "the session was closed before the turn could be taken; submit again to open it anew"
            raise ApplicationError(msg, type="SessionClosed", non_retryable=True)
        if command.wait == "accepted":
            return answer
        waited = await self._wait_turn(answer.turn_id)
        return TurnAnswer(receipt=answer, result=waited.result, detached=waited.detached)

    async def _stop(self, command: Interrupt | CancelTurn) -> InterruptReceipt | Receipt:
        """Stop something, and answer when it has stopped, which takes as long as its operations may take to settle.

        Where too many wait for that already, the answer comes at once.
        """
        running = self._session.running
        interrupted = interrupt_receipt(self._session)
        self._accept(command)
        hit = running is not None and (isinstance(command, Interrupt) or command.turn_id == running.turn_id)
        waits = running is not None and hit and self._stop_waiters < MAX_STOP_WAITERS
        if running is not None and waits and self._goes(patches.STOP_THEN_ANSWER):
            self._stop_waiters += 1
            try:
                await workflow.wait_condition(lambda: self._draining or not self._runs(running.run_id))
            finally:
                self._stop_waiters -= 1
        if isinstance(command, CancelTurn):
            return cancel_receipt(self._session, command.turn_id)
        stopped = running is None or not self._runs(running.run_id)
        return interrupted.model_copy(update={"stopped": stopped})

    def _turn_id(self) -> str:
        return "" if self._session.current is None else self._session.current.turn_id

    def _turn_of(self, command: Reconcile) -> str:
        """Return the turn that outcomes are stated for: the one that waits for them, if it does."""
        turns = [one.turn_id for one in self._session.uncertain if one.operation_id in command.outcomes]
        return self._turn_id() if self._turn_id() in turns or not turns else turns[0]

    def _runs(self, run_id: str) -> bool:
        running = self._session.running
        return running is not None and running.run_id == run_id

    async def _wait_turn(self, turn_id: str) -> TurnAnswer:
        """Wait until a turn is settled, if there is room for one more who waits."""
        if self._waiters < MAX_WAITERS:
            self._waiters += 1
            try:
                await workflow.wait_condition(lambda: self._draining or self._settled(turn_id))
            finally:
                self._waiters -= 1
        turn = turn_view(self._session, turn_id)
        if turn is None:
            msg = f"turn {turn_id!r} is no longer remembered"
            raise ApplicationError(msg, type="TurnNotFound", non_retryable=True)
        return TurnAnswer(result=turn.result(), detached=turn.archived or not turn.status.settled)

    def _settled(self, turn_id: str) -> bool:
        status = status_of(self._session, turn_id)
        return status is None or status.settled

    # ---- queries ------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        """Refuse to be read while what the session was is still being fetched."""
        if self._opening is not None:
            raise wire.failure(InvalidCommand(contract.NOT_OPEN_YET))

    @workflow.query(name=contract.AGENT_STATE, description="The AgentState snapshot, whole")
    def agent_state(self, raw: RawValue = wire.NOTHING) -> AgentState:
        """Return the state; `{"context": false}` leaves the messages out."""
        self._readable()
        request = wire.read(StateRequest, contract.AGENT_STATE, raw)
        state = snapshot(self._session)
        if not request.context:
            return state.model_copy(update={"context": ()})
        if json_bytes(state) > MAX_STATE_BYTES:
            msg = (
                f'the state is too large for one answer; ask with {{"context": false}} and read {contract.CONTEXT_PAGE}'
            )
            raise wire.failure(ContextTooLarge(msg))
        return state

    @workflow.query(name=contract.SESSION_VIEW, description="The session at a glance")
    def session_view(self) -> SessionView:
        """Return the session at a glance."""
        self._readable()
        return self._view()

    @workflow.query(name=contract.TURN, description='One turn: {"turn_id": ...}; null when it is not known')
    def turn(self, raw: RawValue = wire.NOTHING) -> TurnView | None:
        """Return one turn, or nothing when the session doesn't know it."""
        self._readable()
        return turn_view(self._session, wire.read(TurnRequest, contract.TURN, raw).turn_id)

    @workflow.query(name=contract.CONTEXT_PAGE, description='Messages behind a position: {"after": 0}')
    def context_page(self, raw: RawValue = wire.NOTHING) -> ContextPage:
        """Return part of the context."""
        self._readable()
        return context_page(self._session, wire.read(PageRequest, contract.CONTEXT_PAGE, raw))

    @workflow.query(name=contract.TRANSCRIPT_PAGE, description='What was said and done: {"after": 0}')
    def transcript_page(self, raw: RawValue = wire.NOTHING) -> TranscriptPage:
        """Return part of the transcript."""
        self._readable()
        return transcript_page(self._session, wire.read(PageRequest, contract.TRANSCRIPT_PAGE, raw))

    @workflow.query(name=contract.CHECKPOINT, description='A closed session as JSON, behind a place: {"after": 0}')
    def checkpoint(self, raw: RawValue = wire.NOTHING) -> CheckpointSlice:
        """Return part of what the archive keeps of a closed session."""
        return checkpoint_slice(self._session, wire.read(Slice, contract.CHECKPOINT, raw))

    @workflow.query(name=contract.OPERATIONS, description="The ids of the operations that are to run")
    def operations(self) -> WantedOperations:
        """Return what is to run: a worker that takes an operation up late asks before it begins."""
        wishes = decide(self._session)
        return WantedOperations(operation_ids=tuple(wish.operation_id for wish in wishes if wish.wanted is Wanted.RUN))

    # ---- the edge -----------------------------------------------------------------------------------------------

    def _view(self) -> SessionView:
        info = workflow.info()
        return session_view(
            self._session,
            history_length=info.get_current_history_length(),
            history_size=info.get_current_history_size(),
        )

    def _show(self) -> None:
        """Bring the Temporal UI up to date."""
        key = self._session.key
        workflow.set_current_details(inspection.current_details(key, self._view()))
        present = workflow.info().typed_search_attributes
        updates = inspection.attribute_updates(present, key, self._status())
        if updates:
            _upsert(updates)

    def _status(self) -> SessionStatus:
        """Return what the session needs from people, as visibility is told."""
        session = self._session
        waits = session.current is not None and session.current.suspended
        if session.status is not SessionStatus.NEEDS_RECONCILIATION or waits:
            return session.status
        if self._goes(patches.UNSETTLED_NEEDS_SOMEBODY):
            return session.status
        return SessionStatus.PAUSED if session.paused else SessionStatus.ACTIVE

    def _goes(self, way: str) -> bool:
        """Tell whether this run goes a newer way: from its start, or since its history says so."""
        return way in self._ways or workflow.patched(way)

    def _due(self) -> bool:
        """Whether it is time to continue as new, and the session is small enough for it.

        One that is too large goes on in this run: a new run that can't be started would fail its task for ever.
        """
        return (self._long_enough() or self._moves_on()) and self._small_enough()

    def _long_enough(self) -> bool:
        info = workflow.info()
        suggested = info.is_continue_as_new_suggested()
        if not self._session.archives:
            return suggested
        events, size = info.get_current_history_length(), info.get_current_history_size()
        run = RunSize(events, size, self._carried, suggested)
        return renewal_due(self._session.limits.renewal, run, idle=self._rests)

    @property
    def _rests(self) -> bool:
        """Whether the session has just come to rest. What is refused in a crowd of signals does not count."""
        return self._idle and (self._seen_seq != self._session.last_seq or self._archive_asked)

    @property
    def _idle(self) -> bool:
        """Whether nothing is to be done until somebody comes."""
        return self._session.running is None or self._session.paused

    def _moves_on(self) -> bool:
        """Whether this run is to be left for a new one, which begins on the worker version that is current then.

        Somebody asked for it; or another version is current, of which the server tells each workflow task, and the
        session is at rest. While it works it goes on where it is.
        """
        wanted = self._leaving or (workflow.info().is_target_worker_deployment_version_changed() and self._at_rest())
        return wanted and self._goes(patches.MOVE_ON)

    def _at_rest(self) -> bool:
        session = self._session
        return session.current is None and not session.closing and not decide(session)

    def _small_enough(self) -> bool:
        most = self._session.limits.carry_bytes
        return most is None or json_bytes(self._session) <= most

    async def _renew(self) -> None:
        """Begin a new run; where nothing else is to be done, when the archive has what it is to have, or has failed."""
        if self._idle and not self._archive_asked:
            self._archive_asked = True
            self._take(ArchiveWanted(workflow.now()))
        if not (self._idle and archiving.due(self._session)):
            await self._continue_as_new()

    async def _continue_as_new(self) -> None:
        """Let those who wait ask the next run, then carry the whole session over. What comes meanwhile is taken too."""
        self._draining = True
        try:
            await workflow.wait_condition(workflow.all_handlers_finished)
            if self._goes(patches.ANSWER_THEN_RENEW):
                await self._let_answers_out()
        finally:
            self._draining = False  # also when the workflow is cancelled here
        if not self._small_enough():  # something large was accepted meanwhile
            return
        start = {"carried": self._session.model_dump(mode="json"), "ways": patches.ALL}
        workflow.continue_as_new(
            args=[start], initial_versioning_behavior=workflow.ContinueAsNewVersioningBehavior.AUTO_UPGRADE
        )

    async def _let_answers_out(self) -> None:
        """Let a workflow task end in which an update was answered. On a session that is asked without end, give up."""
        for _ in range(RENEWAL_ATTEMPTS):
            if self._answered_at != workflow.info().get_current_history_length():
                return
            await workflow.sleep(RENEWAL_PAUSE, summary="answers go out before a new run begins")
            await workflow.wait_condition(workflow.all_handlers_finished)


def _upsert(updates: Sequence[SearchAttributeUpdate[str]]) -> None:
    # The SDK's signature is only partly typed.
    cast("Callable[[object], None]", workflow.upsert_search_attributes)(updates)  # pyright: ignore[reportUnknownMemberType]


def _now() -> datetime:
    return workflow.now()


def _new_id() -> str:
    return workflow.uuid4().hex


def _begin(workflow_id: str, raw: RawValue) -> tuple[Session, frozenset[str], Opening | None]:
    """Return the session that this run begins with, the newer ways that it goes from the start, and how it opens.

    Raises:
        InvalidSessionKey: the workflow id is not a session's.
        InvalidCommand: the input can't be read, or is another session's.
    """
    key = SessionKey.parse(workflow_id)
    start = wire.read(SessionStart, wire.WORKFLOW_INPUT, raw)
    if start.carried is None:
        session = Session.new(key, start.seed, start.permissions, start.unset)
        ways = next((ways for mark, ways in patches.MARKS if workflow.patched(mark)), ())
        if patches.ARCHIVE not in ways:
            return session, frozenset(ways), None
        return change(session, archives=True), frozenset(ways), Opening(key, start)
    try:
        session = Session.model_validate(start.carried)
    except ValidationError as error:
        msg = f"the carried session can't be read: {error.error_count()} errors"
        if workflow.info().continued_run_id:
            # Written by another version of this code: the task is tried again until a worker comes that can read it.
            raise RuntimeError(msg) from None
        raise InvalidCommand(msg) from None
    if session.key != key:
        msg = f"the carried session is {session.key.workflow_id}, not {workflow_id}"
        raise InvalidCommand(msg)
    return change(session, archives=patches.ARCHIVE in start.ways), frozenset(start.ways), None
