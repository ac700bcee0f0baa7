"""Feature levels: which this code supports, and which a new cluster begins with.

A feature is here when the APIs that it stands for are served. The others of Kafka 4.3
(streams, eligible leader replicas) come with their rooms. A cluster
that was made before one of them came gets its level by UpdateFeatures (kafka-features upgrade). A
cluster made by Kafka may have finalized more: it keeps its levels.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.metadata.image import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    ELIGIBLE_LEADER_REPLICAS,
    MetadataImage,
)
from ottla.broker.metadata.records import (
    KRAFT_VERSION,
    LATEST_METADATA_VERSION,
    LOWEST_METADATA_VERSION,
    METADATA_VERSION,
    TRANSACTION_VERSION,
    TRANSACTIONS_SINCE,
)
from ottla.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from ottla.protocol.schema import Message

GROUP_VERSION = "group.version"
"""1 is KIP-848: groups whose coordinator assigns the partitions."""
SHARE_VERSION = "share.version"
"""1 is KIP-932: groups that share partitions."""

SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {
    METADATA_VERSION: (LOWEST_METADATA_VERSION, LATEST_METADATA_VERSION),
    KRAFT_VERSION: (0, 1),
    GROUP_VERSION: (0, 1),
    SHARE_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
}

BOOTSTRAP_LEVELS = {
    METADATA_VERSION: LATEST_METADATA_VERSION,
    GROUP_VERSION: 1,
    SHARE_VERSION: 1,
    TRANSACTION_VERSION: 2,
}


def bootstrap_records() -> list[Message]:
    """What a new cluster begins with, as it stands in bootstrap.checkpoint."""
    return [FeatureLevelRecord(name, level) for name, level in BOOTSTRAP_LEVELS.items()]


def first_records(records: Iterable[Message], *, min_insync_replicas: int) -> list[Message]:
    """What a metadata log begins with, as Kafka's controller writes it: one transaction, at a level
    that has any."""
    contents = list(records)
    levels = {
        record.name: record.feature_level
        for record in contents
        if isinstance(record, FeatureLevelRecord)
    }
    if levels.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0:
        # Eligible leaders follow from it, so it must be one value that all nodes know.
        contents.append(
            ConfigRecord(
                BROKER_RESOURCE, ALL_BROKERS, "min.insync.replicas", str(min_insync_replicas)
            )
        )
    if levels.get(METADATA_VERSION, LATEST_METADATA_VERSION) < TRANSACTIONS_SINCE:
        return contents
    return [BeginTransactionRecord("Bootstrap records"), *contents, EndTransactionRecord()]


def abort_record() -> Message:
    """Ends the transaction that a former leader left open."""
    return AbortTransactionRecord("The controller that began it is gone.")


def levels_above_ours(image: MetadataImage) -> dict[str, int]:
    """Finalized levels that this code does not serve."""
    return {
        name: level
        for name, level in image.features.items()
        if name not in SUPPORTED_FEATURES or level > SUPPORTED_FEATURES[name][1]
    }
