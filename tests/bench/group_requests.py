"""Requests about groups: offsets committed and fetched, members that join, consumers that settle.

The load comes from one thread that drives sixteen sockets, so that it takes little of the CPU that
the broker needs. Frames are written by hand, in versions that have no tags.
"""

from __future__ import annotations

import selectors
import shutil
import socket
import statistics
import struct
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.bench import load
from tests.bench.load import PAGE_CACHE, QUIET, Spent
from tests.bench.workload import Figures, Limit, Work, at_least, at_most
from tests.peers import raw, topics
from tests.peers.servers import Server

OFFSETS_TOPIC = "__consumer_offsets"
OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, SYNC_GROUP = 8, 9, 11, 14
GROUPS = 16
NONE, MEMBER_ID_REQUIRED = 0, 79
READY_SECONDS_MAX = 30
CONSUMERS, PARTITIONS = 10, 900
SETTLED_SECONDS_MAX = 60
TIMES_SETTLED = 5
HEARTBEAT_MS = 200
MEASURED_SECONDS = 4
FIRST_GENERATION_SECONDS = 4.0


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def frame(key: int, version: int, body: bytes) -> bytes:
    return raw.request(key, version, 1, body)


def commit_frame(group: str, topic: str) -> bytes:
    """OffsetCommit 7 without a member, of offset 5 in partition 0."""
    body = text(group) + struct.pack(">i", -1) + text("") + struct.pack(">hi", -1, 1)
    body += text(topic) + struct.pack(">iiqi", 1, 0, 5, -1) + text("")
    return frame(OFFSET_COMMIT, 7, body)


def fetch_frame(group: str, topic: str) -> bytes:
    """OffsetFetch 5 of partition 0."""
    body = text(group) + struct.pack(">i", 1) + text(topic) + struct.pack(">ii", 1, 0)
    return frame(OFFSET_FETCH, 5, body)


def committed_error(answer: bytes) -> int:
    """The error code at the end of an OffsetCommit answer of one partition."""
    return int(struct.unpack_from(">h", answer, len(answer) - 2)[0])


def fetched_error(answer: bytes) -> int:
    """An error code, or that the offset is not the committed one."""
    (partition_error, error) = struct.unpack_from(">hh", answer, len(answer) - 4)
    (offset,) = struct.unpack_from(">q", answer, len(answer) - 4 - 2 - 4 - 8)
    return int(partition_error or error or offset != 5)


def frames_of(connection: socket.socket, held: bytearray) -> Iterator[bytes]:
    """The frames that have come whole."""
    data = connection.recv(1 << 16)
    if not data:
        raise ConnectionResetError("the broker closed the connection")
    held += data
    while len(held) >= 4:
        (size,) = struct.unpack_from(">i", held)
        if len(held) < 4 + size:
            return
        answer = bytes(held[4 : 4 + size])
        del held[: 4 + size]
        yield answer


class Asker:
    """The same request again and again."""

    def __init__(self, request: bytes, error_of: Callable[[bytes], int]) -> None:
        self._frame = request
        self._error_of = error_of

    def first(self) -> bytes:
        return self._frame

    def after(self, answer: bytes) -> bytes:
        error = self._error_of(answer)
        if error:
            raise RuntimeError(f"a request about a group was answered with error {error}")
        return self._frame


class Rejoiner:
    """The only member of its group, which joins again and assigns, again and again."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._member_id = ""
        self._joins = True

    def first(self) -> bytes:
        return self._join()

    def after(self, answer: bytes) -> bytes:
        (error,) = struct.unpack_from(">h", answer, 8)
        if error not in (NONE, MEMBER_ID_REQUIRED):
            raise RuntimeError(f"a member was answered with error {error}")
        if not self._joins:
            return self._join()
        (generation,) = struct.unpack_from(">i", answer, 10)
        position = 14
        for _ in range(3):  # protocol, leader, member id
            (size,) = struct.unpack_from(">h", answer, position)
            word = answer[position + 2 : position + 2 + size].decode()
            position += 2 + size
        self._member_id = word
        return self._join() if error else self._sync(generation)

    def _join(self) -> bytes:
        self._joins = True
        body = text(self._group) + struct.pack(">ii", 30_000, 60_000) + text(self._member_id)
        body += struct.pack(">h", -1) + text("consumer") + struct.pack(">i", 1)
        return frame(JOIN_GROUP, 5, body + text("range") + struct.pack(">i", 0))

    def _sync(self, generation: int) -> bytes:
        self._joins = False
        body = text(self._group) + struct.pack(">i", generation) + text(self._member_id)
        body += struct.pack(">hi", -1, 1) + text(self._member_id) + struct.pack(">i", 4)
        return frame(SYNC_GROUP, 3, body + b"mine")


Speaker = Asker | Rejoiner


def drive(server: Server, speakers: list[Speaker], seconds: float) -> tuple[list[float], Spent]:
    """One connection for each; each sends its next request when the last is answered.

    Returns the sorted seconds of every request, and what was spent.
    """
    selector = selectors.DefaultSelector()
    latencies: list[float] = []
    places: list[tuple[socket.socket, Speaker, bytearray]] = []
    for speaker in speakers:
        connection = socket.create_connection(("127.0.0.1", server.port), 30)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        places.append((connection, speaker, bytearray()))
        selector.register(connection, selectors.EVENT_READ, places[-1])
    began: dict[socket.socket, float] = {}
    with load.measured(server) as spent:
        end = time.perf_counter() + seconds
        for connection, speaker, _ in places:
            began[connection] = time.perf_counter()
            connection.sendall(speaker.first())
        while began:
            for key, _ in selector.select(30):
                connection, speaker, held = key.data
                for answer in frames_of(connection, held):
                    now = time.perf_counter()
                    latencies.append(now - began.pop(connection))
                    following = speaker.after(answer)
                    if now < end:
                        began[connection] = now
                        connection.sendall(following)
    selector.close()
    for connection, _, _ in places:
        connection.close()
    return sorted(latencies), spent[0]


def make_offsets_ready(server: Server, topic: str) -> None:
    """Commits something, which makes the topic of the offsets and waits for its coordinators."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    for number in range(GROUPS):
        group = f"bench-{number}"
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": group, **QUIET})
        while True:
            try:
                consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
                break
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
        consumer.close()


def _figures(server: Server, speakers: list[Speaker], scale: float, name: str) -> Figures:
    latencies, spent = drive(server, speakers, MEASURED_SECONDS * scale)
    return {
        f"{name}/s": len(latencies) / spent.seconds,
        f"{name} p99 ms": load.percentile(latencies, 0.99) * 1e3,
        f"{name} CPU us": spent.cpu / len(latencies) * 1e6,
    }


def _offsets(server: Server, scale: float) -> Figures:
    with load.topic(server) as topic:
        make_offsets_ready(server, topic)
        names = [f"bench-{number}" for number in range(GROUPS)]
        commits: list[Speaker] = [Asker(commit_frame(one, topic), committed_error) for one in names]
        fetches: list[Speaker] = [Asker(fetch_frame(one, topic), fetched_error) for one in names]
        rejoins: list[Speaker] = [Rejoiner(f"rejoin-{uuid.uuid4().hex}") for _ in names]
        topics.alter(server.bootstrap, OFFSETS_TOPIC, {"flush.messages": "1"})
        try:
            figures = _figures(server, commits, scale, "commit")
            drive(server, rejoins, FIRST_GENERATION_SECONDS)
            figures |= _figures(server, rejoins, scale, "join, sync")
        finally:
            topics.alter(server.bootstrap, OFFSETS_TOPIC, {"flush.messages": str(PAGE_CACHE)})
        figures |= _figures(server, fetches, scale, "fetch")
        latencies, spent = drive(server, commits, MEASURED_SECONDS * scale)
        figures["commit/s, default"] = len(latencies) / spent.seconds
    return figures


class Settling:
    """Consumers that subscribe at once, until each has its share."""

    def __init__(self, server: Server, topic: str, protocol: str) -> None:
        group = f"settling-{uuid.uuid4().hex}"
        settings = {
            "bootstrap.servers": server.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "log_level": 0,
        }
        self._is_incremental = protocol == "consumer"
        self._topic = topic
        self._owned = [0] * CONSUMERS
        self._consumers = [Consumer(settings) for _ in range(CONSUMERS)]

    def _subscribe(self, number: int) -> None:
        def assigned(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            former = self._owned[number] if self._is_incremental else 0
            self._owned[number] = former + len(partitions)

        def revoked(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            left = self._owned[number] - len(partitions) if self._is_incremental else 0
            self._owned[number] = left

        consumer = self._consumers[number]
        consumer.subscribe([self._topic], on_assign=assigned, on_revoke=revoked)

    def seconds(self, partitions: int) -> float:
        share = partitions // CONSUMERS
        started = time.perf_counter()
        for number in range(CONSUMERS):
            self._subscribe(number)
        while any(owned != share for owned in self._owned):
            if time.perf_counter() - started > SETTLED_SECONDS_MAX:
                raise RuntimeError(f"the consumers have not settled: {self._owned}")
            for consumer in self._consumers:
                consumer.poll(0)
            time.sleep(0.003)
        return time.perf_counter() - started

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()


def _settle_classic(running: Server, scale: float) -> Figures:
    return _settle(running, scale, "classic", {"group_initial_rebalance_delay_ms": 0})


def _settle_consumer(running: Server, scale: float) -> Figures:
    return _settle(
        running,
        scale,
        "consumer",
        {
            "group_consumer_assignment_interval_ms": 0,
            "group_consumer_min_heartbeat_interval_ms": HEARTBEAT_MS,
            "group_consumer_heartbeat_interval_ms": HEARTBEAT_MS,
        },
    )


def _settle_classic_by_default(running: Server, scale: float) -> Figures:
    return _settle(running, scale, "classic", {})


def _settle_consumer_by_default(running: Server, scale: float) -> Figures:
    return _settle(running, scale, "consumer", {})


def _settle(running: Server, scale: float, protocol: str, settings: dict[str, int]) -> Figures:
    partitions = max(int(PARTITIONS * scale) // CONSUMERS, 1) * CONSUMERS
    folder = Path(tempfile.mkdtemp(prefix="ottla-bench-settling-"))
    server = type(running)(folder, **settings)
    seconds: list[float] = []
    cpu: list[float] = []
    try:
        server.start()
        with load.topic(server, partitions) as topic:
            make_offsets_ready(server, topic)
            for _ in range(TIMES_SETTLED):
                settling = Settling(server, topic, protocol)
                with load.measured(server) as spent:
                    seconds.append(settling.seconds(partitions))
                cpu.append(spent[0].cpu)
                settling.close()
        server.stop()
    finally:
        server.close()
        shutil.rmtree(folder)
    return {
        "settled s": statistics.median(seconds),
        "slowest s": max(seconds),
        "CPU s": statistics.median(cpu),
    }


OFFSETS = Work(
    "offsets",
    "16 groups, __consumer_offsets with flush.messages=1",
    _offsets,
    {
        "commit/s": at_least(1),
        "commit p99 ms": at_most(1, tail=True),
        "commit CPU us": None,
        "fetch/s": at_least(1),
        "fetch p99 ms": at_most(1, tail=True),
        "fetch CPU us": None,
        "join, sync/s": at_least(1),
        "join, sync p99 ms": at_most(1, tail=True),
        "join, sync CPU us": None,
        "commit/s, default": None,
    },
)
SETTLING = Work(
    "settling",
    "10 consumers, 900 partitions, group.initial.rebalance.delay.ms=0, 5 times",
    _settle_classic,
    # No ratio: where Kafka begins the first generation with who is there, and has it wait for the
    # others' heartbeats now and then, we wait 50 ms for the others (NEWCOMERS_MS) every time.
    {"settled s": None, "slowest s": Limit(1), "CPU s": Limit(0.5)},
)
SETTLING_848 = Work(
    "settling-848",
    "10 consumers of KIP-848, 900 partitions, assignment interval 0, heartbeats 200 ms, 5 times",
    _settle_consumer,
    {"settled s": at_most(1), "slowest s": Limit(1), "CPU s": Limit(0.5)},
)
SETTLING_BY_DEFAULT = Work(
    "settling-default",
    "10 consumers, 900 partitions, all by default, 5 times",
    _settle_classic_by_default,
    {"settled s": at_most(1), "slowest s": None, "CPU s": Limit(0.5)},
)
SETTLING_848_BY_DEFAULT = Work(
    "settling-848-default",
    "10 consumers of KIP-848, 900 partitions, all by default, 5 times",
    _settle_consumer_by_default,
    {"settled s": at_most(1), "slowest s": None, "CPU s": Limit(0.5)},
)
