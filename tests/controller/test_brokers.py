"""Brokers come, serve and go; partitions get the leaders that they can have."""

from __future__ import annotations

import random

import pytest

from ottla.broker.controller.brokers import (
    Registration,
    assign_directories,
    cordon,
    register,
    register_controller,
    shutdown,
    unfence,
)
from ottla.broker.controller.features import (
    SUPPORTED_FEATURES,
    bootstrap_records,
    first_records,
)
from ottla.broker.controller.producer_ids import allocate_block
from ottla.broker.controller.topics import create_topics
from ottla.broker.metadata.image import EMPTY_IMAGE, EndpointImage, MetadataImage
from ottla.broker.metadata.records import record_version
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata_records import (
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from ottla.protocol.messages.topics import CreateTopicsRequest
from tests.controller.clusters import applied, cluster, config, directory

LISTENER = EndpointImage("PLAINTEXT", "localhost", 9092, 0)
TOPIC = bytes(15) + b"\xaa"


def registration(incarnation: int = 1, previous_epoch: int = -1) -> Registration:
    return Registration(
        broker_id=1,
        incarnation_id=bytes(15) + bytes((incarnation,)),
        listeners=[LISTENER],
        directories=[directory(1)],
        previous_epoch=previous_epoch,
    )


def in_service() -> MetadataImage:
    """A broker that registered, entered service and leads a topic of two partitions."""
    records, _ = register(EMPTY_IMAGE, registration())
    image = applied([FeatureLevelRecord("metadata.version", 30)])
    records, registered = register(image, registration())
    image = applied(records, image)
    records, _ = unfence(image, 1, cordoned=[], clean=registered.clean)
    image = applied(records, image)
    request = CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("orders", 2, 1)])
    created, _ = create_topics(image, request, config=config(), rng=random.Random(1))
    return applied(created, image)


def test_the_broker_epoch_is_the_offset_of_its_record() -> None:
    image = cluster(2)

    records, registered = register(image, registration(), position=1)
    after = applied([register_controller(1, bytes(16), [LISTENER]), *records], image)

    assert registered.epoch == image.offset + 2 == after.offset
    broker = after.cluster.brokers[1]
    assert (broker.epoch, broker.fenced) == (registered.epoch, True)
    assert broker.endpoints["PLAINTEXT"].port == 9092
    assert broker.features == SUPPORTED_FEATURES
    assert record_version(records[0], 30) == 4


def test_entering_service_is_written_as_kafka_does() -> None:
    image = applied(register(cluster(2), registration())[0], cluster(2))

    records, _ = unfence(image, 1, cordoned=[], clean=True)
    changes = [one for one in records if isinstance(one, BrokerRegistrationChangeRecord)]

    assert [(one.fenced, one.cordoned_log_dirs) for one in changes] == [(-1, None), (0, [])]
    assert [record_version(one, 30) for one in changes] == [0, 3]
    assert applied(records, image).cluster.brokers[1].active


def test_what_is_cordoned_is_written_once() -> None:
    image = in_service()
    epoch = image.cluster.brokers[1].epoch

    records, _ = cordon(image, 1, [directory(1)])
    after = applied(records, image)

    assert records == [
        BrokerRegistrationChangeRecord(1, epoch, cordoned_log_dirs=[directory(1)]),
    ]
    assert after.cluster.brokers[1].cordoned_directories == [directory(1)]
    assert cordon(after, 1, [directory(1)])[0] == []
    assert applied(cordon(after, 1, [])[0], after).cluster == image.cluster
    assert cordon(EMPTY_IMAGE, 1, [directory(1)])[0] == []


def test_nothing_is_cordoned_where_no_record_can_say_it() -> None:
    image = applied([FeatureLevelRecord("metadata.version", 29)], EMPTY_IMAGE)
    image = applied(register(image, registration())[0], image)

    records, _ = unfence(image, 1, cordoned=[directory(1)], clean=True)

    assert records == [BrokerRegistrationChangeRecord(1, image.offset, fenced=-1)]
    assert cordon(image, 1, [directory(1)])[0] == []


def test_a_clean_restart_elects_nobody() -> None:
    image = in_service()
    epoch = image.cluster.brokers[1].epoch
    fenced, _ = shutdown(image, 1)
    stopped = applied(fenced, image)
    records, registered = register(stopped, registration(2, previous_epoch=epoch))
    started = applied(records, stopped)
    unfenced, _ = unfence(started, 1, cordoned=[], clean=registered.clean)

    assert fenced == [BrokerRegistrationChangeRecord(1, epoch, fenced=1)]
    assert registered.clean
    assert applied(unfenced, started).topics == image.topics


def test_an_unclean_restart_gives_each_partition_a_new_leader_epoch() -> None:
    image = in_service()
    records, registered = register(image, registration(2))
    started = applied(records, image)
    unfenced, _ = unfence(started, 1, cordoned=[], clean=registered.clean)
    after = applied(unfenced, started)

    assert not registered.clean
    partitions = after.topics.by_name["orders"].partitions
    assert [(one.leader, one.leader_epoch, one.isr) for one in partitions.values()] == [
        (1, 1, [1]),
        (1, 1, [1]),
    ]


def test_what_kafka_left_without_leader_gets_one() -> None:
    """Its clean stop leaves an empty ISR and the broker eligible."""
    image = applied(
        [
            FeatureLevelRecord("eligible.leader.replicas.version", 1),
            TopicRecord("orders", TOPIC),
            PartitionRecord(
                0,
                TOPIC,
                [1],
                [],
                leader=-1,
                leader_epoch=4,
                partition_epoch=4,
                directories=[directory(1)],
                eligible_leader_replicas=[1],
                last_known_elr=[1],
            ),
        ],
        cluster(1, fenced=(1,)),
    )

    records, _ = unfence(image, 1, cordoned=[], clean=True)
    partition = applied(records, image).topics.by_name["orders"].partitions[0]

    assert (partition.leader, partition.leader_epoch) == (1, 5)
    assert (partition.isr, partition.elr, partition.last_known_elr) == ([1], [], [])


def test_leaders_move_to_others_when_a_broker_stops() -> None:
    image = applied(
        [
            TopicRecord("orders", TOPIC),
            PartitionRecord(0, TOPIC, [1, 2], [1, 2], leader=1, leader_epoch=0, partition_epoch=0),
            PartitionRecord(1, TOPIC, [1], [1], leader=1, leader_epoch=0, partition_epoch=0),
        ],
        cluster(1, 2),
    )

    records, _ = shutdown(image, 1)
    partitions = applied(records, image).topics.by_name["orders"].partitions

    assert (partitions[0].leader, partitions[0].isr) == (2, [2])
    assert partitions[1] == image.topics.by_name["orders"].partitions[1]
    assert shutdown(applied(records, image), 1) == ([], None)


@pytest.mark.parametrize(
    "directories", [[], [directory(1), directory(1)], [bytes(15) + b"\x05"], [directory(2)]]
)
def test_directories_that_cannot_be_registered(directories: list[bytes]) -> None:
    with pytest.raises(KafkaError) as refused:
        register(cluster(2), Registration(1, TOPIC, [LISTENER], directories))

    assert refused.value.code == ErrorCode.INVALID_REGISTRATION


def test_where_a_replica_lies_is_recorded_once() -> None:
    image = in_service()
    topic_id = image.topics.by_name["orders"].topic_id
    places = {(topic_id, 0): directory(9), (topic_id, 1): directory(1), (TOPIC, 0): directory(1)}

    records, _ = assign_directories(image, 1, places)

    assert records == [PartitionChangeRecord(0, topic_id, directories=[directory(9)])]


def test_blocks_of_producer_ids_never_meet() -> None:
    image = in_service()
    first, block = allocate_block(image, broker_id=1)
    _, next_block = allocate_block(applied(first, image), broker_id=1)

    assert first == [ProducerIdsRecord(1, image.cluster.brokers[1].epoch, 1000)]
    assert (block, next_block) == ((0, 1000), (1000, 1000))


def test_a_new_cluster_begins_with_one_transaction() -> None:
    first = first_records(bootstrap_records(), min_insync_replicas=1)

    assert first == [
        BeginTransactionRecord("Bootstrap records"),
        FeatureLevelRecord("metadata.version", 30),
        FeatureLevelRecord("group.version", 1),
        FeatureLevelRecord("share.version", 1),
        FeatureLevelRecord("transaction.version", 2),
        EndTransactionRecord(),
    ]


def test_a_cluster_formatted_with_elr_knows_its_minimum() -> None:
    bootstrap = [
        FeatureLevelRecord("metadata.version", 30),
        FeatureLevelRecord("eligible.leader.replicas.version", 1),
    ]

    first = first_records(bootstrap, min_insync_replicas=2)

    assert first[-2] == ConfigRecord(4, "", "min.insync.replicas", "2")
