"""A directory with everything a partition may hold: written by librdkafka into any broker.

Five codecs, idempotent producers, headers and nulls; transactions committed, aborted and left open;
and a compacted topic of several rounds.
What a broker gives back is compared as `Contents`, by `read_contents`.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.peers import topics

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 2
VALUE_BYTES = 200
ROUNDS = 4
FLUSH_SECONDS_MAX = 60
READ_SECONDS_MAX = 60
TRANSACTION_MS_MAX = 900_000

Row = tuple[int, bytes | None, bytes | None, int, tuple[object, ...]]
"""Offset, key, value, timestamp, headers."""
Contents = dict[tuple[str, int], list[Row]]


@dataclass
class Filled:
    """The topics that were written, and a producer whose transaction is still open."""

    partitions: dict[str, int] = field(default_factory=dict)
    open_producer: Producer | None = None


def _producer(bootstrap: str, **settings: object) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0, **settings})


def _write(producer: Producer, topic: str, count: int, *, seed: int, keys: int = 0) -> None:
    dice = random.Random(seed)
    for index in range(count):
        word = dice.randbytes(VALUE_BYTES // 4).hex().encode()
        producer.produce(
            topic,
            key=None if index % 7 == 3 and not keys else b"key-%d" % (index % (keys or count)),
            value=None if index % 11 == 5 else word + word,
            partition=index % PARTITIONS,
            headers=[("seed", b"%d" % seed), ("none", None)] if index % 5 == 0 else None,
        )
        producer.poll(0)
    left = producer.flush(FLUSH_SECONDS_MAX)
    assert left == 0, f"{left} records of {topic} were not acknowledged"


def fill(bootstrap: str, records: int, *, cleaned: bool) -> Filled:
    """Writes about `records` records to each topic; `cleaned` lets the compacted one be cleaned."""
    filled = Filled()
    plain = [f"codec-{codec}" for codec in CODECS] + ["idempotent"]
    small = {"segment.bytes": "1048576"}
    topics.create(bootstrap, dict.fromkeys(plain, PARTITIONS), small)
    filled.partitions = dict.fromkeys(plain, PARTITIONS)
    for seed, codec in enumerate(CODECS):
        _write(
            _producer(bootstrap, **{"compression.type": codec}),
            f"codec-{codec}",
            records,
            seed=seed,
        )
    for seed in (10, 11):
        _write(
            _producer(bootstrap, **{"enable.idempotence": True}), "idempotent", records, seed=seed
        )
    _fill_compacted(bootstrap, records, filled, cleaned=cleaned)
    _fill_transactions(bootstrap, records, filled)
    return filled


def _fill_compacted(bootstrap: str, records: int, filled: Filled, *, cleaned: bool) -> None:
    """Each key many times, in several segments, so that a cleaner finds work."""
    topics.create(
        bootstrap,
        {"compacted": PARTITIONS},
        {
            "cleanup.policy": "compact",
            "segment.bytes": "1048576",
            "segment.ms": "600000",
            "min.cleanable.dirty.ratio": "0.01",
            # Whoever has no cleaner leaves all to be compared, also by a broker that has one.
            "min.compaction.lag.ms": "0" if cleaned else "86400000",
        },
    )
    filled.partitions["compacted"] = PARTITIONS
    for turn in range(ROUNDS):
        _write(
            _producer(bootstrap, **{"enable.idempotence": turn % 2 == 1}),
            "compacted",
            max(records, 12_000),
            seed=20 + turn,
            keys=100,
        )


def _fill_transactions(bootstrap: str, records: int, filled: Filled) -> None:
    topics.create(bootstrap, {"transactions": PARTITIONS})
    filled.partitions["transactions"] = PARTITIONS
    each = max(10, records // 10)
    for turn in range(ROUNDS):
        producer = _producer(
            bootstrap, **{"transactional.id": f"writer-{turn}", "compression.type": CODECS[turn]}
        )
        producer.init_transactions(30)
        for inner in range(3):
            producer.begin_transaction()
            _write(producer, "transactions", each, seed=100 * turn + inner)
            if (turn + inner) % 3 == 1:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
    left_open = _producer(
        bootstrap,
        **{"transactional.id": "left-open", "transaction.timeout.ms": TRANSACTION_MS_MAX},
    )
    left_open.init_transactions(30)
    left_open.begin_transaction()
    _write(left_open, "transactions", each, seed=999)
    # Behind it: committed, and still not stable.
    behind = _producer(bootstrap, **{"transactional.id": "behind"})
    behind.init_transactions(30)
    behind.begin_transaction()
    _write(behind, "transactions", each, seed=998)
    behind.commit_transaction(30)
    filled.open_producer = left_open


def read_contents(bootstrap: str, partitions: dict[str, int], *, committed: bool) -> Contents:
    """Every record that a reader of committed, or of all, data is given, up to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "log_level": 0,
        }
    )
    keys = [(topic, index) for topic, count in partitions.items() for index in range(count)]
    contents: Contents = {key: [] for key in keys}
    waiting = dict.fromkeys(keys)
    consumer.assign([TopicPartition(topic, index, 0) for topic, index in keys])
    deadline = time.monotonic() + READ_SECONDS_MAX
    try:
        while waiting:
            assert time.monotonic() < deadline, f"no end of {list(waiting)}"
            for message in consumer.consume(1000, 0.2):
                topic, index = message.topic(), message.partition()
                assert topic is not None
                assert index is not None
                error = message.error()
                if error is not None:
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    waiting.pop((topic, index), None)
                    continue
                headers: tuple[object, ...] = tuple(message.headers() or ())
                offset = message.offset()
                assert offset is not None
                contents[topic, index].append(
                    (offset, message.key(), message.value(), message.timestamp()[1], headers)
                )
    finally:
        consumer.close()
    return contents
