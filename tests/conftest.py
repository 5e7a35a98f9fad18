"""What all tests share: one Temporal server a test process, and worlds on it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from perdure.deployment import make_importable

make_importable()

from worker.embedded import EmbeddedServer  # noqa: E402  # importable only now

if TYPE_CHECKING:
    from collections.abc import Iterator

settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("here"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "here"))


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """One real Temporal server for all tests of this process that don't harm it."""
    with asyncio.Runner() as runner:
        server = EmbeddedServer.ephemeral()
        runner.run(server.start())
        yield server
        runner.run(server.stop())
