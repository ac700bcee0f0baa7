"""The broker in a user's process: on their loop or in a thread, several at once, over restarts."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.broker.broker import Broker as RunningBroker
from ottla.broker.log.directories import LogDirError
from ottla.broker.quorum.driver import Quorum
from ottla.config.types import ConfigError
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.testing.embedded import Broker, BrokerThread
from tests.broker.small_client import client_of

READY_SECONDS_MAX = 1.0
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "standard": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}


def _round_trip(bootstrap: str, topic: str) -> list[bytes]:
    """Ten values in and out with librdkafka, which creates the topic by asking."""
    settings = {"bootstrap.servers": bootstrap}
    producer = Producer(settings)
    for number in range(10):
        producer.produce(topic, b"value %d" % number)
    assert producer.flush(20) == 0
    consumer = Consumer(settings | {"group.id": "embedded", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < 10:
        for message in consumer.consume(10, 10):
            assert message.error() is None
            found.append(cast(bytes, message.value()))
    consumer.close()
    return found


@pytest.mark.parametrize("loop", LOOPS)
def test_on_the_users_loop(loop: str) -> None:
    async def scenario() -> None:
        async with Broker() as broker, client_of(broker) as client:
            await client.create("t")
            assert (await client.produce("t", b"one", b"two")).base_offset == 0
            assert await client.values("t") == [b"one", b"two"]

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(scenario())


@pytest.mark.parametrize("use_uvloop", [True, False, None])
def test_in_a_thread_for_clients_that_block(use_uvloop: bool | None) -> None:
    with BrokerThread(use_uvloop=use_uvloop) as broker:
        values = _round_trip(broker.bootstrap_servers, "blocking")

    assert values == [b"value %d" % number for number in range(10)]


async def test_on_the_users_loop_a_client_that_blocks_is_called_in_a_thread() -> None:
    async with Broker() as broker:
        values = await asyncio.to_thread(_round_trip, broker.bootstrap_servers, "beside")

    assert values == [b"value %d" % number for number in range(10)]


def _topics(broker: BrokerThread) -> set[str]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    return set(admin.list_topics(timeout=20).topics)


def test_in_a_thread_it_starts_again_where_it_stopped(tmp_path: Path) -> None:
    broker, fleeting = BrokerThread(tmp_path), BrokerThread()
    with broker, fleeting:
        _round_trip(broker.bootstrap_servers, "kept")
        _round_trip(fleeting.bootstrap_servers, "lost")
        with pytest.raises(RuntimeError, match="stop it first"):
            broker.start()
    broker.stop()
    with pytest.raises(RuntimeError, match="the broker is not started"):
        _ = broker.bootstrap_servers
    with broker, fleeting:
        topics = (_topics(broker), _topics(fleeting))

    # A consumer that ends before it has found its coordinator has no such topic made.
    assert topics[0] - {"__consumer_offsets"} == {"kept"}
    assert topics[1] == set()


def test_in_its_block_it_comes_back_where_it_was() -> None:
    """For a client that is to outlive it; the block's end takes the directory away."""
    with BrokerThread() as broker:
        address, data_dir = broker.bootstrap_servers, broker.data_dir
        _round_trip(address, "kept")
        broker.stop()
        broker.start()
        assert (broker.bootstrap_servers, broker.data_dir) == (address, data_dir)
        assert "kept" in _topics(broker)
        broker.stop()
        assert Path(data_dir).exists()

    assert not Path(data_dir).exists()


async def test_on_the_users_loop_it_comes_back_where_it_was_until_its_block_ends() -> None:
    made = Broker()
    async with made as broker:
        address, data_dir = broker.bootstrap_servers, broker.data_dir
        await broker.stop()
        await broker.start()
        assert (broker.bootstrap_servers, broker.data_dir) == (address, data_dir)

    assert not Path(data_dir).exists()
    await made.start()
    assert made.data_dir != data_dir
    await made.stop()
    assert not Path(made.data_dir).exists()


async def test_it_is_ready_in_milliseconds() -> None:
    async with Broker():
        pass  # what is imported on use is imported now
    started = time.perf_counter()
    async with Broker() as broker, client_of(broker) as client:
        await client.connection.request(MetadataRequest([]), 12)
        seconds = time.perf_counter() - started

    os.write(2, b"an embedded broker answered after %d ms\n" % (seconds * 1000))
    assert seconds < READY_SECONDS_MAX


async def test_several_live_side_by_side() -> None:
    async with Broker() as first, Broker() as second, Broker() as third:
        brokers = (first, second, third)
        assert len({broker.bootstrap_servers for broker in brokers}) == 3
        for number, broker in enumerate(brokers):
            async with client_of(broker) as client:
                await client.create("same")
                await client.produce("same", b"of %d" % number)
        for number, broker in enumerate(brokers):
            async with client_of(broker) as client:
                assert await client.values("same") == [b"of %d" % number]


async def test_a_directory_of_its_own_goes_with_it() -> None:
    async with Broker() as broker:
        assert os.listdir(broker.data_dir)
    assert not os.path.exists(broker.data_dir)


def test_one_that_is_never_started_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for broker in (Broker(), BrokerThread()):
        with pytest.raises(RuntimeError, match="the broker is not started"):
            _ = broker.data_dir

    assert os.listdir(tmp_path) == []
    assert Broker(tmp_path).data_dir == str(tmp_path)


async def test_one_that_runs_on_the_users_loop_is_not_started_again() -> None:
    async with Broker() as broker:
        with pytest.raises(RuntimeError, match="stop it first"):
            await broker.start()

        assert broker.bootstrap_servers


async def test_a_start_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="cannot listen on") as refused:
            async with Broker(port=taken.getsockname()[1]):
                pass
        assert refused.value.__notes__ == ["port=0, the default, takes a free one."]

    assert os.listdir(tmp_path) == []


async def test_a_telemetry_port_that_is_taken_has_a_way_out_of_its_own() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        broker = Broker(config={"ottla.telemetry.port": taken.getsockname()[1]})
        with pytest.raises(OSError, match="cannot serve /metrics") as refused:
            await broker.start()

    assert not hasattr(refused.value, "__notes__")


def test_a_setting_that_is_refused_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match="no such key"):
        Broker(config={"num.partition": 3})

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("key", ["log.dir", "log.dirs"])
@pytest.mark.parametrize("beside", [None, "beside"])
def test_a_directory_that_the_settings_name_is_the_one_that_is_told_and_kept(
    tmp_path: Path, key: str, beside: str | None
) -> None:
    data_dir = None if beside is None else tmp_path / beside
    wanted = str(tmp_path / "wanted")
    for expected in ({"first"}, {"first", "second"}):
        with BrokerThread(data_dir, config={key: wanted}) as broker:
            _round_trip(broker.bootstrap_servers, "second" if _topics(broker) else "first")
            assert broker.data_dir == wanted
            assert _topics(broker) - {"__consumer_offsets"} == expected

    assert os.listdir(tmp_path) == ["wanted"]


def _files(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("of", ["listener", "telemetry"])
async def test_a_start_on_a_taken_port_changes_nothing_on_the_disk(tmp_path: Path, of: str) -> None:
    data = tmp_path / "data"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        unlucky = Broker(data, port=port)
        if of == "telemetry":
            unlucky = Broker(data, config={"ottla.telemetry.port": port})
        with pytest.raises(OSError, match=rf"127\.0\.0\.1:{port}: .* in use"):
            await unlucky.start()
        assert not data.exists()
        async with Broker(data) as broker, client_of(broker) as client:
            await client.create("t")
        before = _files(data)
        with pytest.raises(OSError, match="in use"):
            await unlucky.start()

    assert _files(data) == before


async def test_a_restart_finds_its_records_ids_and_producers(tmp_path: Path) -> None:
    async with Broker(tmp_path) as broker, client_of(broker) as client:
        (topic_id,) = await client.create("kept")
        await client.produce("kept", b"one", producer_id=7, sequence=0)
        await client.produce("kept", b"two", producer_id=7, sequence=1)
    async with Broker(tmp_path) as broker, client_of(broker) as client:
        assert broker.running.rooms.image.topics.by_name["kept"].topic_id == topic_id
        assert await client.values("kept") == [b"one", b"two"]
        again = await client.produce("kept", b"two", producer_id=7, sequence=1)
        assert (again.error_code, again.base_offset) == (0, 1)
        following = await client.produce("kept", b"three", producer_id=7, sequence=2)
        assert following.base_offset == 2

    assert os.path.isdir(tmp_path / "kept-0")


async def test_a_directory_serves_one_broker_at_a_time(tmp_path: Path) -> None:
    async with Broker(tmp_path) as broker, client_of(broker) as client:
        with pytest.raises(LogDirError, match="in use by another broker of this very process: "):
            async with Broker(tmp_path):
                pass
        await client.create("unharmed")
        assert (await client.produce("unharmed", b"x")).error_code == 0


async def test_a_broken_invariant_is_raised_where_the_broker_was_opened() -> None:
    def broken(session: Any, request: Any, version: int) -> Any:
        raise AssertionError("two and two are five")

    async def scenario() -> None:
        async with broker, client_of(broker) as client:
            broker.running.server.table[ApiKey.METADATA].handle = broken
            with pytest.raises(ConnectionError):
                await client.connection.request(MetadataRequest([]), 12)
            await asyncio.wait_for(asyncio.shield(broker.running.failed), 5)

    broker = Broker()
    with pytest.raises(AssertionError, match="two and two are five"):
        await scenario()
    assert not os.path.exists(broker.data_dir)


class BrokenWaiter:
    of_several = False

    def advanced(self) -> None:
        pass

    def interrupted(self) -> None:
        raise AssertionError("answered twice")


def _threads() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.startswith(("ottla", "sync"))}


async def test_what_goes_wrong_with_one_part_of_a_stop_ends_no_others_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What went wrong first is raised, and nothing says that the stop was a clean one."""
    submitted: list[object] = []

    def broken() -> None:
        raise KeyError("a bug behind it")

    async def scenario() -> None:
        async with broker, client_of(broker) as client:
            await client.create("kept")
            await client.produce("kept", b"one")
            led = broker.running.replicas.get("kept", 0)
            assert led is not None
            led.fetch_waiters[BrokenWaiter()] = None
            monkeypatch.setattr(broker.running.rooms.groups, "close", broken)
            monkeypatch.setattr(broker.running.quorum, "submit", submitted.append)

    broker = Broker(tmp_path)
    before = _threads()
    with pytest.raises(AssertionError, match="answered twice"):
        await scenario()
    assert submitted == []
    assert _threads() <= before
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    async with Broker(tmp_path) as again, client_of(again) as client:
        assert await client.values("kept") == [b"one"]


@pytest.mark.parametrize("times", [1, 2])
async def test_a_stop_that_is_given_up_ends_everything_first(tmp_path: Path, times: int) -> None:
    """The directory is not given back while something is still under way there."""
    broker = Broker(tmp_path)
    before = _threads()
    await broker.start()
    async with client_of(broker) as client:
        await client.create("kept")
        await client.produce("kept", b"one")
    running = broker.running
    stopping = asyncio.create_task(broker.stop())
    for _ in range(times):
        await asyncio.sleep(0)
        stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert not running.failed.done()
    assert _threads() <= before
    assert (tmp_path / ".kafka_cleanshutdown").exists()


async def test_two_may_stop_it_at_once(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    await broker.start()

    await asyncio.gather(broker.stop(), broker.stop())
    async with broker:
        assert broker.bootstrap_servers


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc")
async def test_a_start_that_is_given_up_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Quorum.start

    async def cancelled(self: Quorum) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await begin(self)

    with monkeypatch.context() as patched:
        patched.setattr(Quorum, "start", cancelled)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(Broker(tmp_path).start())

    links = (one.path for one in os.scandir("/proc/self/fd"))
    opened = [os.readlink(one) for one in links if os.path.lexists(one)]
    assert [one for one in opened if one.startswith(str(tmp_path))] == []


class Interrupted(Exception):
    """What a test's timeout raises wherever the main thread is."""


@pytest.fixture
def interrupting() -> Iterator[Callable[[], None]]:
    """Interrupts the main thread, from another, which goes on when that has heard of it."""

    def interrupted(*_: object) -> None:
        heard.set()
        raise Interrupted

    def interrupt() -> None:
        # A thread that is about to wait for a lock hears of a signal when it has it.
        for _ in range(1000):
            signal.pthread_kill(main, signal.SIGUSR2)
            if heard.wait(0.01):
                return
        raise AssertionError("nobody heard")

    heard = threading.Event()
    main = threading.main_thread().ident or 0
    before = signal.signal(signal.SIGUSR2, interrupted)
    yield interrupt
    signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize("has_ended", [False, True])
@pytest.mark.parametrize("verb", ["start", "stop"])
def test_who_is_interrupted_leaves_no_broker_behind(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    interrupting: Callable[[], None],
    verb: str,
    has_ended: bool,
) -> None:
    async def work(self: RunningBroker) -> None:
        if has_ended:
            await undisturbed(self)
            interrupting()
        else:
            interrupting()
            await undisturbed(self)

    undisturbed = getattr(RunningBroker, verb)
    before = _threads()
    broker = BrokerThread(tmp_path)
    if verb == "stop":
        broker.start()
    with monkeypatch.context() as patched:
        patched.setattr(RunningBroker, verb, work)
        with pytest.raises(Interrupted):
            getattr(broker, verb)()

    assert _threads() <= before
    with broker:
        assert _topics(broker) == set()


def test_a_thread_that_ends_ends_what_runs_there() -> None:
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(asyncio.current_task())

    async def begin() -> None:
        begun.append(asyncio.create_task(endless()))

    begun: list[asyncio.Task[None]] = []
    ended: list[object] = []
    with BrokerThread() as broker:
        broker.call(begin())

    assert ended == begun


def test_a_broken_invariant_is_raised_in_the_thread_of_the_caller() -> None:
    def scenario() -> None:
        with BrokerThread() as broker:

            async def fail() -> None:
                broker.running.fail(AssertionError("no leg to stand on"))

            broker.call(fail())

    with pytest.raises(AssertionError, match="no leg to stand on"):
        scenario()


def test_the_lines_of_the_readme_that_make_partitions_work() -> None:
    (lines,) = [block for block in _readme().split("\n\n    from ") if "AdminClient(" in block]
    program = textwrap.dedent("    from " + re.split(r"\n\n(?! )", lines)[0])
    with BrokerThread() as broker:
        bootstrap = broker.bootstrap_servers
        assert "localhost:9092" in program
        exec(program.replace("localhost:9092", bootstrap), {})
        topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).topics

    assert len(topics["orders"].partitions) == 12


def _readme() -> str:
    return (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


async def test_the_settings_that_are_not_kafkas_are_named_in_the_readme() -> None:
    readme = _readme()
    async with Broker() as broker:
        own = broker.running.rooms.config.layers.static
    left = [name for name in own if name.startswith("group.")]

    assert len(left) == 4
    assert [name for name in left if f"`{name}`" not in readme] == []


def test_a_broker_without_await_says_which_one_blocks() -> None:
    expected = r"`async with Broker\(\)`; `with BrokerThread\(\)`"
    with pytest.raises(TypeError, match=expected), Broker():
        pass


async def test_a_thread_that_is_awaited_says_which_one_to_await() -> None:
    with pytest.raises(TypeError, match=r"write `async with Broker\(\)`"):
        async with BrokerThread():
            pass


@pytest.mark.parametrize("name", ["a,b", "a ", " a"])
def test_a_name_that_is_no_one_directory_in_a_list_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"log\.dirs is a list"):
        BrokerThread(name)


def test_what_is_no_path_or_no_port_is_told_by_its_name() -> None:
    with pytest.raises(TypeError, match="settings go by config="):
        BrokerThread({"num.partitions": 3})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="port=70000: 0, for any that is free, to 65535"):
        BrokerThread(port=70_000)
    for port in ("abc", "9092", None, 9092.0):
        with pytest.raises(TypeError, match=f"port={port!r}: a whole number, 0, for any that is"):
            BrokerThread(port=port)  # type: ignore[arg-type]


async def test_a_setting_that_is_a_list_may_be_given_as_one() -> None:
    async with Broker(config={"log.cleanup.policy": ["compact", "delete"]}) as broker:
        assert broker.running.rooms.config.log_cleanup_policy == ("compact", "delete")
    with pytest.raises(ConfigError, match=r"log\.dirs: 'a,b' has a comma"):
        Broker(config={"log.dirs": ("a,b", "c")})


def test_a_client_finds_a_listener_on_an_ipv6_address() -> None:
    with BrokerThread(config={"listeners": "PLAINTEXT://[::1]:0"}) as broker:
        assert broker.bootstrap_servers.startswith("[::1]:")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert len(admin.list_topics(timeout=10).brokers) == 1


def test_a_program_that_stops_no_broker_leaves_no_directory(tmp_path: Path) -> None:
    program = (
        "from ottla.testing import BrokerThread; b = BrokerThread(); b.start(); print(b.data_dir)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert ended.stdout.strip().startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def _lines_of(program: str) -> list[str]:
    """What it prints; it ends by itself."""
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return ended.stdout.splitlines()


def test_a_process_that_was_forked_keeps_nothing_of_one_that_stops() -> None:
    program = """
        import os, socket, struct
        from ottla.testing import BrokerThread

        with BrokerThread() as broker:
            host, _, port = broker.bootstrap_servers.rpartition(":")
            client = socket.create_connection((host, int(port)), timeout=20)
            client.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
            client.recv(65536)
            waiting, end = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(end)
                os.read(waiting, 1)
                os._exit(0)
            broker.stop()
            print(client.recv(1))
            try:
                socket.create_connection((host, int(port)), timeout=20)
            except ConnectionRefusedError:
                print("refused")
            broker.start()
            print(broker.bootstrap_servers == f"{host}:{port}")
            os.close(end)
            os.waitpid(child, 0)
    """

    assert _lines_of(program) == ["b''", "refused", "True"]


def test_a_process_that_was_forked_leaves_its_block_and_not_the_broker() -> None:
    program = """
        import os, sys
        from ottla.testing import BrokerThread

        with BrokerThread() as broker:
            child = os.fork()
            if child == 0:
                sys.exit(0)
            print(os.waitpid(child, 0)[1], os.path.isdir(broker.data_dir))
            broker.stop()
            child = os.fork()
            if child == 0:
                sys.exit(0)
            print(os.waitpid(child, 0)[1], os.path.isdir(broker.data_dir))
    """

    assert _lines_of(program) == ["0 True", "0 True"]


def test_what_is_deleted_is_removed_in_a_process_that_was_forked_after_something_was() -> None:
    """A fork takes no thread along, and a stop would wait for the one that removes files."""
    program = """
        import asyncio, os
        from ottla.broker.retention_job import _step

        def remove():
            print("removed", flush=True)

        asyncio.run(_step(remove))
        child = os.fork()
        if child == 0:
            asyncio.run(_step(remove))
            os._exit(0)
        print(os.waitpid(child, 0)[1])
    """

    assert _lines_of(program) == ["removed", "removed", "0"]


def test_a_port_that_is_kept_is_no_choice_of_somebody() -> None:
    with BrokerThread() as broker, socket.socket() as taking:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        broker.stop()
        taking.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taking.bind((host, int(port)))
        taking.listen()
        with pytest.raises(OSError, match="cannot listen on") as refused:
            broker.start()

    assert not hasattr(refused.value, "__notes__")
