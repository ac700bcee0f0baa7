"""`ottla serve` as a service manager has it: told when it is ready, and ended by SIGTERM."""

from __future__ import annotations

import re
import resource
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest

from ottla.broker.faults import EXIT_STATUS
from ottla.broker.kernel_sends import KernelSends
from ottla.broker.posix import DESCRIPTORS_AT_START
from ottla.compiled import build
from tests.peers import topics
from tests.peers.raw import Connection, batch
from tests.peers.servers import Ottla

STOP_SECONDS_MAX = 5.0
"""It takes some 0.05 s, on a busy machine more; the fetch that waits would wait for a minute."""
PIPELINED = 20
"""Batches sent at once: the signal comes when the first is answered."""


def test_a_broker_that_is_told_to_end_answers_and_marks_its_directory_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    server = Ottla(tmp_path / "broker")
    with ExitStack() as held:
        told = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        told.bind(str(tmp_path / "notify"))
        told.settimeout(20)
        held.callback(server.close)
        server.start()
        assert told.recv(100) == b"READY=1"
        marker = server.data / ".kafka_cleanshutdown"
        topics.create(server.bootstrap, {"t": 1, "quiet": 1})
        waiting, client = (held.enter_context(closing(Connection(server.port))) for _ in range(2))
        waiting.send_fetch("quiet", 0, 0, max_bytes=1000, wait_ms=60_000)
        for number in range(PIPELINED):
            client.send_produce("t", 0, batch([b"%d" % number], timestamp=0))
        assert client.receive_produced().error == 0

        assert server.process is not None
        started_s = time.perf_counter()
        server.process.send_signal(signal.SIGTERM)
        assert not waiting.receive_fetched(), "answered long before its minute was over"
        status = server.process.wait(20)
        took_s = time.perf_counter() - started_s
        server.process = None

        assert status == 0
        assert told.recv(100) == b"STOPPING=1"
        assert took_s < STOP_SECONDS_MAX
        assert marker.exists()
        acknowledged = 1 + _answered(client)
        server.start()
        assert not marker.exists()
        again = held.enter_context(closing(Connection(server.port)))
        again.send_produce("t", 0, batch([b"next"], timestamp=0))
        assert acknowledged <= again.receive_produced().base_offset <= PIPELINED


@contextmanager
def _hung_up(tmp_path: Path, inherited: signal.Handlers) -> Iterator[Ottla]:
    """A broker whose terminal was closed; `inherited` is what SIGHUP does where it begins."""
    server = Ottla(tmp_path / "broker")
    before = signal.signal(signal.SIGHUP, inherited)
    try:
        server.start()
        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)
        yield server
    finally:
        signal.signal(signal.SIGHUP, before)
        server.close()


def test_a_terminal_that_is_closed_stops_it_cleanly(tmp_path: Path) -> None:
    with _hung_up(tmp_path, signal.SIG_DFL) as server:
        assert server.process is not None
        status = server.process.wait(20)
        server.process = None

    assert status == 0
    assert (server.data / ".kafka_cleanshutdown").exists()


def test_who_was_started_by_nohup_goes_on(tmp_path: Path) -> None:
    with _hung_up(tmp_path, signal.SIG_IGN) as server:
        topics.create(server.bootstrap, {"t": 1})
        with closing(Connection(server.port)) as client:
            client.send_produce("t", 0, batch([b"v"], timestamp=0))
            assert client.receive_produced().error == 0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Ottla]:
    """Not started yet, and ended behind the test."""
    made = Ottla(tmp_path / "broker")
    yield made
    made.close()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells the table's size")
def test_it_waits_for_no_larger_table_of_descriptors(server: Ottla) -> None:
    server.start()
    status = Path(f"/proc/{server.pid}/status").read_text(encoding="ascii")
    (size,) = re.findall(r"^FDSize:\s+(\d+)$", status, re.MULTILINE)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)

    assert int(size) >= min(DESCRIPTORS_AT_START, limit)


def test_a_service_loads_nothing_that_it_may_never_use(
    server: Ottla, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries that draw tracebacks and that compress are a sixth of an idle broker's start."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    server.start()
    printed = server.output.read_text(encoding="utf-8")

    loaded = set(re.findall(r"^import time:.*\| +([a-z0-9_.]+)$", printed, re.MULTILINE))
    assert {"structlog", "pydantic", "asyncio"} <= loaded
    assert loaded & {"rich.console", "pygments", "cramjam"} == set()


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc/loadavg")
def test_a_service_rests_where_many_wait_for_the_processors(tmp_path: Path) -> None:
    """A broker in somebody else's process has no such figures."""
    server = Ottla(tmp_path / "broker")
    with ExitStack() as held:
        held.callback(server.close)
        server.start()
        found = re.search(r"http://(127\.0\.0\.1):(\d+)/metrics", server.tail())
        assert found is not None, server.tail()
        metrics = held.enter_context(closing(HTTPConnection(found[1], int(found[2]), timeout=20)))
        metrics.request("GET", "/metrics")
        page = metrics.getresponse().read().decode()

    assert f'build="{build()}"}} 1\n' in page
    assert "\nottla_rests_total 0\n" in page
    assert ("\nottla_joint_sends_total 0\n" in page) == (KernelSends.open() is not None)


def test_a_signal_shows_the_state_of_users_partitions_first(server: Ottla) -> None:
    server.start()
    topics.create(server.bootstrap, {"__consumer_offsets": 2, "u": 1, "a": 2})
    assert server.process is not None
    server.process.send_signal(signal.SIGUSR1)
    with closing(Connection(server.port)) as client:
        while "<Leader __consumer_offsets-1 " not in server.tail():  # which is shown last
            client.send_produce("u", 0, batch([b"v"], timestamp=0))
            assert client.receive_produced().error == 0

    shown = re.findall(r"^<Leader (\S+) ", server.tail(), re.MULTILINE)
    assert shown == ["a-0", "a-1", "u-0", "__consumer_offsets-0", "__consumer_offsets-1"]


def test_who_removes_a_running_brokers_files_is_told_so(tmp_path: Path) -> None:
    server = Ottla(tmp_path / "broker")
    with ExitStack() as held:
        held.callback(server.close)
        server.start()
        shutil.rmtree(server.data)
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        status = server.process.wait(20)
        server.process = None

    assert status == EXIT_STATUS
    last = server.tail().splitlines()[-1]
    assert f"ottla: the log dir {server.data} holds the metadata log and cannot be used" in last
    assert "Somebody has removed or renamed files there while the broker ran" in last


def _answered(client: Connection) -> int:
    """How many answers without an error come before the connection ends."""
    count = 0
    with suppress(ConnectionError):
        while client.receive_produced().error == 0:
            count += 1
    return count
