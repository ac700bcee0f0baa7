"""The process on the metrics page, by Prometheus' own names: what dashboards ask of every program.

All is read from /proc when the page is asked for. Where there is none (macOS) nothing is shown.
"""

from __future__ import annotations

import os
import resource

from ottla.broker.telemetry.metrics import Registry

PROC = "/proc"
# Fields of /proc/PID/stat as proc(5) numbers them from 1; the first that we can split off is 3.
_UTIME, _STIME, _START, _VSIZE, _RSS = 14, 15, 22, 23, 24
_FIRST = 3


def watch_process(registry: Registry, proc: str = PROC) -> None:
    """Registers what the kernel counts of this process; in somebody's program, of all of it."""
    if not os.path.exists(f"{proc}/self/stat"):
        return
    process = _Process(proc)
    registry.watch(
        "process_resident_memory_bytes", "Resident memory size in bytes.", process.resident_bytes
    )
    registry.watch(
        "process_virtual_memory_bytes", "Virtual memory size in bytes.", process.virtual_bytes
    )
    registry.watch(
        "process_cpu_seconds_total",
        "Total user and system CPU time spent in seconds.",
        process.cpu_seconds,
        kind="counter",
    )
    registry.watch(
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
        process.start_seconds,
    )
    registry.watch("process_open_fds", "Number of open file descriptors.", process.open_descriptors)
    registry.watch(
        "process_max_fds", "Maximum number of open file descriptors.", process.most_descriptors
    )


class _Process:
    """This process; each question reads anew."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._booted_s = _boot_seconds(proc)

    def resident_bytes(self) -> int:
        return self._stat(_RSS) * self._page_bytes

    def virtual_bytes(self) -> int:
        return self._stat(_VSIZE)

    def cpu_seconds(self) -> float:
        return self._stat(_UTIME, _STIME) / self._ticks_per_s

    def start_seconds(self) -> float:
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
        line = next(line for line in file if line.startswith("btime "))
    return int(line.split()[1])
