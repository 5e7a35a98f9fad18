"""Keeps updates out that a session could not take.

The server lets an update through that is larger than a payload in history may be. Accepting it fails the workflow task,
for ever: whoever may send updates could stop a session with one. What the sender stored outside is small, and passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    HandleUpdateInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from perdure.contract import RETRIEVED
from perdure.errors import ContextTooLarge

if TYPE_CHECKING:
    from collections.abc import Iterator


class UpdateGuard(Interceptor):
    """Refuses updates above a number of bytes, before they leave an event."""

    def __init__(self, limit: int) -> None:
        """Let through what is at most `limit` bytes."""
        self._limit = limit

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        """Return the interceptor of each workflow."""
        del input
        limit = self._limit

        class Guarded(WorkflowInboundInterceptor):
            def handle_update_validator(self, input: HandleUpdateInput) -> None:
                size = sum(len(raw.payload.data) for raw in _raws(input.args) if RETRIEVED not in raw.payload.metadata)
                if size > limit:
                    msg = (
                        f"{input.update} has {size} bytes, and {limit} is the most without external storage; "
                        "set PERDURE_STORAGE for workers and clients to keep large payloads outside of history"
                    )
                    raise ApplicationError(msg, type=ContextTooLarge.__name__, non_retryable=True)
                super().handle_update_validator(input)

        return Guarded


def _raws(args: object) -> Iterator[RawValue]:
    """Yield the raw values among a handler's arguments, which a dynamic handler gets as a list of its own."""
    if isinstance(args, RawValue):
        yield args
    elif isinstance(args, list | tuple):
        for each in args:  # pyright: ignore[reportUnknownVariableType]  # whatever the SDK hands over
            yield from _raws(each)  # pyright: ignore[reportUnknownArgumentType]  # the same
