"""The part of a handle that changes a session's state."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from perdure import commands
from perdure.client import making, reading
from perdure.client.addressed import Addressed
from perdure.client.waiting import POLL_FIRST, POLL_LAST
from perdure.commands import ClearContext, Compact
from perdure.errors import SessionClosed, StaleRevision
from perdure.results import ChangeReceipt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perdure.changes import AnyChange
    from perdure.state import AgentState

CHANGE_ATTEMPTS = 20
"""How often a change is decided anew when the state has moved on meanwhile, as it does with each step of a turn."""


class States(Addressed):
    """Changes of a session's state."""

    async def update_state(
        self, changes: Sequence[AnyChange], *, expected_revision: int, reason: str, actor: str | None = None
    ) -> int:
        """Change the state, all or nothing, and return its next revision.

        Args:
            changes: What to change; see `perdure.changes`.
            expected_revision: The revision of the state that the changes are meant for.
            reason: Why, for the record.
            actor: Who changes it, for the record.

        Raises:
            StaleRevision: the state has changed since.
            SessionBusy: the context is to be changed, and a turn runs or waits for somebody.
            UncertainOperations: the context is to be changed, and the outcome of an operation is unknown.
            InvalidCommand: a change is not possible; nothing was changed.
        """
        command = making.update_state(changes, expected_revision=expected_revision, reason=reason, actor=actor)
        return (await self._update(commands.UPDATE_STATE, command, ChangeReceipt)).revision

    async def change_state(
        self, decide: Callable[[AgentState], Sequence[AnyChange]], *, reason: str, actor: str | None = None
    ) -> int:
        """Change the state by a function of the newest one, which is called again when somebody else was faster.

        Return the next revision, or the present one when the function wants no change.

        Raises:
            StaleRevision: others were faster each time.
            PerdureError: as `update_state`.
        """
        for last in (*[False] * (CHANGE_ATTEMPTS - 1), True):
            state = await self.state()
            changes = decide(state)
            if not changes:
                return state.revision
            try:
                return await self.update_state(changes, expected_revision=state.revision, reason=reason, actor=actor)
            except StaleRevision:
                if last:
                    raise
        raise AssertionError  # pragma: no cover  # the last attempt returns or raises

    async def clear_context(self, *, when_idle: bool = False, actor: str | None = None) -> int:
        """Forget what was said, for the model, and return the state's revision. All else stays, the transcript whole.

        Args:
            when_idle: Wait until no turn runs and no outcome is unknown, and clear then; this waits too. Cancelled
                meanwhile, the session clears all the same.
            actor: Who asks, for the record.

        Raises:
            SessionBusy: a turn runs, or waits for somebody.
            UncertainOperations: the outcome of an operation is unknown.
            SessionClosed: the session was ended while this waited.
        """
        command = making.made(ClearContext, when_idle=when_idle, actor=actor)
        receipt = await self._update(commands.CLEAR_CONTEXT, command, ChangeReceipt)
        pause = POLL_FIRST
        while receipt.pending:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, POLL_LAST)
            view = await self.view()
            if view.clearing and not await reading.is_open(self._workflow):
                msg = f"session {self.workflow_id} was ended before its context was cleared"
                raise SessionClosed(msg)
            receipt = ChangeReceipt(revision=view.revision, pending=view.clearing)
        return receipt.revision

    async def compact(self, *, actor: str | None = None) -> int:
        """Have a summary take the place of the older messages, before the next step; return the present revision.

        The summary is made by the agent's model. One that fails costs nothing, and is in the transcript as an error.

        Raises:
            InvalidCommand: there is too little to put into a summary.
        """
        command = making.made(Compact, actor=actor)
        return (await self._update(commands.COMPACT, command, ChangeReceipt)).revision
