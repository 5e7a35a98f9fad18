"""One session, addressed: what all parts of a handle stand on, and what can be read of a session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self, cast

from perdure import calls, contract
from perdure.client import opening, reading
from perdure.client.reading import present
from perdure.client.waiting import POLL_FIRST, POLL_LAST, Waits
from perdure.contract import PageRequest, TranscriptPage, TurnRequest
from perdure.errors import TurnNotFound
from perdure.identity import SessionKey
from perdure.results import SessionView, TranscriptEntry, TurnView

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from temporalio.client import Client

    from perdure.commands import Command
    from perdure.state import AgentState


class Addressed:
    """A session's address, and what is read there. Reading changes nothing and creates nothing."""

    def __init__(
        self, client: Client, key: SessionKey, task_queue: str = contract.TASK_QUEUE, waits: Waits | None = None
    ) -> None:
        """Address the session of `key`, which would be started on `task_queue`. Handles with one `waits` share it."""
        self.key = key
        self.workflow_id = key.workflow_id
        self.client = client
        self._task_queue = task_queue
        self._workflow = cast("calls.Handle", client.get_workflow_handle(self.workflow_id))
        self._waits = waits or Waits()

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
        """Return one turn as it stands; for input that joined a running turn, that one.

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

    async def _update(self, name: str, command: Command, answer: type[calls.Model]) -> calls.Model:
        opening.check_size(self.client, command)
        return await calls.update(self._workflow, name, command, answer)
