"""Whether an operation is still wanted, for those that a worker takes up late.

An operation that was handed out while no worker was there, or whose attempt failed, may have been given up since: a
turn that was interrupted meanwhile must not call its model, or pay, when a worker comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from temporalio import activity

from activities.failures import failure
from perdure import contract
from perdure.errors import PerdureError, SessionNotFound

LATE = timedelta(milliseconds=250)
"""An operation that waited longer for a worker than this is asked for. Most start at once, where the session is."""

PATIENCE = 10
"""Seconds that the session has to answer. One that does not is taken to want what it had asked for."""

AskWanted = Callable[[str, str], Awaitable[frozenset[str]]]
"""Asks which operations are to run: workflow id, workflow run id."""


async def check_wanted(operation_id: str, ask: AskWanted) -> None:
    """Ask the session about an operation that was taken up late.

    Raises:
        ApplicationError: the session has given it up. It was not begun by this attempt.
    """
    info = activity.info()
    waited = info.started_time - info.current_attempt_scheduled_time
    if info.attempt == 1 and waited < LATE:
        return
    try:
        async with asyncio.timeout(PATIENCE):
            wanted = await ask(info.workflow_id or "", info.workflow_run_id or "")
    except SessionNotFound:
        wanted = frozenset[str]()
    except (PerdureError, TimeoutError):
        return
    if operation_id not in wanted:
        msg = "it was given up before it began; it did not run"
        raise failure(msg, contract.ERROR_UNWANTED, final=True)
