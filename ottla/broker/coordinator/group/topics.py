"""What groups see of the topics: names, ids, numbers of partitions, and Kafka's hashes of them.

A group keeps the hash of the topics that it is subscribed to in its record (from Kafka 4.1 on); if
that is another now, its assignment is to be made anew. The hash of a topic takes in its id, name,
partitions and the racks of their replicas, and the hash of a group the hashes of its topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import NamedTuple, Protocol

from ottla.broker.coordinator.group.xxh3 import xxh3_64
from ottla.broker.metadata.image import MetadataImage, TopicImage

HASH_VERSION = 0
NO_TOPICS_HASH = 0

_INT = Struct("<i")
_LONG = Struct("<q")


class Topic(NamedTuple):
    """One topic of the metadata."""

    name: str
    topic_id: bytes
    partition_count: int


class Topics(Protocol):
    """The metadata, as far as groups ask for it; it changes between two commands, not in one."""

    @property
    def version(self) -> int:
        """Grows with every change of the metadata."""

    def names(self) -> Iterable[str]:
        """All topics there are."""

    def named(self, name: str) -> Topic | None: ...

    def of_id(self, topic_id: bytes) -> Topic | None: ...

    def group_hash(self, names: Iterable[str]) -> int:
        """The hash of those of the named topics that exist, signed; 0 if none does."""


class ImageTopics:
    """The topics of the newest metadata image."""

    __slots__ = ("_hashes", "_image")

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        # An image shares with the former one what did not change: the same object, the same hash.
        self._hashes: dict[str, tuple[TopicImage, int]] = {}

    def __repr__(self) -> str:
        return f"<ImageTopics version={self.version} hashes={len(self._hashes)}>"

    @property
    def version(self) -> int:
        return self._image().offset

    def names(self) -> Iterable[str]:
        return self._image().topics.by_name.keys()

    def named(self, name: str) -> Topic | None:
        return _topic(self._image().topics.by_name.get(name))

    def of_id(self, topic_id: bytes) -> Topic | None:
        return _topic(self._image().topics.by_id.get(topic_id))

    def group_hash(self, names: Iterable[str]) -> int:
        image = self._image()
        known = image.topics.by_name
        # Java's order of strings is that of UTF-16, as topics are named that of ASCII.
        present = [known[name] for name in sorted(names) if name in known]
        if not present:
            return NO_TOPICS_HASH
        return xxh3_64(b"".join(_LONG.pack(self._hash_of(image, topic)) for topic in present))

    def forget(self, names: Iterable[str]) -> None:
        """These topics are gone, or others now: what was kept of them is of no more use."""
        for name in names:
            self._hashes.pop(name, None)

    def _hash_of(self, image: MetadataImage, topic: TopicImage) -> int:
        kept = self._hashes.get(topic.name)
        if kept is None or kept[0] is not topic:
            kept = self._hashes[topic.name] = (topic, topic_hash(image, topic))
        return kept[1]


def topic_hash(image: MetadataImage, topic: TopicImage) -> int:
    """Kafka's hash of a topic, signed."""
    count = len(topic.partitions)
    # A UUID is two longs, each of which is written with its lowest byte first.
    parts = [bytes([HASH_VERSION]), topic.topic_id[7::-1], topic.topic_id[:7:-1]]
    parts += [_text(topic.name), _INT.pack(count)]
    brokers = image.cluster.brokers
    for index in range(count):
        parts.append(_INT.pack(index))
        known = [brokers[one] for one in topic.partitions[index].replicas if one in brokers]
        for rack in sorted(broker.rack for broker in known if broker.rack is not None):
            parts += [_INT.pack(len(rack)), _text(rack)]
    return xxh3_64(b"".join(parts))


def _text(text: str) -> bytes:
    """As the hash takes it: UTF-16 units, then how many they are."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units + _INT.pack(len(units) // 2)


def _topic(image: TopicImage | None) -> Topic | None:
    return None if image is None else Topic(image.name, image.topic_id, len(image.partitions))
