"""Images to run commands on."""

from __future__ import annotations

from ottla.broker.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.broker.metadata.replay import Replay
from ottla.config.broker import BrokerConfig, Layers
from ottla.protocol.messages.metadata_records import FeatureLevelRecord, RegisterBrokerRecord
from ottla.protocol.schema import Message


def directory(number: int) -> bytes:
    return bytes(14) + bytes((0xD0, number))


def config(**settings: str) -> BrokerConfig:
    """A broker's configuration; names in snake_case."""
    static = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig.assemble(Layers(static=static))


def applied(records: list[Message], base: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    """The image after some records."""
    replay = Replay(base)
    replay.add(records, last_offset=base.offset + len(records), epoch=1, timestamp=1)
    return replay.finish()[1]


def cluster(
    *broker_ids: int, fenced: tuple[int, ...] = (), racks: dict[int, str] | None = None
) -> MetadataImage:
    """Registered brokers, in service unless fenced."""
    records: list[Message] = [FeatureLevelRecord("metadata.version", 30)]
    for broker_id in broker_ids:
        records.append(
            RegisterBrokerRecord(
                broker_id=broker_id,
                broker_epoch=len(records),
                rack=(racks or {}).get(broker_id),
                fenced=broker_id in fenced,
                log_dirs=[directory(broker_id)],
            )
        )
    return applied(records)
