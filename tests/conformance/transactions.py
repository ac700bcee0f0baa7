"""Transactions of unmodified clients: committed, aborted, fenced, and cut through by a kill -9.

    python -m tests.conformance.transactions [--only confluent-kafka,sarama] [--kafka]

For each client: transactions over two topics are committed and aborted in turn, and read back by
its own readers of committed and of all records; one topic is transformed into another, with the
offsets in the transactions, the first of which is aborted; a second producer fences the first,
which has left a transaction open; and while a stream of transactions goes on, the broker is killed
with SIGKILL and started again. Then every transaction that the client knows to be committed must be
there as a whole, none that it did not ask to commit, and of the others all or nothing. Apache
Kafka's own command lists, describes and aborts transactions. `make conformance` runs it, too.

With --kafka Apache Kafka is the broker. There some runs end with an aborted transaction that is
seen: 4.3.1, killed while it ends one, may complete it after the start without its markers, since
it seems to take partitions that have no leader yet for deleted (TransactionMarkerChannelManager).
"""

from __future__ import annotations

import queue
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.conformance import clients, scenes, transaction_commands
from tests.conformance.scenes import Kind, MemberProcess, java, python
from tests.conformance.transactional.commands import END, Values
from tests.peers import topics
from tests.peers.servers import ApacheKafka, Ottla, Server

PARTITIONS = 2
TURNS = ("turns-left", "turns-right")
STREAM = ("stream-left", "stream-right")
SOURCE, SINK, FENCE = "source", "sink", "fence"
TOPICS = {SINK: 1, FENCE: 1, **dict.fromkeys((*TURNS, *STREAM, SOURCE), PARTITIONS)}
TRANSACTIONS = 6
INPUTS = 90
KILLS = 2
LIFE_SECONDS = (0.0, 0.3)
STREAMED = 5
"""Transactions that are committed before a kill, and after the last."""
NAME = "transactional"
ANSWER_SECONDS_MAX = 60.0
STREAM_SECONDS_MAX = 60.0
PAUSE_SECONDS = 0.1
"""Between two processes that try to begin while there is no broker."""
# 90 is PRODUCER_FENCED, for which not every client has a name.
FENCED = re.compile(r"fenced|epoch|code = 90", re.IGNORECASE)
AT_ONCE = 4
"""Clients at a time, each with a broker of its own."""
SETTINGS = {"group_initial_rebalance_delay_ms": 0}

Row = tuple[str, int, str]
"""Topic, partition, value."""


def _go(name: str) -> tuple[str, ...]:
    return str(clients.FRANZ_GO), "transactional", name


_BY_NAME = {client.name: client for client in clients.CLIENTS}
KINDS = (
    Kind(clients.JAVA, java("Transactional.java")),
    Kind(clients.CONFLUENT, python("confluent", "transactional")),
    Kind(_BY_NAME["aiokafka"], python("aio", "transactional")),
    Kind(_BY_NAME["kafka-python"], python("pure", "transactional")),
    Kind(_BY_NAME["kafkajs"], ("node", str(clients.HERE / "node" / "transactional.js"))),
    Kind(_BY_NAME["franz-go"], _go("franz-go")),
    Kind(clients.SARAMA, _go("sarama")),
)


class AnsweredError(RuntimeError):
    """A client's operation failed, with an error that is its own."""


class Instance:
    """One process of a client, with a transactional id; see transactional/commands.py."""

    def __init__(self, command: Sequence[str]) -> None:
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._process = MemberProcess(command, self._answers.put)

    def do(self, *words: object) -> Values:
        """Has a command done; raises AnsweredError."""
        said = " ".join(map(str, words))
        self._process.say(said)
        return self.answer(said)

    def answer(self, asked: str) -> Values:
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while True:
            try:
                answer = self._answers.get(timeout=0.2)
            except queue.Empty:
                in_vain = self._process.is_over or time.monotonic() > deadline
                assert not in_vain, f"no answer to {asked}: {self._process.tail()}"
            else:
                break
        if answer["error"]:
            raise AnsweredError(f"{asked}: {answer['error']}")
        return [(partition, value) for partition, value in answer["values"]]

    def send(self, rows: list[Row]) -> None:
        """Begins a transaction and writes the rows."""
        self.do("begin")
        for row in rows:
            self.do("send", *row)

    def close(self, *names: str) -> None:
        """Writes to every partition what a reader takes for the end."""
        self.send([(name, index, END) for name in names for index in range(TOPICS[name])])
        self.do("commit")

    def read(self, isolation: str, *names: str) -> list[Row]:
        """Everything before the ends of these topics."""
        return [
            (name, partition, value)
            for name in names
            for partition, value in self.do("read", isolation, name, TOPICS[name])
            if value != END
        ]

    def kill(self) -> None:
        self._process.end(signal.SIGKILL)


@dataclass
class Scene:
    """One client and one broker."""

    kind: Kind
    server: Server
    instances: list[Instance] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    def start(self) -> Instance:
        """A process of the client, its transactions initialized."""
        instance = Instance([*self.kind.command, self.server.bootstrap, NAME])
        self.instances.append(instance)
        instance.answer("the start")
        return instance

    def part(self, name: str, act: Callable[[], None]) -> None:
        """Plays one part, and says in its failure which it was."""
        started = time.perf_counter()
        try:
            act()
        except (AssertionError, AnsweredError) as error:
            raise AssertionError(f"{name}: {error}") from error
        self.steps.append(f"{name} {time.perf_counter() - started:.1f}")


def take_turns(instance: Instance) -> None:
    """Some are committed, some aborted: who reads what."""
    every: list[Row] = []
    committed: list[Row] = []
    for number in range(TRANSACTIONS):
        rows = [(topic, number % PARTITIONS, f"turn-{number}") for topic in TURNS]
        commits = number % 3 != 1
        instance.send(rows)
        instance.do("commit" if commits else "abort")
        every += rows
        committed += rows if commits else []
    instance.close(*TURNS)
    for isolation, wanted in (("committed", committed), ("uncommitted", every)):
        found = instance.read(isolation, *TURNS)
        assert sorted(found) == sorted(wanted), f"{isolation}: {found}, not {wanted}"


def transform(instance: Instance, bootstrap: str) -> None:
    """Each input becomes one output, though the first transaction is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    values = [str(number) for number in range(INPUTS)] + [END] * PARTITIONS
    for number, value in enumerate(values):
        producer.produce(SOURCE, value, partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    instance.do("transform", SOURCE, SINK, NAME, PARTITIONS)
    instance.close(SINK)
    found = Counter(value for _topic, _partition, value in instance.read("committed", SINK))
    every = Counter(value for _topic, _partition, value in instance.read("uncommitted", SINK))
    wanted = Counter(f"{value}'" for value in values)
    assert found == wanted, f"lost {wanted - found}, too much {found - wanted}"
    assert every - wanted, "nothing was written by the transaction that was aborted"
    settings = {"bootstrap.servers": bootstrap, "group.id": NAME, "log_level": 0}
    consumer = Consumer(settings)
    places = [TopicPartition(SOURCE, index) for index in range(PARTITIONS)]
    offsets = [place.offset for place in consumer.committed(places, 20)]
    ends = [consumer.get_watermark_offsets(place, 20)[1] for place in places]
    consumer.close()
    assert offsets == ends, f"committed {offsets} of {ends}"


def fence(scene: Scene, first: Instance) -> Instance:
    """A second producer takes the first one's place; returns it."""
    first.send([(FENCE, 0, "fenced")])
    second = scene.start()
    said = ""
    try:
        first.do("commit")
    except AnsweredError as error:
        said = str(error)
    assert FENCED.search(said), f"not fenced, but: {said}"
    second.send([(FENCE, 0, "kept")])
    second.do("commit")
    second.close(FENCE)
    found = second.read("committed", FENCE)
    assert found == [(FENCE, 0, "kept")], f"{found}"
    return second


class Stream:
    """Transactions one after the other, through errors; `outcomes` tells for each value whether it
    is committed: None if its client does not know."""

    def __init__(self, scene: Scene, instance: Instance) -> None:
        self.outcomes: dict[str, bool | None] = {}
        self.instance = instance
        self.stopping = threading.Event()
        self._scene = scene

    @property
    def committed(self) -> int:
        return sum(outcome is True for outcome in list(self.outcomes.values()))

    def run(self) -> None:
        for number in count():
            if self.stopping.is_set():
                return
            try:
                self._transaction(number, commits=number % 3 != 1)
            except AnsweredError:
                self._begin_anew()

    def _transaction(self, number: int, *, commits: bool) -> None:
        value = f"stream-{number}"
        self.outcomes[value] = False
        self.instance.send([(topic, number % PARTITIONS, value) for topic in STREAM])
        if not commits:
            self.instance.do("abort")
            return
        self.outcomes[value] = None
        self.instance.do("commit")
        self.outcomes[value] = True

    def _begin_anew(self) -> None:
        """Another process with the same id, as after a client's fatal error."""
        deadline = time.monotonic() + STREAM_SECONDS_MAX
        while True:
            self.instance.kill()
            try:
                self.instance = self._scene.start()
            except AnsweredError:
                assert time.monotonic() < deadline, "it cannot begin anew"
                time.sleep(PAUSE_SECONDS)
            else:
                return


def survive(scene: Scene, instance: Instance) -> None:
    """The broker is killed in a stream of transactions."""
    stream = Stream(scene, instance)
    with ThreadPoolExecutor(1) as pool:
        streaming = pool.submit(stream.run)

        def await_more() -> None:
            enough = stream.committed + STREAMED
            scenes.wait(
                lambda: stream.committed >= enough or streaming.done(),
                STREAM_SECONDS_MAX,
                lambda: "the stream of transactions does not go on",
            )

        try:
            for _ in range(KILLS):
                await_more()
                time.sleep(random.uniform(*LIFE_SECONDS))
                scene.server.kill()
                scene.server.start()
            await_more()
        finally:
            stream.stopping.set()
        streaming.result()
    stream.instance.close(*STREAM)
    seen = Counter(stream.instance.read("committed", *STREAM))
    for number, (value, outcome) in enumerate(stream.outcomes.items()):
        found = [seen[topic, number % PARTITIONS, value] for topic in STREAM]
        known = [[1, 1]] if outcome else [[0, 0], [1, 1]] if outcome is None else [[0, 0]]
        assert found in known, f"{value} is there {found} times, committed: {outcome}"
    assert sum(seen.values()) <= len(STREAM) * len(stream.outcomes)


def play(scene: Scene) -> None:
    """The scene, from the first transaction to the last."""
    topics.create(scene.server.bootstrap, TOPICS)
    first = scene.start()
    bootstrap = scene.server.bootstrap
    scene.part("turns", lambda: take_turns(first))
    scene.part("transform", lambda: transform(first, bootstrap))
    latest: list[Instance] = []
    scene.part("fence", lambda: latest.append(fence(scene, first)))
    if scene.kind.client is clients.JAVA:
        scene.part("commands", lambda: transaction_commands.run(bootstrap))
    scene.part("kill -9", lambda: survive(scene, latest[0]))


@contextmanager
def opened(kind: Kind, folder: Path, make: Callable[..., Server]) -> Iterator[Scene]:
    server = make(folder / kind.name, **SETTINGS)
    scene = Scene(kind, server)
    try:
        server.start()
        yield scene
    finally:
        for instance in scene.instances:
            instance.kill()
        server.close()


def run(names: list[str], make: Callable[..., Server] = Ottla) -> scenes.Ran:
    """The scene with every client that is named, or with all."""

    def act(kind: Kind, folder: Path) -> list[str]:
        with opened(kind, folder, make) as scene:
            play(scene)
            return scene.steps

    # Apache Kafka takes most of a machine to start.
    at_once = AT_ONCE if make is Ottla else 1
    return scenes.run(KINDS, names, act, at_once=at_once, what="transaction")


@click.command()
@click.option("--only", default="", help="Client names, with commas.")
@click.option("--kafka", is_flag=True, help="Against Apache Kafka.")
def main(only: str, kafka: bool) -> None:
    """Plays the scene with every client that this machine has."""
    names = [name for name in only.split(",") if name]
    scenes.report("transaction", lambda: run(names, ApacheKafka if kafka else Ottla))


if __name__ == "__main__":
    main()
