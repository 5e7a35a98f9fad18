"""Whether an operation is still wanted, for those that a worker takes up late.

An operation that was handed out while no worker was there, or whose attempt failed, may have been given up since: a
turn that was interrupted meanwhile must not call its model, or pay, when a worker comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from temporalio import activity

from activities.beating import cancelled_by_session
from activities.failures import failure
from perdure import contract
from perdure.errors import PerdureError, SessionNotFound

LATE = timedelta(milliseconds=250)
"""An operation that waited longer for a worker than this is asked for. Most start at once, where the session is."""

PATIENCE = 10
"""Seconds that the session has to answer one question."""

QUESTIONS = 3
"""How often it is asked. What can't be found out must not be begun: another attempt, or somebody, has to see to it."""

AskWanted = Callable[[str, str], Awaitable[frozenset[str]]]
"""Asks which operations are to run: workflow id, workflow run id."""


async def check_wanted(operation_id: str, ask: AskWanted) -> None:
    """Ask the session about an operation that was taken up late.

    Raises:
        ApplicationError: the session has given it up, or does not answer, or this worker stops. It was not begun by
            this attempt.
    """
    info = activity.info()
    waited = info.started_time - info.current_attempt_scheduled_time
    if info.attempt == 1 and waited < LATE:
        return
    try:
        wanted = await _answer(lambda: ask(info.workflow_id or "", info.workflow_run_id or ""))
    except asyncio.CancelledError:
        if cancelled_by_session():
            raise
        msg = "its worker was stopped before it began; it did not run"
        raise failure(msg, contract.ERROR_NOT_STARTED, final=False) from None
    if wanted is None:
        msg = "its session did not say whether it is still wanted; it did not run"
        raise failure(msg, contract.ERROR_NOT_STARTED, final=False)
    if operation_id not in wanted:
        msg = "it was given up before it began; it did not run"
        raise failure(msg, contract.ERROR_UNWANTED, final=True)


async def _answer(ask: Callable[[], Awaitable[frozenset[str]]]) -> frozenset[str] | None:
    """Return what the session says; nothing is wanted by one that is over, and None means that it does not answer."""
    for _ in range(QUESTIONS):
        try:
            async with asyncio.timeout(PATIENCE):
                return await ask()
        except SessionNotFound:
            return frozenset()
        except (PerdureError, TimeoutError):
            await asyncio.sleep(1)
    return None
