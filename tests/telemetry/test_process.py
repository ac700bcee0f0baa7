"""The process's own metrics, held against what Python knows of it."""

from __future__ import annotations

import mmap
import os
import resource
import sys
import time
from pathlib import Path

import pytest

from ottla.broker.telemetry.metrics import Registry
from ottla.broker.telemetry.process import watch_process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")


def _values(registry: Registry) -> dict[str, float]:
    lines = (line.split() for line in registry.lines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    watch_process(registry)
    return registry


def test_names_and_types_are_those_that_prometheus_libraries_use(registry: Registry) -> None:
    kinds = dict(line.split()[2:] for line in registry.lines() if line.startswith("# TYPE"))

    assert kinds == {
        "process_resident_memory_bytes": "gauge",
        "process_virtual_memory_bytes": "gauge",
        "process_cpu_seconds_total": "counter",
        "process_start_time_seconds": "gauge",
        "process_open_fds": "gauge",
        "process_max_fds": "gauge",
    }


def test_memory_grows_with_what_is_taken(registry: Registry) -> None:
    """A mapping of its own: `malloc` may give what an earlier test has left resident."""
    before = _values(registry)
    with mmap.mmap(-1, 50_000_000) as taken:
        taken[:: mmap.PAGESIZE] = bytes(len(range(0, len(taken), mmap.PAGESIZE)))
        after = _values(registry)

    grown = after["process_resident_memory_bytes"] - before["process_resident_memory_bytes"]
    assert 30_000_000 < grown < 70_000_000
    assert after["process_virtual_memory_bytes"] > after["process_resident_memory_bytes"]


def test_time_and_descriptors_are_those_of_this_process(registry: Registry) -> None:
    before = _values(registry)
    descriptor = os.dup(0)
    after = _values(registry)
    os.close(descriptor)

    used = resource.getrusage(resource.RUSAGE_SELF)
    assert abs(after["process_cpu_seconds_total"] - used.ru_utime - used.ru_stime) < 1
    assert after["process_open_fds"] == before["process_open_fds"] + 1
    assert after["process_max_fds"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert 0 <= time.time() - after["process_start_time_seconds"] < 86_400


def test_without_proc_nothing_is_shown(tmp_path: Path) -> None:
    registry = Registry()
    watch_process(registry, str(tmp_path))

    assert list(registry.lines()) == []


def test_what_is_hidden_is_left_out(tmp_path: Path) -> None:
    """As systemd hides all of /proc but the processes with ProcSubset=pid."""
    (tmp_path / "self").symlink_to("/proc/self")
    registry = Registry()
    watch_process(registry, str(tmp_path))

    assert _values(registry).keys() == {
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_cpu_seconds_total",
        "process_open_fds",
        "process_max_fds",
    }
