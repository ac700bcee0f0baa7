"""The process on the metrics page, by Prometheus' own names: what dashboards ask of every program.

All is read from /proc when the page is asked for. Where there is none (macOS) nothing is shown.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable

from ottla.broker.telemetry.metrics import Registry, Sample

PROC = "/proc"
# Fields of /proc/PID/stat as proc(5) numbers them from 1; the first that we can split off is 3.
_UTIME, _STIME, _START, _VSIZE, _RSS = 14, 15, 22, 23, 24
_FIRST = 3


def watch_process(registry: Registry, proc: str = PROC) -> None:
    """Registers what the kernel counts of this process; in somebody's program, of all of it."""
    if not os.path.exists(f"{proc}/self/stat"):
        return
    process = _Process(proc)

    def watch(name: str, sentence: str, read: Callable[[], float]) -> None:
        kind = "counter" if name.endswith("_total") else "gauge"
        registry.watch(name, sentence, lambda: _if_readable(read), kind=kind)

    watch("process_resident_memory_bytes", "Resident memory.", process.resident_bytes)
    watch("process_virtual_memory_bytes", "Virtual memory.", process.virtual_bytes)
    watch("process_cpu_seconds_total", "CPU time, user and system.", process.cpu_seconds)
    watch("process_start_time_seconds", "When it started, in Unix time.", process.start_seconds)
    watch("process_open_fds", "Open file descriptors.", process.open_descriptors)
    watch("process_max_fds", "File descriptors that it may open.", process.most_descriptors)


def _if_readable(read: Callable[[], float]) -> list[Sample]:
    """Nothing where a file is hidden (ProcSubset=pid of systemd), or no descriptor is left."""
    try:
        return [({}, read())]
    except OSError:
        return []


class _Process:
    """This process; each question reads anew."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._booted_s: int | None = None

    def resident_bytes(self) -> int:
        return self._stat(_RSS) * self._page_bytes

    def virtual_bytes(self) -> int:
        return self._stat(_VSIZE)

    def cpu_seconds(self) -> float:
        return self._stat(_UTIME, _STIME) / self._ticks_per_s

    def start_seconds(self) -> float:
        if self._booted_s is None:  # this file is a large one where there are many processors
            self._booted_s = _boot_seconds(self._proc)
        return self._booted_s + self._stat(_START) / self._ticks_per_s

    def open_descriptors(self) -> int:
        folder = f"{self._proc}/self/fd"
        # Linux 6.2 and later says it without a list, which takes 1 ms for some thousand.
        return os.stat(folder).st_size or len(os.listdir(folder)) - 1

    def most_descriptors(self) -> float:
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return float("inf") if most == resource.RLIM_INFINITY else most

    def _stat(self, *numbers: int) -> int:
        """The sum of some fields."""
        with open(f"{self._proc}/self/stat", encoding="ascii", errors="replace") as file:
            # The name of the program stands in brackets, and may have any characters in it.
            fields = file.read().rpartition(")")[2].split()
        return sum(int(fields[number - _FIRST]) for number in numbers)


def _boot_seconds(proc: str) -> int:
    with open(f"{proc}/stat", encoding="ascii") as file:
        for line in file:
            if line.startswith("btime "):
                return int(line.split()[1])
    raise OSError(f"{proc}/stat does not say when the machine was started")
