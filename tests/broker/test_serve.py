"""`ottla serve` as a person starts it: what is said when it cannot."""

from __future__ import annotations

import asyncio
import errno
import io
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NoReturn, TextIO

import pytest

from ottla import __version__
from ottla.broker import broker as broker_module
from ottla.broker import open_files, serve
from ottla.broker.log.checkpoints import CLEAN_SHUTDOWN_FILE
from ottla.broker.ports import Buffer
from ottla.broker.posix import PosixFile
from ottla.client.connection import Connection
from ottla.compiled import build
from ottla.config.broker import BrokerConfig
from ottla.config.load import Loaded
from ottla.protocol.messages.configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.protocol.messages.topics import CreateTopicsRequest
from ottla.testing.embedded import Broker
from tests.log.events import RecordedEvents
from tests.peers.servers import free_port


def test_a_taken_port_is_named_with_who_may_have_it_and_the_ways_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = [f"listeners=PLAINTEXT://127.0.0.1:{port}", f"log.dirs={tmp_path}/data"]
        arguments = [word for one in settings for word in ("--override", one)]
        status = serve.main([*arguments, "--override", "ottla.telemetry.port=-1"])

    assert status == serve.EX_UNAVAILABLE
    assert capsys.readouterr().err == (
        f"ottla: cannot listen on 127.0.0.1:{port}: Address already in use. Another broker may have"
        " the port, Ottla or Kafka; `ss -ltnp` names who has. Stop that one, or choose another"
        " port (--override listeners=PLAINTEXT://localhost:9192). Beside another Ottla this one"
        " needs its own log.dirs, too (--override log.dirs=DIRECTORY), and for its metrics its own"
        " ottla.telemetry.port (0 takes a free port).\n"
    )
    assert not (tmp_path / "data").exists()


def test_a_disk_that_fails_the_metadata_log_is_named_with_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = PosixFile.pwrite

    def failing(self: PosixFile, data: Buffer, position: int) -> None:
        if position and self.path.endswith("__cluster_metadata-0/00000000000000000000.log"):
            raise OSError(errno.EIO, "Input/output error", self.path)
        write(self, data, position)

    monkeypatch.setattr(PosixFile, "pwrite", failing)
    settings = ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path}/data"]
    arguments = [word for one in settings for word in ("--override", one)]
    status = serve.main([*arguments, "--override", "ottla.telemetry.port=-1"])

    assert status == serve.EX_UNAVAILABLE
    said = capsys.readouterr().err
    assert "the metadata log cannot be written: " in said
    assert "00000000000000000000.log: Input/output error" in said


TURNS = 100
"""Of the loop, which tells of a signal in one of the next."""


def _serve(log_dir: Path) -> int:
    settings = (f"log.dirs={log_dir}", "listeners=PLAINTEXT://127.0.0.1:0")
    arguments = [word for one in settings for word in ("--override", one)]
    return serve.main([*arguments, "--override", "ottla.telemetry.port=-1"])


@pytest.fixture
def signalled_in_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[list[signal.Signals]]:
    """The signals that come while the broker registers itself, in their order."""
    signals: list[signal.Signals] = []

    class Signalled(broker_module.Broker):
        async def _register(self) -> None:
            for number in signals:
                signal.raise_signal(number)
            for _ in range(TURNS):
                await asyncio.sleep(0)
            await super()._register()

    before = signal.signal(signal.SIGUSR1, lambda *_: None)  # it would end the tests
    monkeypatch.setattr(serve, "Broker", Signalled)
    yield signals
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def ends_once_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ending(broker_module.Broker):
        async def start(self) -> None:
            await super().start()
            self.scheduler.once("end", 1, partial(signal.raise_signal, signal.SIGTERM))

    monkeypatch.setattr(serve, "Broker", Ending)
    monkeypatch.setattr(serve, "_tame_collector", lambda broker: None)  # it is the tests' own


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_start_that_is_told_to_end_ends(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    signalled_in_the_start: list[signal.Signals],
    number: signal.Signals,
) -> None:
    """Told twice, too: somebody is impatient."""
    signalled_in_the_start += (number, number)

    assert _serve(tmp_path) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count('"event": "start_given_up"') == 1
    assert '"event": "broker_stopped"' in told.err
    signalled_in_the_start.clear()


def test_a_start_shows_its_state(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    signalled_in_the_start: list[signal.Signals],
) -> None:
    signalled_in_the_start += (signal.SIGUSR1, signal.SIGTERM)

    assert _serve(tmp_path) == 0
    told = capsys.readouterr().err
    assert "<Quorum " in told
    assert "<Scheduler " in told


async def test_what_is_not_there_yet_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    serve._show_state(broker_module.Broker(BrokerConfig(), events=RecordedEvents()))

    assert "<Scheduler jobs=[]" in capsys.readouterr().err


def _closed() -> TextIO:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    stream.close()
    return stream


@pytest.mark.usefixtures("ends_once_it_serves")
@pytest.mark.parametrize("made", [partial(open, "/dev/full", "w"), _closed])
def test_lines_that_nobody_takes_end_no_broker(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    made: Callable[[], TextIO],
) -> None:
    with monkeypatch.context() as patched, closing(made()) as stream:
        patched.setattr(sys, "stdout", stream)
        status = _serve(tmp_path)

    assert status == 0, capsys.readouterr().err
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()


@pytest.mark.usefixtures("ends_once_it_serves")
def test_letters_that_an_output_does_not_have_are_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))

    assert _serve(tmp_path / "\xe9") == 0
    assert b"data        %b/\\xe9" % bytes(tmp_path) in written.getvalue()


@pytest.mark.usefixtures("ends_once_it_serves")
def test_what_fails_behind_the_start_stops_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> NoReturn:
        raise KeyError("a bug")

    monkeypatch.setattr(serve, "tell_started", broken)
    with pytest.raises(KeyError, match="a bug"):
        _serve(tmp_path)

    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()


async def test_the_start_tells_the_durability_in_force_and_not_the_one_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A setting that was changed in the cluster goes before the file's."""
    broker = Broker(data_dir=tmp_path)
    async with broker:
        serve.say_ready(broker.running, Loaded(broker.running.rooms.config))
        assert "what is acknowledged is on disk" in capsys.readouterr().out
        await _alter_in_the_cluster(broker, "log.flush.interval.messages", "1000")
    async with broker:
        serve.say_ready(broker.running, Loaded(BrokerConfig()))
        assert "up to 999 records may be lost" in capsys.readouterr().out


async def test_logs_are_loaded_by_as_many_threads_as_the_cluster_says(tmp_path: Path) -> None:
    broker = Broker(data_dir=tmp_path)
    async with broker:
        assert broker.running.logs.recovery_threads == 2
        await _alter_in_the_cluster(broker, "num.recovery.threads.per.data.dir", "5")
    async with broker:
        assert broker.running.logs.recovery_threads == 5


async def test_the_start_says_which_settings_do_less_than_they_promise(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Those of topics, too, which no file names; the coordinators' own topics are our affair."""
    setting = CreateTopicsRequest.CreatableTopicConfig("cleanup.policy", "compact")
    topic = CreateTopicsRequest.CreatableTopic("t", 1, 1, [], [setting])
    internal = FindCoordinatorRequest(coordinator_keys=["g"])
    async with Broker(config={"min.insync.replicas": 2}) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        client = await Connection.open(host, int(port))
        for request, version in ((CreateTopicsRequest([topic]), 7), (internal, 4)):
            await client.request(request, version)
        await client.close()
        assert "__consumer_offsets" in broker.running.rooms.image.topics.by_name
        capsys.readouterr()
        serve.say_ready(broker.running, Loaded(broker.running.rooms.config))

    notes = [line for line in capsys.readouterr().out.splitlines() if "  note  " in line]
    policy, least = notes
    assert "cleanup.policy of topic t: logs are not compacted yet" in policy
    assert "min.insync.replicas=2: " in least


async def test_a_setting_that_a_change_at_run_time_overrules_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Broker(tmp_path) as broker:
        await _alter_in_the_cluster(broker, "log.retention.ms", "86400000")
    events = RecordedEvents()
    async with Broker(tmp_path, config={"log.retention.ms": 5000}) as broker:
        loaded = Loaded(broker.running.rooms.config, {"log.retention.ms": "--override"})
        serve.say_ready(broker.running, loaded)
        serve.tell_started(broker.running, loaded, events)

    sentence = (
        "log.retention.ms: 86400000, changed at run time for all brokers, goes before 5000 of"
        " --override"
    )
    ((_, started, told),) = events.told
    assert f"  note        {sentence}" in capsys.readouterr().out
    assert started == "broker_started"
    assert [note for note in told["notes"] if sentence in note]


async def test_the_start_tells_of_an_advertised_port_0_which_it_became(
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = {"advertised.listeners": "PLAINTEXT://kafka.example.org:0"}
    async with Broker(config=config) as broker:
        serve.say_ready(broker.running, Loaded(broker.running.rooms.config))
        port = broker.running.listeners[0].port

    first = capsys.readouterr().out.splitlines()[0]
    assert first.endswith(f"; clients are told PLAINTEXT://kafka.example.org:{port}")


@pytest.mark.parametrize(
    ("port", "told"),
    [(-1, "none: ottla.telemetry.port=-1"), (9464, "none: port 9464 is in use")],
)
async def test_the_start_tells_why_there_are_no_metrics(
    capsys: pytest.CaptureFixture[str], port: int, told: str
) -> None:
    """A broker that nobody gave a port goes without, where another one has the default."""
    async with Broker() as broker:
        serve.say_ready(broker.running, Loaded(BrokerConfig(ottla_telemetry_port=port)))

    assert f"\n  metrics     {told}\n" in capsys.readouterr().out


async def test_the_log_tells_the_start_too() -> None:
    events = RecordedEvents()
    async with Broker(config={"ottla.telemetry.port": 0}) as broker:
        config = broker.running.rooms.config
        loaded = Loaded(config, without_effect=("num.io.threads",))
        serve.tell_started(broker.running, loaded, events)
        telemetry = f"127.0.0.1:{broker.running.telemetry_port}"
        cluster_id, address = broker.running.logs.cluster_id, broker.bootstrap_servers

    assert events.told == [
        (
            "info",
            "broker_started",
            {
                "version": __version__,
                "build": build(),
                "node_id": 1,
                "cluster_id": cluster_id,
                "listeners": [f"PLAINTEXT://{address}"],
                "log_dirs": [broker.data_dir],
                "flush_messages": 1,
                "telemetry": telemetry,
                "notes": ["accepted without effect: num.io.threads"],
            },
        )
    ]


@pytest.mark.parametrize("host", ["", "0.0.0.0"])
async def test_listeners_that_others_can_reach_are_told_with_the_ways_out(host: str) -> None:
    """Only those: the one on loopback is left out."""
    listeners = f"HOST://127.0.0.1:0,OPEN://{host}:0"
    settings = {
        "listeners": listeners,
        "listener.security.protocol.map": "HOST:PLAINTEXT,OPEN:PLAINTEXT",
        "inter.broker.listener.name": "HOST",
    }
    events = RecordedEvents()
    async with Broker(config=settings) as broker:
        serve.tell_started(broker.running, Loaded(broker.running.rooms.config), events)
        port = broker.running.listeners[1].port

    assert events.told[1:] == [
        (
            "warning",
            "listeners_unauthenticated",
            {"listeners": [f"OPEN://{host}:{port}"], "reason": serve.OPEN_TO_ALL},
        )
    ]


async def test_few_open_files_are_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "raise_descriptor_limit", lambda: 256)
    events = RecordedEvents()
    async with Broker() as broker:
        serve.tell_started(broker.running, Loaded(broker.running.rooms.config), events)
        limits = broker.running.server.limits

    assert events.told[1:] == [
        ("warning", "few_open_files", {"connections_max": 56, "fix": open_files.WHAT_TO_DO})
    ]
    assert (limits.max_connections, limits.limited_by) == (56, "open files")


async def test_telemetry_that_others_can_reach_is_told_with_the_ways_out() -> None:
    events = RecordedEvents()
    settings: dict[str, str | int | float | bool] = {
        "ottla.telemetry.host": "0.0.0.0",
        "ottla.telemetry.port": 0,
    }
    async with Broker(config=settings) as broker:
        serve.tell_started(broker.running, Loaded(broker.running.rooms.config), events)
        port = broker.running.telemetry_port

    assert events.told[1:] == [
        (
            "warning",
            "telemetry_unauthenticated",
            {"telemetry": f"0.0.0.0:{port}", "reason": serve.TELEMETRY_OPEN_TO_ALL},
        )
    ]


@pytest.mark.parametrize(
    ("host", "told", "asked"),
    [("::1", "[::1]", "[::1]"), ("0.0.0.0", "127.0.0.1", "0.0.0.0"), ("::", "[::1]", "[::]")],
)
async def test_the_address_of_the_pages_can_be_asked_as_it_is_told(
    capsys: pytest.CaptureFixture[str], host: str, told: str, asked: str
) -> None:
    events = RecordedEvents()
    settings: dict[str, str | int] = {"ottla.telemetry.host": host, "ottla.telemetry.port": 0}
    async with Broker(config=settings) as broker:
        loaded = Loaded(broker.running.rooms.config)
        serve.say_ready(broker.running, loaded)
        serve.tell_started(broker.running, loaded, events)
        port = broker.running.telemetry_port

    assert f"  metrics     http://{told}:{port}/metrics, " in capsys.readouterr().out
    assert events.told[0][2]["telemetry"] == f"{told}:{port}"
    assert loaded.config.telemetry_address == f"{asked}:0"


async def test_a_listener_on_every_ipv6_address_is_named_by_one_that_leads_there() -> None:
    async with Broker(config={"listeners": "PLAINTEXT://[::]:0"}) as broker:
        assert broker.bootstrap_servers.startswith("[::1]:")


def test_two_listeners_on_one_address_are_no_other_brokers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port},SECOND://localhost:{port}"
    settings = {
        "log.dirs": tmp_path,
        "listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT",
        "ottla.telemetry.port": -1,
    }
    arguments = [f"--override={name}={value}" for name, value in settings.items()]

    assert serve.main(arguments) == serve.EX_UNAVAILABLE
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"ottla: the listeners PLAINTEXT and SECOND both ask for 127.0.0.1:{port}: choose another"
        " port for one of them."
    )


async def _alter_in_the_cluster(broker: Broker, name: str, value: str) -> None:
    setting = IncrementalAlterConfigsRequest.AlterableConfig(name, 0, value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(4, "", [setting])
    host, _, port = broker.bootstrap_servers.rpartition(":")
    client = await Connection.open(host, int(port))
    answer = await client.request(IncrementalAlterConfigsRequest([resource]), 1)
    assert [one.error_code for one in answer.responses] == [0]
    await client.close()
