"""Finding the sessions that wait for somebody, and looking into each."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING

from perdure.cli.terminal import complain
from perdure.errors import PerdureError

if TYPE_CHECKING:
    from perdure.client import SessionHandle, Sessions
    from perdure.results import SessionStatus, SessionView

SIDE_BY_SIDE = 10
"""Sessions that are looked into at once."""

PATIENCE = 5.0
"""Seconds that a session may take to show itself. One that no worker serves must not keep the others from view."""


async def waiting(
    sessions: Sessions, status: SessionStatus, *, agent: str | None, user: str | None, session: str | None = None
) -> list[tuple[SessionHandle, SessionView]]:
    """Return the sessions of this status, each as it is now. Those that don't answer are named on standard error."""
    handles = [
        sessions.session(info.key.agent_id, info.key.session_id, info.key.user_id)
        async for info in sessions.list(agent, user, status)
        if session is None or info.key.session_id == session
    ]
    turn = asyncio.Semaphore(SIDE_BY_SIDE)

    async def look(handle: SessionHandle) -> SessionView | None:
        try:
            async with turn, asyncio.timeout(PATIENCE):
                return await handle.view()
        except (PerdureError, TimeoutError) as error:
            complain(f"{handle.workflow_id} can't be looked into: {str(error) or 'nobody answers'}")
            return None

    views = await asyncio.gather(*map(look, handles))
    return [(handle, view) for handle, view in zip(handles, views, strict=True) if view is not None]


def named(handle: SessionHandle) -> str:
    """Return the options that name a session, as a shell takes them."""
    key = handle.key
    user = [] if key.user_id is None else ["-u", key.user_id]
    return shlex.join(["-a", key.agent_id, *user, "-s", key.session_id])
