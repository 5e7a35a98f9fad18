"""Talking to sessions: `Sessions` finds and opens them, `SessionHandle` is one of them."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self, cast

from temporalio.client import Client, WithStartWorkflowOperation, WorkflowExecution
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from perdure import calls, commands, contract
from perdure.commands import Close, Interrupt, OnBusy, Partial, SubmitTurn, WaitTurn
from perdure.connection import connect
from perdure.contract import (
    ContextPage,
    PageRequest,
    SessionStart,
    StateRequest,
    TranscriptPage,
    TurnRequest,
)
from perdure.errors import (
    ContextTooLarge,
    InvalidCommand,
    InvalidSessionKey,
    SessionClosed,
    SessionExists,
    SessionNotFound,
    TurnConflict,
    TurnNotFound,
)
from perdure.identity import SessionKey, attribute_value
from perdure.results import (
    CloseReceipt,
    InterruptReceipt,
    Receipt,
    SessionInfo,
    SessionStatus,
    SessionView,
    TranscriptEntry,
    TurnAnswer,
    TurnResult,
    TurnView,
)
from perdure.state import AgentState
from perdure.storage import stores
from perdure.values import json_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

    from perdure.messages import Block
    from perdure.permissions import PermissionContext
    from perdure.values import Frozen

POLL_FIRST = 0.1
POLL_LAST = 1.0
"""Seconds between two looks at a turn whose session has no room for one more who waits; they grow."""

REOPEN_ATTEMPTS = 50
REOPEN_PAUSE = 0.1
"""How often, and how many seconds apart, a submit that meets a session in the middle of closing knocks again."""


class SessionHandle:
    """One session. Making a handle creates nothing and asks nobody.

    Every method raises `ServerUnavailable` when nobody answers and, but for `submit` and `ask`, `SessionNotFound` when
    there is no such session. Cancelling a method that waits leaves the session as it is: what was accepted goes on.
    """

    def __init__(self, client: Client, key: SessionKey, task_queue: str = contract.TASK_QUEUE) -> None:
        """Address the session of `key`; `task_queue` is where it would be started."""
        self.key = key
        self.workflow_id = key.workflow_id
        self.client = client
        self._task_queue = task_queue
        self._workflow = cast("calls.Handle", client.get_workflow_handle(self.workflow_id))

    @classmethod
    def of(cls, client: Client, workflow_id: str) -> Self:
        """Address a session by its workflow id.

        Raises:
            InvalidSessionKey: it is not the id of a session.
        """
        return cls(client, SessionKey.parse(workflow_id))

    # ---- turns --------------------------------------------------------------------------------------------------

    async def submit(
        self,
        input: str | Sequence[Block],  # public name
        *,
        turn_id: str | None = None,
        on_busy: OnBusy | str = OnBusy.ENQUEUE,
        run_id: str | None = None,
        attributes: Mapping[str, str] | None = None,
        actor: str | None = None,
    ) -> Receipt:
        """Hand a turn to the session, which is created if it is not there. Durable when this returns.

        Submitting again with the same `turn_id` and input is harmless and answers with the same turn: give a
        `turn_id` of your own, and a submit whose answer was lost can be repeated.

        Raises:
            TurnConflict: the turn id was used with another input.
            SessionBusy: `on_busy` is `reject`, and the session is busy.
            QueueFull: too many turns wait.
            RunConflict: the run id was used before.
            InvalidCommand: something of it can't be understood.
        """
        command = _submit(input, turn_id=turn_id, on_busy=on_busy, run_id=run_id, attributes=attributes, actor=actor)
        answer = await self._open(command, Receipt)
        if isinstance(answer, TurnView):
            return Receipt(turn_id=answer.turn_id, run_id=answer.result().run_id, disposition="settled")
        return answer

    async def ask(
        self,
        input: str | Sequence[Block],  # public name
        *,
        turn_id: str | None = None,
        on_busy: OnBusy | str = OnBusy.ENQUEUE,
        run_id: str | None = None,
        attributes: Mapping[str, str] | None = None,
        actor: str | None = None,
        timeout: float | None = None,  # public name
    ) -> TurnResult:
        """Submit a turn and wait until it is settled.

        Raises:
            TimeoutError: it took longer than `timeout` seconds. The turn goes on; ask for it by `result`.
            PerdureError: as `submit`.
        """
        command = _submit(input, turn_id=turn_id, on_busy=on_busy, run_id=run_id, attributes=attributes, actor=actor)
        waiting = command.model_copy(update={"wait": "settled"})
        async with asyncio.timeout(timeout):
            answer = await self._open(waiting, TurnAnswer)
            if isinstance(answer, TurnView):
                return answer.result()
            if answer.detached:
                return await self._watch(answer.result.turn_id)
        return answer.result

    async def result(self, turn_id: str, *, timeout: float | None = None) -> TurnResult:  # public name  # public name
        """Wait until a turn is settled, and return what came of it. A settled turn answers at once, and for good.

        Raises:
            TurnNotFound: the session doesn't know the turn.
            TimeoutError: it took longer than `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            turn = await self.turn(turn_id)
            if turn.status.settled:
                return turn.result()
            try:
                answer = await calls.update(self._workflow, commands.WAIT_TURN, WaitTurn(turn_id=turn_id), TurnAnswer)
            except SessionNotFound:  # closed in between, or continued as a new run: the turn itself says which
                return await self._watch(turn_id)
            return await self._watch(turn_id) if answer.detached else answer.result

    async def interrupt(
        self,
        *,
        run_id: str | None = None,
        message: str | None = None,
        partial: Partial | str = Partial.KEEP,
        actor: str | None = None,
    ) -> InterruptReceipt:
        """Stop what runs, wherever it runs. Nothing running is no error: the receipt says so.

        Raises:
            StaleRun: `run_id` is not the active run.
        """
        command = _made(Interrupt, run_id=run_id, message=message, partial=partial, actor=actor)
        return await calls.update(self._workflow, commands.INTERRUPT, command, InterruptReceipt)

    async def close(self, reason: str | None = None, *, actor: str | None = None) -> CloseReceipt:
        """End the session. What runs or waits is cancelled, and the receipt names it; results stay readable."""
        command = _made(Close, reason=reason, actor=actor)
        return await calls.update(self._workflow, commands.CLOSE, command, CloseReceipt)

    # ---- reading ------------------------------------------------------------------------------------------------

    async def state(self) -> AgentState:
        """Return the state, whole. A large one is read in pages, which all belong to one moment."""
        try:
            state = await calls.query(self._workflow, contract.AGENT_STATE, StateRequest(), AgentState)
        except InvalidCommand as error:
            if contract.CONTEXT_PAGE not in str(error):
                raise
            return await self._paged_state()
        return _present(state, self.workflow_id)

    async def view(self) -> SessionView:
        """Return the session at a glance."""
        view = await calls.query(self._workflow, contract.SESSION_VIEW, None, SessionView)
        return _present(view, self.workflow_id)

    async def turn(self, turn_id: str) -> TurnView:
        """Return one turn as it stands.

        Raises:
            TurnNotFound: the session doesn't know it.
        """
        turn = await calls.query(self._workflow, contract.TURN, TurnRequest(turn_id=turn_id), TurnView)
        if turn is None:
            msg = f"session {self.workflow_id} knows no turn {turn_id!r}"
            raise TurnNotFound(msg)
        return turn

    async def transcript(self, after: int = 0, *, follow: bool = False) -> AsyncIterator[TranscriptEntry]:
        """Yield what was said, done and decided, behind the sequence number `after`; with `follow`, also what comes."""
        pause = POLL_FIRST
        while True:
            request = PageRequest(after=after)
            page = await calls.query(self._workflow, contract.TRANSCRIPT_PAGE, request, TranscriptPage)
            entries = () if page is None else page.entries
            for entry in entries:
                yield entry
                after = entry.seq
            if not entries and not follow:
                return
            if entries:
                pause = POLL_FIRST
            else:
                await asyncio.sleep(pause)
                pause = min(pause * 2, POLL_LAST)

    # ---- private ------------------------------------------------------------------------------------------------

    async def _open(self, command: SubmitTurn, answer: type[calls.Model]) -> calls.Model | TurnView:
        """Send a submit; a session that is not there is started, one that is being closed is waited for.

        A closed session is not opened again for a turn that it has had: nothing happens twice by a late retry. That
        turn is returned.
        """
        self._check_size(command)
        try:
            return await calls.update(self._workflow, commands.SUBMIT_TURN, command, answer)
        except (SessionNotFound, SessionClosed):
            pass
        known = await self._turn_of_closed(command)
        if known is not None:
            return known
        for _ in range(REOPEN_ATTEMPTS):
            start = self._start_operation()
            try:
                return await calls.update_with_start(self.client, start, commands.SUBMIT_TURN, command, answer)
            except (SessionClosed, SessionNotFound):
                await asyncio.sleep(REOPEN_PAUSE)
        msg = f"session {self.workflow_id} is still being closed; submit again in a moment"
        raise SessionClosed(msg)

    async def _turn_of_closed(self, command: SubmitTurn) -> TurnView | None:
        """Return the turn that this submit repeats, if the session had it before it was closed."""
        if command.turn_id is None:
            return None
        try:
            known = await self.turn(command.turn_id)
        except (SessionNotFound, TurnNotFound):
            return None
        if not known.status.settled:
            return None
        if known.input != command.input:
            msg = f"turn {command.turn_id!r} was submitted to this session before it was closed, with another input"
            raise TurnConflict(msg)
        return known

    def _check_size(self, payload: Frozen) -> None:
        if stores(self.client.data_converter):
            return
        size = json_bytes(payload)
        if size > contract.MAX_INLINE_BYTES:
            msg = (
                f"{size} bytes are too large for history, which takes {contract.MAX_INLINE_BYTES}; "
                "set PERDURE_STORAGE, for workers and clients alike, to keep large payloads outside"
            )
            raise ContextTooLarge(msg)

    def _start_operation(self) -> WithStartWorkflowOperation[object, object]:
        return WithStartWorkflowOperation(
            contract.WORKFLOW_TYPE,
            {},
            id=self.workflow_id,
            task_queue=self._task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            search_attributes=search_attributes(self.key),
            static_summary=summary(self.key),
            static_details=details(self.key),
        )

    async def start(self, start: SessionStart) -> None:
        """Start the session's workflow with this input.

        Raises:
            SessionExists: it is there already.
            ContextTooLarge: the input can't be carried without external storage.
        """
        self._check_size(start)
        try:
            await self.client.start_workflow(
                contract.WORKFLOW_TYPE,
                calls.plain(start),
                id=self.workflow_id,
                task_queue=self._task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                search_attributes=search_attributes(self.key),
                static_summary=summary(self.key),
                static_details=details(self.key),
            )
        except WorkflowAlreadyStartedError as error:
            msg = f"session {self.workflow_id} is there already"
            raise SessionExists(msg) from error
        except RPCError as error:
            calls.raise_for(error, self.workflow_id)

    async def _watch(self, turn_id: str) -> TurnResult:
        """Look at a turn again and again, with growing pauses, until it is settled."""
        pause = POLL_FIRST
        while True:
            turn = await self.turn(turn_id)
            if turn.status.settled:
                return turn.result()
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, POLL_LAST)

    async def _paged_state(self) -> AgentState:
        while True:
            request = StateRequest(context=False)
            state = _present(
                await calls.query(self._workflow, contract.AGENT_STATE, request, AgentState), self.workflow_id
            )
            page = await read_page(self._workflow, PageRequest())
            head, messages = page.head, list(page.messages)
            while len(messages) < head.position and page.messages and page.head == head:
                page = await read_page(self._workflow, PageRequest(after=len(messages)))
                messages += page.messages
            after = _present(
                await calls.query(self._workflow, contract.AGENT_STATE, request, AgentState), self.workflow_id
            )
            if page.head == head and after.revision == state.revision:
                return state.model_copy(update={"context": tuple(messages)})


class Sessions:
    """The sessions of one Temporal namespace."""

    def __init__(self, client: Client, task_queue: str = contract.TASK_QUEUE) -> None:
        """Use a client that is connected already."""
        self.client = client
        self._task_queue = task_queue

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        address: str | None = None,
        namespace: str | None = None,
        task_queue: str = contract.TASK_QUEUE,
        client: Client | None = None,
    ) -> AsyncGenerator[Self]:
        """Connect to a Temporal server, by arguments or by Temporal's own variables and profiles.

        Raises:
            ServerUnavailable: nobody answers there.
        """
        yield cls(client or await connect(address, namespace), task_queue)

    def session(self, agent_id: str, session_id: str, user_id: str | None = None) -> SessionHandle:
        """Address a session. Nothing is created and nobody is asked.

        Raises:
            InvalidSessionKey: the names can't name a session.
        """
        return SessionHandle(self.client, SessionKey(agent_id, session_id, user_id), self._task_queue)

    async def create(
        self,
        agent_id: str,
        session_id: str,
        user_id: str | None = None,
        state: AgentState | None = None,
        permissions: PermissionContext | None = None,
    ) -> SessionHandle:
        """Create a session without a turn, with a state or with permissions if they are given.

        The names win over those in `state`.

        Raises:
            SessionExists: it is there already.
            ContextTooLarge: the state is too large for the server; set PERDURE_STORAGE.
        """
        handle = self.session(agent_id, session_id, user_id)
        seed = state or AgentState(session_id=session_id)
        if permissions is not None:
            seed = seed.model_copy(update={"permission_context": permissions})
        await handle.start(SessionStart(seed=seed))
        return handle

    async def list(
        self, agent_id: str | None = None, user_id: str | None = None, status: SessionStatus | str | None = None
    ) -> AsyncIterator[SessionInfo]:
        """Yield sessions, the newest first, as Temporal's visibility knows them: up to a moment ago.

        Raises:
            InvalidCommand: no such status.
            ServerUnavailable: nobody answers.
        """
        query = list_query(agent_id, user_id, status)
        seen: set[SessionKey] = set()
        try:
            async for found in self.client.list_workflows(query):
                info = _info(found)
                if info is not None and info.key not in seen:
                    seen.add(info.key)
                    yield info
        except RPCError as error:
            calls.raise_for(error)


def list_query(agent_id: str | None, user_id: str | None, status: SessionStatus | str | None) -> str:
    """Return the visibility query for sessions.

    Raises:
        InvalidCommand: no such status.
    """
    parts = [f"WorkflowType = '{contract.WORKFLOW_TYPE}'", "ExecutionStatus != 'ContinuedAsNew'"]
    if status is not None:
        known = [each.value for each in SessionStatus]
        if str(status) not in known:
            msg = f"there is no status {str(status)!r}; there are {', '.join(known)}"
            raise InvalidCommand(msg)
        parts.append(f"{contract.ATTRIBUTE_STATUS} = '{status}'")
    if agent_id is not None:
        parts.append(f"{contract.ATTRIBUTE_AGENT} = '{attribute_value(agent_id)}'")
    if user_id is not None:
        parts.append(f"{contract.ATTRIBUTE_USER} = '{attribute_value(user_id)}'")
    return " AND ".join(parts)


def _info(found: WorkflowExecution) -> SessionInfo | None:
    """Return what visibility knows of a session; None for a workflow that was started under an id that is none."""
    try:
        key = SessionKey.parse(found.id)
    except InvalidSessionKey:
        return None
    status = found.typed_search_attributes.get(SearchAttributeKey.for_keyword(contract.ATTRIBUTE_STATUS))
    open_status = SessionStatus(status) if status else SessionStatus.ACTIVE
    return SessionInfo(
        key=key,
        status=SessionStatus.CLOSED if found.close_time is not None else open_status,
        started_at=found.start_time,
        closed_at=found.close_time,
    )


async def read_page(workflow: calls.Handle, request: PageRequest) -> ContextPage:
    """Read part of a session's context, which leaves no event."""
    return _present(await calls.query(workflow, contract.CONTEXT_PAGE, request, ContextPage), workflow.id)


def search_attributes(key: SessionKey) -> TypedSearchAttributes:
    """Return the search attributes that a session starts with."""
    values = {
        contract.ATTRIBUTE_AGENT: key.agent_id,
        contract.ATTRIBUTE_USER: key.user_id,
        contract.ATTRIBUTE_SESSION: key.session_id,
        contract.ATTRIBUTE_STATUS: SessionStatus.ACTIVE.value,
    }
    return TypedSearchAttributes(
        [
            SearchAttributePair(SearchAttributeKey.for_keyword(name), attribute_value(value))
            for name, value in values.items()
            if value is not None
        ]
    )


def summary(key: SessionKey) -> str:
    """Return a session in one line, for the Temporal UI."""
    return f"{key.agent_id} · {key.user_id or 'anonymous'} · {key.session_id}"


def details(key: SessionKey) -> str:
    """Return who a session belongs to, for the Temporal UI."""
    return f"- agent: {key.agent_id}\n- user: {key.user_id or '(anonymous)'}\n- session: {key.session_id}"


def _present(value: calls.Model | None, workflow_id: str) -> calls.Model:
    if value is None:
        msg = f"session {workflow_id} gave no answer"
        raise SessionNotFound(msg)
    return value


def _submit(
    content: str | Sequence[Block],
    *,
    turn_id: str | None,
    on_busy: OnBusy | str,
    run_id: str | None,
    attributes: Mapping[str, str] | None,
    actor: str | None,
) -> SubmitTurn:
    return _made(
        SubmitTurn,
        input=content if isinstance(content, str) else [block.model_dump(mode="json") for block in content],
        turn_id=uuid.uuid4().hex if turn_id is None else turn_id,
        on_busy=on_busy,
        run_id=run_id,
        attributes=dict(attributes or {}),
        actor=actor,
    )


def _made(kind: type[calls.Model], **fields: object) -> calls.Model:
    """Make a command, with a refusal that reads like the session's own."""
    try:
        return kind.model_validate(fields)
    except ValueError as error:
        raise commands.invalid(kind.__name__, error) from None
