"""What a tree of processes has taken is counted, of the living and of those that ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tests.peers.process_tree import TICKS_PER_SECOND, cpu_seconds

BUSY = """
import time
while time.process_time() < 0.2: pass
print(time.process_time(), flush=True)
input()
"""


def test_the_time_of_a_process_is_its_own_clock() -> None:
    before_s = time.process_time()
    told_s = cpu_seconds(os.getpid()) - sum(os.times()[2:4])
    after_s = time.process_time()
    # Of ended children both count whole ticks, which the kernel rounds for each of the two times.
    slack_s = 2 / TICKS_PER_SECOND
    assert before_s - slack_s <= told_s <= after_s + slack_s


def test_a_small_piece_of_work_is_seen() -> None:
    pid = os.getpid()
    before_s, began_s = cpu_seconds(pid), time.process_time()
    while time.process_time() - began_s < 0.001:
        pass
    took_s = cpu_seconds(pid) - before_s
    assert took_s >= 0.001
    ticks = took_s * TICKS_PER_SECOND
    assert abs(ticks - round(ticks)) > 1e-6, "a clock of whole ticks"


def test_a_child_counts_while_it_lives_and_behind_its_end() -> None:
    before_s = cpu_seconds(os.getpid())
    command = [sys.executable, "-c", BUSY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        spent_s = float(child.stdout.readline())
        assert cpu_seconds(child.pid) >= spent_s
        assert cpu_seconds(os.getpid()) - before_s >= spent_s
        child.communicate(b"\n", timeout=30)
    assert cpu_seconds(os.getpid()) - before_s >= 0.2 - 2 / TICKS_PER_SECOND


def test_nobody_takes_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait(30)
    assert cpu_seconds(ended.pid) == 0.0
