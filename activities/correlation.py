"""Correlation: what every log line of an activity carries, so that a run can be followed across workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from temporalio import activity

from perdure.contract import ModelCall, ToolInvocation


@contextmanager
def correlated(call: ModelCall | ToolInvocation, **more: object) -> Iterator[None]:
    """Put the run's names on all log lines written inside, those of other libraries included.

    Attributes of the turn are added under `attributes`.
    """
    with structlog.contextvars.bound_contextvars(
        agent_id=call.agent_id,
        user_id=call.user_id,
        session_id=call.session_id,
        turn_id=call.turn_id,
        run_id=call.run_id,
        attributes=dict(call.attributes),
        attempt=activity.info().attempt,
        **more,
    ):
        yield
