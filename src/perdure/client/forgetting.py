"""Forgetting a person: the sessions end, and all that was kept of them goes.

The order matters. First a session ends, in order if a worker is there, so that what it runs has settled. Then the
archive forgets it, and takes nothing more of it from whatever was on its way; then its stored payloads go. When
somebody opened it again in the middle, it is done once more. Everything may be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from perdure import calls, contract
from perdure.archive import Forgotten
from perdure.client import reading
from perdure.client.handle import SessionHandle
from perdure.errors import InvalidSessionKey, ServerUnavailable, SessionClosed, SessionNotFound
from perdure.identity import SessionKey, attribute_value
from perdure.results import ForgetReceipt, KnownSession
from perdure.storage import Owner, holders

if TYPE_CHECKING:
    from datetime import datetime

    from temporalio.client import Client, WorkflowExecutionDescription

    from perdure.archive import Archive

CLOSING_SECONDS = 15.0
"""How long a session may take to close in order. Then, or where no worker is, it is terminated."""

LOOK_SECONDS = 0.1
"""Between two looks at whether it has ended."""

ROUNDS = 3
"""How often a session is ended that somebody opens again meanwhile."""

SIDE_BY_SIDE = 10
"""Sessions that are forgotten at the same time."""


@dataclass(frozen=True, slots=True)
class Whose:
    """Of whom: one user, None being the anonymous one; of one agent, and one session, if they are named.

    Raises:
        InvalidSessionKey: the user is blank, which elsewhere means nobody.
    """

    user_id: str | None
    agent_id: str | None = None
    session_id: str | None = None

    def __post_init__(self) -> None:
        """Refuse what is hardly meant."""
        if self.user_id is not None and not self.user_id.strip():
            msg = "a blank user can't be forgotten; None is the anonymous one"
            raise InvalidSessionKey(msg)

    def has(self, key: SessionKey) -> bool:
        """Tell whether a session is meant."""
        return (
            key.user_id == self.user_id
            and self.agent_id in (None, key.agent_id)
            and self.session_id in (None, key.session_id)
        )

    @property
    def query(self) -> str:
        """The visibility query for all runs that may be meant."""
        parts = [f"WorkflowType = '{contract.WORKFLOW_TYPE}'"]
        wanted = (
            (contract.ATTRIBUTE_USER, self.user_id),
            (contract.ATTRIBUTE_AGENT, self.agent_id),
            (contract.ATTRIBUTE_SESSION, self.session_id),
        )
        parts += [f"{name} = '{attribute_value(value)}'" for name, value in wanted if value is not None]
        if self.user_id is None:
            parts.append(f"{contract.ATTRIBUTE_USER} IS NULL")
        return " AND ".join(parts)


@dataclass(slots=True)
class _Trace:
    """What is known of a session before it is forgotten."""

    key: SessionKey
    runs: set[str] = field(default_factory=set[str])
    open: bool = False
    archived: bool = False
    files: int = 0


class Forgetting:
    """The forgetting of some sessions, at Temporal, in the archive and in the storage."""

    def __init__(self, client: Client, archive: Archive | None) -> None:
        """Work on these."""
        self._client = client
        self._archive = archive

    async def known(self, whose: Whose) -> tuple[KnownSession, ...]:
        """Return what there is. Changes nothing."""
        return tuple(
            KnownSession(
                key=trace.key, open=trace.open, runs=len(trace.runs), archived=trace.archived, files=trace.files
            )
            for trace in await self._traces(whose)
        )

    async def forget(self, whose: Whose) -> ForgetReceipt:
        """Forget, and tell what went."""
        turn = asyncio.Semaphore(SIDE_BY_SIDE)

        async def one(trace: _Trace) -> ForgetReceipt:
            async with turn:
                return await self._forget(trace)

        receipts = await asyncio.gather(*map(one, await self._traces(whose)))
        counts = ("ended", "entries", "checkpoints", "files", "deleted", "held")
        return ForgetReceipt(
            sessions=tuple(key for receipt in receipts for key in receipt.sessions),
            **{name: sum(getattr(receipt, name) for receipt in receipts) for name in counts},
        )

    async def _traces(self, whose: Whose) -> list[_Trace]:
        """Find the sessions. The archive is asked first: when it is down, nothing is begun."""
        traces = {key.workflow_id: _Trace(key, archived=True) for key in await self._archived(whose)}
        if whose.agent_id is not None and whose.session_id is not None:
            await self._look(traces, SessionKey(whose.agent_id, whose.session_id, whose.user_id))
        for workflow_id, runs in (await self._visible(whose)).items():
            trace = traces.setdefault(workflow_id, _Trace(SessionKey.parse(workflow_id)))
            trace.runs |= runs.keys()
            trace.open = trace.open or WorkflowExecutionStatus.RUNNING in runs.values()
        for trace in traces.values():
            trace.files = await self._count_stored(trace.key)
        found = [traces[workflow_id] for workflow_id in sorted(traces)]
        return [trace for trace in found if trace.runs or trace.archived or trace.files]

    async def _look(self, traces: dict[str, _Trace], key: SessionKey) -> None:
        """Look at a session by its name: visibility may not have heard of it yet."""
        trace = traces.setdefault(key.workflow_id, _Trace(key))
        found = await self._describe(key)
        if found is not None:
            trace.runs.add(found.run_id or "")
            trace.open = found.status is WorkflowExecutionStatus.RUNNING

    async def _archived(self, whose: Whose) -> list[SessionKey]:
        if self._archive is None:
            return []
        found = await self._archive.sessions(user_id=whose.user_id, agent_id=whose.agent_id)
        return [key for key in map(SessionKey.parse, found) if whose.has(key)]

    async def _count_stored(self, key: SessionKey) -> int:
        owner = Owner(self._client.namespace, key.workflow_id)
        return sum([await each.count(owner) for each in holders(self._client.data_converter)])

    async def _forget_stored(self, key: SessionKey) -> int:
        owner = Owner(self._client.namespace, key.workflow_id)
        return sum([await each.forget(owner) for each in holders(self._client.data_converter)])

    async def _visible(self, whose: Whose) -> dict[str, dict[str, WorkflowExecutionStatus | None]]:
        """Return the runs that visibility knows, by workflow id."""
        visible: dict[str, dict[str, WorkflowExecutionStatus | None]] = defaultdict(dict)
        try:
            async for found in self._client.list_workflows(whose.query):
                if _is_of(whose, found.id):
                    visible[found.id][found.run_id] = found.status
        except RPCError as error:
            calls.raise_for(error)
        return visible

    async def _describe(self, key: SessionKey) -> WorkflowExecutionDescription | None:
        """Return the newest run of a session; None if Temporal knows of none."""
        try:
            return await self._client.get_workflow_handle(key.workflow_id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            calls.raise_for(error, key.workflow_id)

    async def _forget(self, trace: _Trace) -> ForgetReceipt:
        """Forget one session."""
        ended, removed, files, workflow_id = 0, Forgotten(), 0, trace.key.workflow_id
        for _ in range(ROUNDS):
            newest = await self._ended(trace.key)
            if newest is not None:
                ended += newest.ended
                trace.runs.add(newest.run_id)
            if self._archive is not None:
                removed += await self._archive.forget([workflow_id], until=newest.at if newest else None)
            files += await self._forget_stored(trace.key)
            if not await reading.is_open(self._client.get_workflow_handle(workflow_id)):
                break
        deleted = [await self._delete(workflow_id, run_id) for run_id in sorted(trace.runs)]
        return ForgetReceipt(
            sessions=(trace.key,),
            ended=ended,
            entries=removed.entries,
            checkpoints=removed.checkpoints,
            files=files,
            deleted=deleted.count(True),
            held=deleted.count(False),
        )

    async def _ended(self, key: SessionKey) -> _Ended | None:
        """End a session if it is open, and return its newest run; None if Temporal knows of none."""
        found = await self._describe(key)
        if found is None:
            return None
        was_open = found.status is WorkflowExecutionStatus.RUNNING
        if was_open:
            try:
                async with asyncio.timeout(CLOSING_SECONDS):
                    await self._close(key)
            except (TimeoutError, ServerUnavailable):
                await self._terminate(key)
            found = await self._describe(key) or found
        return _Ended(found.run_id or "", found.close_time, ended=was_open)

    async def _close(self, key: SessionKey) -> None:
        """Close a session, and wait until it has ended."""
        with contextlib.suppress(SessionClosed, SessionNotFound):  # somebody else has closed it
            await SessionHandle(self._client, key).close("forgotten")
        while await reading.is_open(self._client.get_workflow_handle(key.workflow_id)):  # noqa: ASYNC110  # Temporal's
            await asyncio.sleep(LOOK_SECONDS)

    async def _terminate(self, key: SessionKey) -> None:
        try:
            await self._client.get_workflow_handle(key.workflow_id).terminate(reason="forgotten")
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                calls.raise_for(error, key.workflow_id)

    async def _delete(self, workflow_id: str, run_id: str) -> bool | None:
        """Have Temporal delete a run; None if it has none, False where it holds it until its retention is over."""
        request = DeleteWorkflowExecutionRequest(
            namespace=self._client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
        )
        try:
            await self._client.workflow_service.delete_workflow_execution(request)
        except RPCError as error:
            return None if error.status is RPCStatusCode.NOT_FOUND else False
        return True


@dataclass(frozen=True, slots=True)
class _Ended:
    """The newest run of a session, which has ended: when, and whether by us."""

    run_id: str
    at: datetime | None
    ended: bool


def _is_of(whose: Whose, workflow_id: str) -> bool:
    try:
        return whose.has(SessionKey.parse(workflow_id))
    except InvalidSessionKey:
        return False
