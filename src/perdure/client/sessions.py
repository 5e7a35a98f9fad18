"""The sessions of one Temporal namespace."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError

from perdure import calls, contract
from perdure.archive import archive_from_environment
from perdure.client.forgetting import Forgetting, Whose
from perdure.client.handle import SessionHandle
from perdure.client.opening import start
from perdure.client.waiting import Waits
from perdure.connection import connect
from perdure.contract import SessionStart
from perdure.errors import InvalidCommand, InvalidSessionKey
from perdure.identity import SessionKey, attribute_value
from perdure.results import SessionInfo, SessionStatus

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from temporalio.client import Client, WorkflowExecution

    from perdure.archive import Archive
    from perdure.permissions import PermissionContext
    from perdure.results import ForgetReceipt, KnownSession
    from perdure.state import AgentState


class Sessions:
    """The sessions of one Temporal namespace."""

    def __init__(self, client: Client, task_queue: str = contract.TASK_QUEUE, archive: Archive | None = None) -> None:
        """Use a client that is connected already, and read what sessions have let go of from `archive`."""
        self.client = client
        self._archive = archive
        self._task_queue = task_queue
        self._waits = Waits()

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        address: str | None = None,
        namespace: str | None = None,
        task_queue: str = contract.TASK_QUEUE,
        client: Client | None = None,
        archive_url: str | None = None,
    ) -> AsyncGenerator[Self]:
        """Connect to a Temporal server, by arguments or by Temporal's own variables and profiles.

        The archive is read at `archive_url`, or where `PERDURE_ARCHIVE_URL` says.

        Raises:
            ServerUnavailable: nobody answers there.
            ConfigurationError: the archive's URL can't be used.
        """
        archive = archive_from_environment(archive_url)
        try:
            yield cls(client or await connect(address, namespace), task_queue, archive)
        finally:
            if archive is not None:
                await archive.aclose()

    def session(self, agent_id: str, session_id: str, user_id: str | None = None) -> SessionHandle:
        """Address a session. Nothing is created and nobody is asked.

        Raises:
            InvalidSessionKey: the names can't name a session.
        """
        key = SessionKey(agent_id, session_id, user_id)
        return SessionHandle(self.client, key, self._task_queue, self._waits, self._archive)

    async def create(
        self,
        agent_id: str,
        session_id: str,
        user_id: str | None = None,
        state: AgentState | None = None,
        permissions: PermissionContext | None = None,
    ) -> SessionHandle:
        """Create a session without a turn, with a state or with permissions if they are given.

        The names win over those in `state`, and `permissions` over its own. What neither says comes from the agent's
        definition, with the first turn.

        Raises:
            SessionExists: it is there already.
            ContextTooLarge: the state is too large for the server; set PERDURE_STORAGE.
        """
        handle = self.session(agent_id, session_id, user_id)
        given = SessionStart(seed=state, permissions=permissions, unset=None if state is None else undecided(state))
        await start(self.client, handle.key, self._task_queue, given)
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

    async def kept_of(
        self, user_id: str | None, *, agent_id: str | None = None, session_id: str | None = None
    ) -> tuple[KnownSession, ...]:
        """Return the sessions of a user that anything is kept of, which `forget` would forget. Changes nothing.

        Raises:
            InvalidSessionKey: the user is blank.
            ArchiveUnavailable: the archive can't be asked.
        """
        return await Forgetting(self.client, self._archive).known(Whose(user_id, agent_id, session_id))

    async def forget(
        self, user_id: str | None, *, agent_id: str | None = None, session_id: str | None = None
    ) -> ForgetReceipt:
        """Forget a user, or of a user one agent or session: end the sessions, and remove what was kept of them.

        `user_id` None means the anonymous user. Open sessions are closed, or terminated where that takes long; then
        archive, checkpoints, stored payloads and results go, and Temporal is asked to delete its histories. May be
        repeated: what is gone is gone. Sessions that began a moment ago may not be found yet, unless agent and session
        are named.

        Raises:
            InvalidSessionKey: the user is blank.
            ArchiveUnavailable: the archive can't be reached. It is asked before anything is done.
            ServerUnavailable: nobody answers. What was forgotten until then is; do it again.
        """
        return await Forgetting(self.client, self._archive).forget(Whose(user_id, agent_id, session_id))


def undecided(state: AgentState) -> tuple[contract.Setting, ...]:
    """Return the settings that a state does not speak of: not even by an empty value."""
    fields: tuple[tuple[contract.Setting, str], ...] = (
        ("permissions", "permission_context"),
        ("groups", "tool_context"),
    )
    return tuple(setting for setting, field in fields if field not in state.model_fields_set)


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
        if str(status) != SessionStatus.CLOSED:  # one that was ended by force shows what it needed then
            parts.append("ExecutionStatus = 'Running'")
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
