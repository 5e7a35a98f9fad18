"""Correlation: what every log line and span of an activity carries, so that a run can be followed across workers."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from temporalio import activity
from temporalio.exceptions import ApplicationError

from perdure.contract import ModelCall, ToolInvocation

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

tracer = trace.get_tracer("perdure")

ATTRIBUTE_PREFIX = "perdure.attribute."
"""The attributes of a turn stand under this on spans."""


@contextmanager
def correlated(call: ModelCall | ToolInvocation, span_name: str, **more: str | int) -> Generator[Span]:
    """Put the run's names on all log lines written inside, and on one span; names of GenAI's semantic conventions.

    What was said is on neither, and of a failure there is its type only.
    """
    names: dict[str, str | int] = {
        "turn_id": call.turn_id,
        "run_id": call.run_id,
        "step": call.step,
        "operation_id": call.operation_id,
        "attempt": activity.info().attempt,
    }
    who = {"agent_id": call.agent_id, "user_id": call.user_id, "session_id": call.session_id}
    bound = structlog.contextvars.bound_contextvars(**who, **names, attributes=dict(call.attributes))
    with (
        bound,
        tracer.start_as_current_span(
            span_name,
            kind=SpanKind.CLIENT if isinstance(call, ModelCall) else SpanKind.INTERNAL,
            attributes={**_span_attributes(call, names), **more},
            record_exception=False,
            set_status_on_exception=False,
        ) as span,
    ):
        try:
            yield span
        except ApplicationError as error:
            span.set_attribute("error.type", error.type or type(error).__name__)
            span.set_status(Status(StatusCode.ERROR))
            raise


def _span_attributes(call: ModelCall | ToolInvocation, names: Mapping[str, str | int]) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {f"perdure.{name}": value for name, value in names.items()}
    attributes |= {f"{ATTRIBUTE_PREFIX}{name}": value for name, value in call.attributes.items()}
    attributes["gen_ai.conversation.id"] = call.session_id
    attributes["gen_ai.agent.id"] = call.agent_id
    if call.user_id is not None:
        attributes["user.id"] = call.user_id
    return attributes
