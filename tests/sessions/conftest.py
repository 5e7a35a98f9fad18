"""What tests of sessions share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.effects import Effects, effects

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@pytest.fixture
async def service() -> AsyncGenerator[Effects]:
    """A system of record."""
    async with effects() as running:
        yield running
