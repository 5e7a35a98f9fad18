"""Every time-out and retry policy of the session workflow, each with its reason.

Durations that an agent decides come with the plans of its tool calls.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from temporalio.common import RetryPolicy

from perdure.operations import Effect

if TYPE_CHECKING:
    from perdure.contract import CallPlan

MODEL_ATTEMPT = timedelta(minutes=20)
"""One attempt of a model call. Long, since reasoning models think for minutes; a silent provider is noticed much
earlier by the client's own read time-out."""

MODEL_HEARTBEAT = timedelta(seconds=15)
"""How long a dead worker can hold a model call. Our activities beat every second from the event loop; fifteen seconds
forgive a loop that is blocked for a while, and a repeated model call costs money but has no effect."""

MODEL_RETRIES = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    backoff_coefficient=2,
    maximum_interval=timedelta(minutes=1),
    maximum_attempts=20,
)
"""The activity itself ends the attempts by the agent's `model_attempts` with a final error. The bound here is for
attempts that never got that far: a worker that dies each time it touches this call must not do so for ever."""

INTERRUPT_GRACE = timedelta(seconds=1.5)
"""How long a stopped operation may take to hand back what it has. Cancellation reaches an activity within a second,
with the next heartbeat."""

TOOL_BACKOFF_START = timedelta(milliseconds=500)
TOOL_BACKOFF_MAX = timedelta(seconds=30)
"""Tools are waited for by a person, so that attempts begin close together."""


TOOL_MARGIN = timedelta(seconds=5)
"""The worker ends an attempt itself at the tool's time-out, and knows more when it does; the server steps in after
this margin, when the worker is too busy even for that."""

LOST_WORKERS = 10
"""Attempts that a tool may lose to dying workers beyond its own `attempts`, which the activity counts."""


INQUIRY_RETRIES = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    backoff_coefficient=2,
    maximum_interval=timedelta(minutes=1),
    maximum_attempts=20,
)
"""The activity itself gives up after a few failures; the bound here is for workers that die, and for an answer that has
to wait until a lost attempt has ended."""


ARCHIVE_ATTEMPT = timedelta(minutes=2)
"""How long one way to the archive may take: a batch of some hundred entries, or a closed session with all that it
holds. A worker that dies on it is noticed by then; nobody waits for it."""

ARCHIVE_RETRIES = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_attempts=3)
"""Few: an archive that is down is tried again when more has come."""

ARCHIVE_LAST_RETRIES = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_interval=timedelta(minutes=1)
)
"""Without an end: a closed session ends when the archive has all of it. Whoever comes back meanwhile finds it as it
was."""

RESTORE_ATTEMPT = timedelta(seconds=3)
RESTORE_IN_ALL = timedelta(seconds=5)
"""How long the archive may take to say that it does not know a session. One that nobody has heard of does not wait
longer for it: it begins."""

RESTORE_TRY = RetryPolicy(maximum_attempts=1)
"""Once: what waits for another attempt of a local activity can panic when its worker stops (SDK 1.35)."""

RESTORE_RETRIES = RetryPolicy(
    initial_interval=timedelta(milliseconds=500), backoff_coefficient=2, maximum_interval=timedelta(seconds=15)
)
"""Without an end: a session that was there before goes on with what it was, or not at all."""


def tool_attempt(plan: CallPlan) -> timedelta:
    """How long one attempt of a tool may take: what the tool declares, and a margin."""
    return timedelta(seconds=plan.timeout_seconds) + TOOL_MARGIN


def tool_heartbeat(plan: CallPlan) -> timedelta:
    """How long a dead worker can hold a tool call: a setting of the worker that planned it."""
    return timedelta(seconds=plan.heartbeat_seconds)


def tool_retries(plan: CallPlan) -> RetryPolicy:
    """How often a tool may be started: a `once` tool a single time, whatever happens."""
    return RetryPolicy(
        initial_interval=TOOL_BACKOFF_START,
        backoff_coefficient=2,
        maximum_interval=TOOL_BACKOFF_MAX,
        maximum_attempts=1 if plan.effect is Effect.ONCE else plan.attempts + LOST_WORKERS,
    )
