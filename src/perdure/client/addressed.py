"""One session, addressed: what all parts of a handle stand on, and what can be read of a session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self, cast

from perdure import calls, contract
from perdure.client import opening, reading
from perdure.client.reading import present
from perdure.client.remembering import archived_entries, archived_turn, whole_turn
from perdure.client.waiting import POLL_FIRST, POLL_LAST, Waits
from perdure.contract import PageRequest, TranscriptPage, TurnRequest
from perdure.errors import SessionNotFound, TurnNotFound
from perdure.identity import SessionKey
from perdure.results import SessionView, TranscriptEntry, TurnView

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from temporalio.client import Client

    from perdure.archive import Archive
    from perdure.commands import Command
    from perdure.state import AgentState


class Addressed:
    """A session's address, and what is read there. Reading changes nothing and creates nothing."""

    def __init__(
        self,
        client: Client,
        key: SessionKey,
        task_queue: str = contract.TASK_QUEUE,
        waits: Waits | None = None,
        archive: Archive | None = None,
    ) -> None:
        """Address the session of `key`, which would be started on `task_queue`. Handles with one `waits` share it.

        What the session has let go of is read from `archive`.
        """
        self.key = key
        self.workflow_id = key.workflow_id
        self.client = client
        self._task_queue = task_queue
        self._workflow = cast("calls.Handle", client.get_workflow_handle(self.workflow_id))
        self._waits = waits or Waits()
        self._archive = archive

    @classmethod
    def of(cls, client: Client, workflow_id: str) -> Self:
        """Address a session by its workflow id.

        Raises:
            InvalidSessionKey: it is not the id of a session.
        """
        return cls(client, SessionKey.parse(workflow_id))

    async def state(self) -> AgentState:
        """Return the state, whole. A large one is read in pages, which all belong to one moment."""
        return await reading.read_state(self._workflow)

    async def view(self) -> SessionView:
        """Return the session at a glance."""
        view = await calls.query(self._workflow, contract.SESSION_VIEW, None, SessionView)
        return present(view, self.workflow_id)

    async def turn(self, turn_id: str) -> TurnView:
        """Return one turn as it stands; for input that joined a running turn, that one. Old ones the archive has.

        Raises:
            TurnNotFound: neither the session nor the archive knows it.
            SetupRequired: the archive has it, and this client can't read it.
        """
        try:
            turn = await calls.query(self._workflow, contract.TURN, TurnRequest(turn_id=turn_id), TurnView)
        except SessionNotFound:  # which Temporal has forgotten, perhaps, and the archive has not
            turn = await archived_turn(self._archive, self.workflow_id, turn_id)
            if turn is None:
                raise
            return turn
        if turn is None:
            turn = await archived_turn(self._archive, self.workflow_id, turn_id)
        elif turn.archived:
            turn = await whole_turn(self._archive, self.workflow_id, turn)
        if turn is None:
            msg = f"session {self.workflow_id} knows no turn {turn_id!r}"
            raise TurnNotFound(msg)
        return turn

    async def transcript(self, after: int = 0, *, follow: bool = False) -> AsyncIterator[TranscriptEntry]:
        """Yield what was said, done and decided, behind the sequence number `after`; with `follow`, also what comes.

        Where there is no archive, a session keeps the last megabyte of it: it begins there. Of a session that Temporal
        has forgotten, the archive still knows.

        Raises:
            SetupRequired: part of it is in the archive, and this client can't read that.
        """
        pause = POLL_FIRST
        while True:
            page = await self._live_page(after)
            first = page.entries[0].seq if page.entries else page.last + 1
            async for entry in archived_entries(self._archive, self.workflow_id, after, min(page.archived, first - 1)):
                yield entry
                after = entry.seq
            entries = page.entries
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

    async def _live_page(self, after: int) -> TranscriptPage:
        """Return what the session itself has of its transcript: nothing, of one that only the archive knows."""
        try:
            return await reading.read_transcript(self._workflow, PageRequest(after=after))
        except SessionNotFound:
            last = 0 if self._archive is None else await self._archive.last_seq(self.workflow_id)
            if not last:
                raise
            return TranscriptPage(last=last, archived=last)

    async def _update(self, name: str, command: Command, answer: type[calls.Model]) -> calls.Model:
        opening.check_size(self.client, command)
        return await calls.update(self._workflow, name, command, answer)
