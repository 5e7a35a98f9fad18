"""Archives on each kind of database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from perdure.archive import Archive

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from tests.support.postgres import Postgres


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an archive can be that nobody has used."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'folder' / 'archive.db'}"
    server: Postgres = request.getfixturevalue("postgres_server")
    return server.fresh_database()


@pytest_asyncio.fixture
async def archive(url: str) -> AsyncGenerator[Archive]:
    """An archive that nobody has used."""
    archive = Archive.at(url)
    yield archive
    await archive.aclose()
