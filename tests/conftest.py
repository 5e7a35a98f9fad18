"""What all tests share: one Temporal server a test process, and worlds on it.

`--archive postgresql` runs them all with their archives on PostgreSQL, a database of its own for each test.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from perdure.deployment import make_importable

make_importable()

from perdure import testing  # noqa: E402  # importable only now
from tests.support.postgres import Postgres, postgres  # noqa: E402  # importable only now
from tests.support.world import AT_ONCE  # noqa: E402  # importable only now
from worker.embedded import EmbeddedServer  # noqa: E402  # importable only now

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("here"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "here"))


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """One real Temporal server for all tests of this process that don't harm it."""
    with asyncio.Runner() as runner:
        server = EmbeddedServer.ephemeral(dynamic_config=AT_ONCE)
        runner.run(server.start())
        yield server
        runner.run(server.stop())


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let somebody choose where archives are."""
    parser.addoption("--archive", choices=["sqlite", "postgresql"], default="sqlite", help="where archives are")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One PostgreSQL for all tests of this process."""
    with postgres() as server:
        yield server


@pytest.fixture(autouse=True)
def archive_place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a test's archives are, if it does not say so itself."""
    if request.config.getoption("--archive") == "postgresql" and inspect.iscoroutinefunction(request.function):
        server: Postgres = request.getfixturevalue("postgres_server")
        url = server.fresh_database()

        def on_postgres(home: Path) -> str:
            del home
            return url

        monkeypatch.setattr(testing, "archive_in", on_postgres)
