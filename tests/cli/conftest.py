"""The world that the commands of one test module see."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest_asyncio
import structlog

from tests.cli.sample import app
from tests.support.world import world

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from perdure.testing import Served
    from worker.embedded import EmbeddedServer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(server: EmbeddedServer) -> AsyncGenerator[Served]:
    """The sample app, served for the whole module."""
    # By default the worker's log would go to standard output, where the tests look for what a command prints.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.__stderr__))
    async with world(server, app) as served:
        yield served
    structlog.reset_defaults()
