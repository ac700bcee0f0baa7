"""Every asynchronous test of this room runs on the standard loop and on uvloop: connections differ
most there, and brokers in production run on uvloop, those in somebody's program on what it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"standard": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}
