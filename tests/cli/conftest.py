"""The world that the commands of one test module see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.cli.desks import Desk
from tests.cli.sample import app
from tests.support.world import world

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from perdure.testing import Served
    from worker.embedded import EmbeddedServer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(server: EmbeddedServer) -> AsyncGenerator[Served]:
    """The sample app, served for the whole module."""
    async with world(server, app) as served:
        yield served


@pytest.fixture
def desk(served: Served) -> Desk:
    """A session that nobody has used."""
    return Desk(served)
