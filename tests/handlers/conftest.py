"""A house for each test, closed behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.handlers.rooms import House


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House() as opened:
        yield opened
