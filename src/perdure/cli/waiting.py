"""Waiting for a session's answer, and saying so when no worker is there to give it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from temporalio.service import RPCError, RPCStatusCode

from perdure.cli.places import readable
from perdure.cli.terminal import complain
from perdure.contract import TASK_QUEUE
from perdure.errors import PerdureError, ServerUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from perdure.cli.places import Place
    from perdure.client import SessionHandle

Answer = TypeVar("Answer")

PATIENCE = 3.0
"""Seconds without an answer after which a person wonders."""

PAUSE = 10.0
"""Seconds between two looks at whether a worker is still there, while a turn takes long."""

UNANSWERED = frozenset({RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.DEADLINE_EXCEEDED})
"""How the server tells that it is there, but no worker has answered a query."""


async def patiently(handle: SessionHandle, place: Place, ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Ask, and ask again for as long as there is a server and no worker. Whoever waits is told so.

    `ask` may be called more than once, so it must be harmless to repeat.
    """
    async with told_when_nobody_works(handle, place):
        while True:
            try:
                return await ask()
            except ServerUnavailable as error:
                if not is_unanswered(error):
                    raise


def is_unanswered(error: ServerUnavailable) -> bool:
    """Tell a server without workers from no server."""
    return isinstance(error.__cause__, RPCError) and error.__cause__.status in UNANSWERED


@asynccontextmanager
async def told_when_nobody_works(handle: SessionHandle, place: Place) -> AsyncGenerator[None]:
    """While the block lasts, say once, after a few seconds, when no worker answers for the session."""
    watch = asyncio.create_task(_watch(handle, place))
    try:
        yield
    finally:
        watch.cancel()


async def _watch(handle: SessionHandle, place: Place) -> None:
    await asyncio.sleep(PATIENCE)
    while await _worker_answers(handle):  # noqa: ASYNC110  # nothing tells that workers have gone
        await asyncio.sleep(PAUSE)
    queue = "" if place.task_queue == TASK_QUEUE else f" --task-queue {place.task_queue}"
    complain(
        f"no worker has answered on task queue {place.task_queue!r} of {readable(place.address)} yet; waiting. "
        f"Start one with `perdure worker MODULE:APP{queue}`"
    )


async def _worker_answers(handle: SessionHandle) -> bool:
    """Ask for the view, which any worker of the session's task queue can give, and which leaves no event."""
    try:
        async with asyncio.timeout(PATIENCE):
            await handle.view()
    except TimeoutError:
        return False
    except ServerUnavailable as error:
        return not is_unanswered(error)
    except PerdureError:
        # There is no such session, or it does not answer this: whoever waits will be told by its own call.
        return True
    return True
