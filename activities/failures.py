"""How activities fail: one structured line in the log, and an error that says whether another attempt helps.

The errors are marked benign to Temporal's SDK, which would otherwise write a traceback for each refusal of a provider.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.beating import cancelled_by_session

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

MAX_MESSAGE = 2000
"""Characters of an error that are kept. Some carry a whole page of a web server, or megabytes, which can't travel."""

log = logging.getLogger("perdure.activities")


def failure(
    message: str,
    kind: str,
    *,
    final: bool,
    after: timedelta | None = None,
    cause: BaseException | None = None,
    details: Sequence[object] = (),
) -> ApplicationError:
    """Log a failed attempt and return the error to raise. `kind` is the error's type on the wire.

    Args:
        message: What happened, for people; it is kept in history.
        kind: The type, by which the workflow decides.
        final: Whether no other attempt is to be made.
        after: When the next attempt is due, if the provider said so.
        cause: What was raised, for its class name in the log. Its text may be private and is not logged.
        details: What the workflow is told besides.
    """
    extra = {"error": kind, "cause": None if cause is None else type(cause).__name__, "final": final}
    log.warning("attempt failed", extra=extra)
    return ApplicationError(
        message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 1]}…",
        *details,
        type=kind,
        non_retryable=final,
        next_retry_delay=after,
        category=ApplicationErrorCategory.BENIGN,
    )


def stopped(what: str) -> ApplicationError:
    """Return the error of an attempt that was cancelled: by its session, or because its worker stops.

    In the second case it is tried again elsewhere.
    """
    if activity.in_activity() and cancelled_by_session():
        return ApplicationError(f"{what} was stopped", type="Cancelled", category=ApplicationErrorCategory.BENIGN)
    return failure(f"{what} was stopped with its worker", "WorkerStopped", final=False)
