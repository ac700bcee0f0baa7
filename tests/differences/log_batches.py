"""Batches for logs by chance: of any producer, in any order of sequences, some of them spoilt."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field, replace
from typing import Any

from tests.differences.batches import INT32_MAX, INT32_MIN, Batch, Joined, Record
from tests.differences.chance import Chance
from tests.differences.meanings import CHOSEN_IDS
from tests.differences.requests import Moment

ZSTD, ZSTD_SINCE = 4, 7
INT16_MAX, INT64_MAX = 2**15 - 1, 2**63 - 1
SEQUENCES = 2**31
RECENT = (0, 0, -1_000, -60_000, -5, -100, -86_400_000, 1_000)
TOO_LATE = (3_500_000, 3_700_000, 10**10, 7_200_000)
LONG_AGO = (0, 1000, 2000, 3000, 1_600_000_000_000, 1_600_000_000_500, 1_600_700_000_000)
AROUND_LIMITS = (-7_200_000, -3_000_000, -100_000_000, 500_000, 700_000, 3_500_000, 0)
DAY_MS = 86_400_000


@dataclass(slots=True)
class Kind:
    """A topic as its settings make it. `checked`: its records are looked into when they come;
    `rolls`: a segment of it ends within a sequence."""

    config: dict[str, str] = field(default_factory=dict)
    compacted: bool = False
    checked: bool = False
    tiny: bool = False
    limited_times: bool = False
    sizes_vary: bool = False
    rolls: bool = False


KINDS: dict[str, Kind] = {
    "plain": Kind(),
    "plain too": Kind(),
    "log append time": Kind({"message.timestamp.type": "LogAppendTime"}),
    "compact": Kind({"cleanup.policy": "compact"}, compacted=True, checked=True),
    "compact,delete": Kind({"cleanup.policy": "compact,delete"}, compacted=True, checked=True),
    "gzip": Kind({"compression.type": "gzip"}, checked=True, sizes_vary=True),
    "lz4": Kind({"compression.type": "lz4"}, checked=True, sizes_vary=True),
    "zstd": Kind({"compression.type": "zstd"}, checked=True, sizes_vary=True),
    "snappy": Kind({"compression.type": "snappy"}, checked=True, sizes_vary=True),
    "uncompressed": Kind({"compression.type": "uncompressed"}, checked=True),
    "log append time, gzip": Kind(
        {"message.timestamp.type": "LogAppendTime", "compression.type": "gzip"},
        checked=True,
        sizes_vary=True,
    ),
    "log append time, uncompressed": Kind(
        {"message.timestamp.type": "LogAppendTime", "compression.type": "uncompressed"},
        checked=True,
    ),
    "log append time, compact": Kind(
        {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact"},
        compacted=True,
        checked=True,
    ),
    "not too old": Kind({"message.timestamp.before.max.ms": "3600000"}, limited_times=True),
    "not too late": Kind(
        {
            "message.timestamp.after.max.ms": "600000",
            "message.timestamp.before.max.ms": str(DAY_MS),
        },
        limited_times=True,
    ),
    "small batches": Kind({"max.message.bytes": "200"}),
    "small batches, gzip": Kind(
        {"max.message.bytes": "300", "compression.type": "gzip"}, checked=True, sizes_vary=True
    ),
    "no batches": Kind({"max.message.bytes": "0"}),
    "small segments": Kind({"internal.segment.bytes": "600"}, tiny=True, rolls=True),
    "tiny segments": Kind({"internal.segment.bytes": "150"}, tiny=True, rolls=True),
    "dense index": Kind(
        {"internal.segment.bytes": "1500", "index.interval.bytes": "0"}, tiny=True, rolls=True
    ),
    "indexed": Kind({"index.interval.bytes": "100"}),
    "rolled by time": Kind({"segment.ms": "3600000"}, rolls=True),
    "small indexes": Kind({"segment.index.bytes": "24", "index.interval.bytes": "0"}, rolls=True),
}


class Batches:
    """The batches of one sequence. It remembers what each producer has sent where."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        # Ids that no broker gives out: the first sequence of one that is not known may be any.
        first = 5 * CHOSEN_IDS + chance.up_to(1000) * 10
        self.producer_ids = [first, first + 1, first + 2]
        self.times: list[tuple[Any, int]] = []
        self._next: dict[tuple[str, int, int], tuple[int, int]] = {}
        self._sent: dict[tuple[str, int, int], list[Batch]] = {}

    def draw(
        self, topic: str, partition: int, kind: Kind, version: int, *, odd: bool, alone: bool
    ) -> Any:
        """What is to be sent to a partition: a batch, mostly, which may be `odd`, and more so if it
        is `alone` in its request."""
        chance = self.chance
        timestamp = self._timestamp(kind)
        batch = Batch(self._records(kind, timestamp), timestamp)
        self._remember_time(batch)
        codec = chance.weighed({0: 6, 1: 1, 2: 1, 3: 1, ZSTD: 1})
        if not odd and version < ZSTD_SINCE and codec == ZSTD:
            codec = 1
        batch = replace(batch, codec=codec)
        if not kind.tiny and chance.happens(0.45):
            batch, is_new = self._of_a_producer(topic, partition, batch)
            if not is_new:
                return batch
        elif not kind.tiny and chance.happens(0.01):
            batch = replace(
                batch,
                producer_id=-1 if kind.checked else chance.one(-2, 0, -1),
                epoch=chance.one(0, 3),
                sequence=chance.one(-1, 0, 5),
            )
        if version < ZSTD_SINCE and codec == ZSTD:
            return batch
        if odd and not kind.tiny and chance.happens(0.16):
            return self._spoilt(batch, kind, alone=alone)
        if odd and alone and chance.happens(0.05):
            return self._no_batch(batch)
        return batch

    def transactional(self, transactional_id: str, topic: str, partition: int) -> Batch:
        return Batch(
            (Record("k", "of a transaction"),),
            Moment(0),
            attributes=0x10,
            transactional_id=transactional_id,
            to=(topic, partition),
        )

    def _timestamp(self, kind: Kind) -> Any:
        chance = self.chance
        if kind.tiny:
            return Moment(chance.one(-1000, 0, -5, -60_000, 1_000))
        if kind.limited_times and chance.happens(0.5):
            return Moment(chance.of(AROUND_LIMITS))
        drawn = chance.rng.random()
        if drawn < 0.5:
            return Moment(chance.of(RECENT))
        if drawn < 0.55:
            return Moment(chance.of(TOO_LATE))
        if drawn < 0.553:
            return -1
        if drawn < 0.6:
            return chance.one(2**62, INT64_MAX - 10**6)
        return chance.of(LONG_AGO)

    def _records(self, kind: Kind, timestamp: Any) -> tuple[Record, ...]:
        chance = self.chance
        big = chance.happens(0.06)
        keys: tuple[str | None, ...] = (None, "k", "key1", "k2")
        if kind.compacted and chance.happens(0.9):
            keys = ("k", "k1", "k2")

        def record(number: int) -> Record:
            value = chance.one(None, "", "v", "value", "x" * chance.one(10, 50, 120))
            if big:
                value = "y" * chance.one(200, 1_000, 20_000)
            later = chance.one(0, 0, 1, 2, 7, 100, 1_000, -3, -1) if number else chance.one(0, 3)
            if isinstance(timestamp, int) and timestamp < 100:
                later = 0 if timestamp < 0 else abs(later)
            headers = chance.one((), (), (("h", "x"),), (("h", None), ("", "y")))
            return Record(chance.of(keys), value, later, headers)

        return tuple(record(number) for number in range(chance.one(1, 1, 1, 2, 2, 3, 5, 8)))

    def _remember_time(self, batch: Batch) -> None:
        if isinstance(batch.timestamp, Moment) or batch.timestamp >= 0:
            latest = max(record.later_ms for record in batch.records)
            self.times.append((batch.timestamp, latest))

    def _of_a_producer(self, topic: str, partition: int, batch: Batch) -> tuple[Batch, bool]:
        """The batch with a producer's epoch and sequence; or one that it has sent before."""
        chance = self.chance
        key = (topic, partition, chance.of(self.producer_ids))
        epoch, following = self._next.get(key, (0, 0))
        sent = self._sent.setdefault(key, [])
        drawn = chance.rng.random()
        sequence, counts = following, True
        if 0.6 <= drawn < 0.75 and sent:
            again = chance.of(sent[-8:])
            if chance.happens(0.15):
                again = replace(
                    again, epoch=max(0, min(INT16_MAX, again.epoch + chance.one(1, -1)))
                )
            if chance.happens(0.1):
                again = replace(again, records=(*again.records, again.records[-1]))
            return again, False
        if 0.75 <= drawn < 0.8:
            sequence, counts = max(-1, following + chance.one(1, 2, -1, -2, 10)), False
            if sequence >= SEQUENCES:
                sequence -= SEQUENCES
        elif 0.8 <= drawn < 0.86:
            epoch, sequence = min(INT16_MAX, epoch + 1), chance.one(0, 0, 0, following, 1)
        elif 0.86 <= drawn < 0.89:
            epoch, counts = (epoch - 1 if epoch else 1), False
        elif 0.89 <= drawn < 0.92:
            sequence = chance.one(SEQUENCES - 1, SEQUENCES - 2, SEQUENCES - 3)
        elif 0.92 <= drawn < 0.94:
            sequence, counts = chance.one((-1, False), (0, True))
        elif 0.94 <= drawn < 0.95:
            epoch = INT16_MAX
        batch = replace(batch, producer_id=key[2], epoch=epoch, sequence=sequence)
        if counts:
            self._next[key] = (epoch, (sequence + len(batch.records)) % SEQUENCES)
            sent.append(batch)
        return batch, True

    def _spoilt(self, batch: Batch, kind: Kind, *, alone: bool) -> Any:
        """A header that is wrong in one field. A greatest timestamp that lies is believed here, and
        mended by Kafka: it is left out, as what Kafka refuses a whole request for is among others.
        """
        chance = self.chance
        count = len(batch.records)
        fields: dict[str, tuple[int, ...]] = {
            "flip": (1,),
            "magic": (0, 1, 3, 127, -1, -128),
            "last_offset_delta": (count, count - 2, -1, -5, INT32_MAX, INT32_MIN),
            "count": (count + 1, count - 1, 0, -1, INT32_MAX),
            "longer": (1, 10, 100),
            "length": (0, -1, 13, INT32_MIN),
            "base_offset": (1, 77, -1, 2**62),
            "leader_epoch": (0, 99, -5),
            "cut": (-1, -5, 8, 12, 16, 17, 20, 60, 61),
            "attributes": (0x20, 0x40, 0x80, 0x100, -(2**15), 0x400),
        }
        if kind.compacted:
            fields["both counts"] = (count + 1, max(1, count - 1))
        if not alone:
            del fields["magic"], fields["length"]
        name = chance.of(list(fields))
        value = chance.of(fields[name])
        if name == "attributes":
            return replace(batch, attributes=value)
        if name == "both counts":
            return replace(batch, odd=(("count", value), ("last_offset_delta", value - 1)))
        return replace(batch, odd=((name, value),))

    def _no_batch(self, batch: Batch) -> Any:
        zeros = bytes(self.chance.one(0, 5, 11, 12, 16, 17, 30, 60, 61, 62, 100))
        return self.chance.one(
            Joined((zeros,)),
            Joined((batch, batch)),
            Joined((batch, _legacy())),
            Joined((_legacy(),)),
        )


def _legacy() -> bytes:
    """A message of format 0."""
    body = struct.pack(">bbii", 0, 0, -1, 3) + b"old"
    checksum = struct.pack(">I", zlib.crc32(body))
    return struct.pack(">qi", 0, len(checksum + body)) + checksum + body
