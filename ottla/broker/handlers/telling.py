"""Lines of the log for what one request did, of which there may be thousands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

TOLD_PER_TURN = 20
"""A line takes 40 us, so others get the loop each millisecond."""

T = TypeVar("T")


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, with the loop given to others from time to time."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % TOLD_PER_TURN == 0:
            await asyncio.sleep(0)
