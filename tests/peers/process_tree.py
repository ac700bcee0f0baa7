"""CPU seconds and resident memory of a process and all its living descendants, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def _read(path: str) -> str:
    """The text of a /proc file, empty when its process has just ended."""
    try:
        return Path(path).read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def descendants(pid: int) -> list[int]:
    """The process itself and everything below it, children of each thread included."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        current = waiting.pop()
        found.append(current)
        try:
            threads = os.listdir(f"/proc/{current}/task")
        except (FileNotFoundError, ProcessLookupError):
            continue
        for thread in threads:
            children = _read(f"/proc/{current}/task/{thread}/children")
            waiting += [int(child) for child in children.split()]
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of the tree, ended children that were waited for included."""
    ticks = 0
    for process in descendants(pid):
        fields = _read(f"/proc/{process}/stat").rpartition(")")[2].split()
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / TICKS_PER_SECOND


def resident_mb(pid: int) -> float:
    """Resident memory of the tree in MiB; pages shared by two of its processes count twice."""
    total_kb = 0
    for process in descendants(pid):
        for line in _read(f"/proc/{process}/status").splitlines():
            if line.startswith("VmRSS:"):
                total_kb += int(line.split()[1])
    return total_kb / 1024
