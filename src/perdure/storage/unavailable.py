"""What stands in for a payload that can't be retrieved."""

from __future__ import annotations

from temporalio.api.common.v1 import Payload

from perdure.contract import UNAVAILABLE


def unavailable() -> Payload:
    """Return what stands in for a payload that can't be retrieved."""
    return Payload(metadata={"encoding": UNAVAILABLE})
