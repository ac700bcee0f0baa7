"""UnregisterBroker: a broker that is gone for good leaves no trace in the partitions."""

from __future__ import annotations

import pytest

from ottla.broker.controller.brokers import unregister
from ottla.broker.metadata.image import NO_LEADER, MetadataImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata_records import PartitionRecord, TopicRecord
from tests.controller.clusters import applied, cluster, directory

TOPIC_ID = bytes(15) + b"\xaa"


def _image() -> MetadataImage:
    return applied(
        [
            TopicRecord("t", TOPIC_ID),
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=TOPIC_ID,
                    replicas=replicas,
                    isr=isr,
                    leader=leader,
                    directories=[directory(one) for one in replicas],
                )
                for index, (replicas, isr, leader) in enumerate(
                    [([1, 2], [1, 2], 2), ([2], [2], NO_LEADER), ([1, 2], [1], 1)]
                )
            ),
        ],
        cluster(1, 2),
    )


def test_its_partitions_go_to_others() -> None:
    image = _image()

    records, _ = unregister(image, 2, node_id=1)
    after = applied(records, image)

    assert list(after.cluster.brokers) == [1]
    partitions = after.topics.by_name["t"].partitions
    assert [(one.leader, one.isr) for one in partitions.values()] == [
        (1, [1]),
        (NO_LEADER, [2]),
        (1, [1]),
    ]
    assert len(records) == 2, "who was not in sync was nothing to the partition"


@pytest.mark.parametrize(
    ("broker_id", "code"),
    [
        (9, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (-1, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_refusals(broker_id: int, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as raised:
        unregister(_image(), broker_id, node_id=1)

    assert raised.value.code is code
