"""Work in the background gives way; the threads beside it do not."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.broker.posix import BACKGROUND_NICE, lower_thread_priority


def _nice() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no nice value of their own")
def test_one_thread_alone_gives_way() -> None:
    before = _nice()
    with ThreadPoolExecutor(1, initializer=lower_thread_priority) as background:
        assert background.submit(_nice).result() == max(before, BACKGROUND_NICE)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(_nice).result() == before
    assert _nice() == before
