"""Where replicas go: Apache Kafka's striped placement.

Racks (none is a rack too) take turns as leaders, from a start drawn by chance. Inside a rack its
unfenced brokers take turns, and fenced ones come after them. A partition's leader is the next
unfenced broker; its further replicas go round the racks, each broker at most once. Start rack and
places inside racks move on by one per partition; after as many partitions as there are unfenced
brokers all is shuffled anew, so that the same pairs of brokers do not share everything.
"""

from __future__ import annotations

from ottla.broker.metadata.image import DIRECTORY_UNASSIGNED, BrokerImage, MetadataImage
from ottla.broker.ports import Rng
from ottla.protocol.errors import ErrorCode, KafkaError


def place(
    image: MetadataImage, *, partition_count: int, replication_factor: int, rng: Rng
) -> list[list[int]]:
    """The replicas of each of some new partitions, leader first.

    Raises INVALID_REPLICATION_FACTOR, in Kafka's words, if the brokers cannot carry that.
    """
    brokers = [broker for broker in image.cluster.brokers.values() if _may_take(broker)]
    if replication_factor < 1:
        raise _refused(
            f"Invalid replication factor {replication_factor}:"
            " the replication factor must be positive."
        )
    if not any(not broker.fenced for broker in brokers):
        raise _refused(
            "All brokers are currently fenced, or have all their log directories cordoned."
        )
    if replication_factor > len(brokers):
        raise _refused(
            f"The target replication factor of {replication_factor} cannot be reached because only"
            f" {len(brokers)} broker(s) are registered or some brokers have all their log"
            " directories cordoned."
        )
    if len(brokers) == 1:
        return [[brokers[0].broker_id] for _ in range(partition_count)]
    stripes = _Stripes(brokers, rng)
    return [stripes.next_replicas(replication_factor) for _ in range(partition_count)]


def directories_of(image: MetadataImage, replicas: list[int]) -> list[bytes]:
    """The log directory of each replica: the broker's only one, or left to the broker."""
    return [_only_directory(image.cluster.brokers.get(replica)) for replica in replicas]


def _only_directory(broker: BrokerImage | None) -> bytes:
    if broker is None or len(broker.directories) != 1:
        return DIRECTORY_UNASSIGNED
    return broker.directories[0]


def _may_take(broker: BrokerImage) -> bool:
    if broker.in_controlled_shutdown:
        return False
    cordoned = broker.cordoned_directories or []
    return not cordoned or any(one not in cordoned for one in broker.directories)


def _refused(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)


class _Rack:
    __slots__ = ("fenced", "start", "unfenced")

    def __init__(self) -> None:
        self.unfenced: list[int] = []
        self.fenced: list[int] = []
        self.start = 0


class _Stripes:
    def __init__(self, brokers: list[BrokerImage], rng: Rng) -> None:
        by_name: dict[str, _Rack] = {}
        for broker in sorted(brokers, key=lambda broker: broker.broker_id):
            rack = by_name.setdefault(broker.rack or "", _Rack())
            (rack.fenced if broker.fenced else rack.unfenced).append(broker.broker_id)
        self._racks = [by_name[name] for name in sorted(by_name)]
        self._unfenced_count = sum(len(rack.unfenced) for rack in self._racks)
        self._rng = rng
        self._start_rack = 0
        self._placed = 0
        self._shuffle()

    def next_replicas(self, count: int) -> list[int]:
        if self._placed == self._unfenced_count:
            self._shuffle()
        self._placed += 1
        replicas: list[int] = []
        taken_in = [0] * len(self._racks)
        leader_rack = self._next_leader_rack()
        rack_index = leader_rack
        while len(replicas) < count:
            rack = self._racks[rack_index]
            choice = _nth(rack, taken_in[rack_index])
            if choice is not None and (replicas or choice in rack.unfenced):
                assert choice not in replicas
                replicas.append(choice)
                taken_in[rack_index] += 1
            rack_index = (rack_index + 1) % len(self._racks)
        for rack in self._racks:
            rack.start += 1
        self._start_rack = (leader_rack + 1) % len(self._racks)
        return replicas

    def _next_leader_rack(self) -> int:
        for step in range(len(self._racks)):
            index = (self._start_rack + step) % len(self._racks)
            if self._racks[index].unfenced:
                return index
        raise AssertionError("some broker is unfenced")

    def _shuffle(self) -> None:
        self._placed = 0
        self._start_rack = self._rng.randrange(len(self._racks))
        for rack in self._racks:
            _shuffle(rack.unfenced, self._rng)
            _shuffle(rack.fenced, self._rng)
            rack.start = self._rng.randrange(max(1, len(rack.unfenced)))


def _nth(rack: _Rack, index: int) -> int | None:
    """The broker that a rack gives as its n-th replica of the current partition."""
    if index < len(rack.unfenced):
        return rack.unfenced[(rack.start + index) % len(rack.unfenced)]
    index -= len(rack.unfenced)
    if index < len(rack.fenced):
        return rack.fenced[(rack.start + index) % len(rack.fenced)]
    return None


def _shuffle(values: list[int], rng: Rng) -> None:
    for last in range(len(values) - 1, 0, -1):
        other = rng.randrange(last + 1)
        values[last], values[other] = values[other], values[last]
