"""Records become an image; an image becomes records again; what changed is told."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.metadata.contents import records_of
from ottla.broker.metadata.delta import Delta, merge_change
from ottla.broker.metadata.image import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    EMPTY_IMAGE,
    MetadataImage,
    PartitionImage,
)
from ottla.broker.metadata.publish import local_changes
from ottla.broker.metadata.records import MetadataError, decode_record, encode_record
from ottla.broker.metadata.replay import Replay
from ottla.protocol.messages import metadata_records as types
from ottla.protocol.schema import Message

TOPIC = bytes(15) + b"\xaa"
OTHER = bytes(15) + b"\xbb"
DIRECTORY = bytes(15) + b"\xd1"

BROKER = types.RegisterBrokerRecord(broker_id=1, broker_epoch=5, log_dirs=[DIRECTORY])
CREATED: list[Message] = [
    BROKER,
    types.TopicRecord("orders", TOPIC),
    types.ConfigRecord(2, "orders", "retention.ms", "1000"),
    types.PartitionRecord(0, TOPIC, [1], [1], leader=1, leader_epoch=0, partition_epoch=0),
    types.PartitionRecord(1, TOPIC, [1, 2], [1, 2], leader=2, leader_epoch=3, partition_epoch=4),
]


def fold(records: list[Message], base: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    return applied(records, base)[1]


def applied(
    records: list[Message], base: MetadataImage = EMPTY_IMAGE
) -> tuple[Delta, MetadataImage]:
    replay = Replay(base)
    last_offset = base.offset + len(records)
    replay.add(records, last_offset=last_offset, epoch=1, timestamp=7)
    return replay.finish()


def test_an_image_is_read_by_plain_lookups() -> None:
    image = fold(CREATED)

    assert image.topics.by_name["orders"] is image.topics.by_id[TOPIC]
    assert image.topics.by_name["orders"].partitions[1].leader == 2
    assert image.configs.get(2, "orders") == {"retention.ms": "1000"}
    assert image.configs.get(2, "nothing") == {}
    assert image.cluster.brokers[1].fenced
    assert (image.offset, image.epoch, image.timestamp) == (4, 1, 7)


def test_an_older_image_stays_as_it_was() -> None:
    before = fold(CREATED)
    kept = dict(before.topics.by_name["orders"].partitions)

    after = fold(
        [
            types.PartitionChangeRecord(0, TOPIC, leader=-1),
            types.ConfigRecord(2, "orders", "retention.ms", "5"),
            types.TopicRecord("more", OTHER),
        ],
        before,
    )

    assert before.topics.by_name["orders"].partitions == kept
    assert before.configs.get(2, "orders") == {"retention.ms": "1000"}
    assert list(before.topics.by_name) == ["orders"]
    assert after.topics.by_name["orders"].partitions[0].leader == -1
    # what did not change is shared
    assert after.cluster is before.cluster
    assert after.topics.by_id[TOPIC].partitions[1] is before.topics.by_id[TOPIC].partitions[1]


def test_a_topic_takes_its_settings_with_it() -> None:
    delta, image = applied(
        [types.RemoveTopicRecord(TOPIC), types.TopicRecord("orders", OTHER)], fold(CREATED)
    )

    assert image.configs.by_resource == {}
    assert image.topics.by_name["orders"].topic_id == OTHER
    assert list(delta.deleted_topics) == [TOPIC]
    assert list(delta.changed_configs) == [(2, "orders")]


def test_what_a_broker_has_to_do() -> None:
    base = fold(CREATED)
    delta, image = applied(
        [
            types.RemoveTopicRecord(TOPIC),
            types.TopicRecord("orders", OTHER),
            types.PartitionRecord(0, OTHER, [1], [1], leader=1, leader_epoch=0, partition_epoch=0),
            types.PartitionRecord(1, OTHER, [2, 1], [2], leader=2, leader_epoch=0),
            types.PartitionRecord(2, OTHER, [2], [2], leader=2, leader_epoch=0),
            types.ConfigRecord(2, "orders", "retention.ms", "1"),
            types.ConfigRecord(4, "", "log.retention.ms", "1"),
        ],
        base,
    )

    changes = local_changes(delta, image, 1)

    assert [(one.topic_id, one.partition_id) for one in changes.deleted] == [(TOPIC, 0), (TOPIC, 1)]
    assert [(one.topic_id, one.partition_id) for one in changes.leading] == [(OTHER, 0)]
    assert [(one.topic_id, one.partition_id) for one in changes.following] == [(OTHER, 1)]
    assert changes.topics_with_new_configs == ["orders"]
    assert changes.broker_configs_changed


def test_a_replica_that_moves_away_is_to_go() -> None:
    delta, image = applied(
        [types.PartitionChangeRecord(0, TOPIC, replicas=[2], isr=[2], leader=2)], fold(CREATED)
    )

    changes = local_changes(delta, image, 1)

    assert [(one.topic, one.partition_id) for one in changes.deleted] == [("orders", 0)]
    assert not changes.leading


PARTITION = PartitionImage([1, 2], [1, 2], 1, 4, 9, [DIRECTORY, DIRECTORY], [], [], [], [])


@pytest.mark.parametrize(
    ("change", "epochs"),
    [
        (types.PartitionChangeRecord(isr=[1]), (4, 10)),
        (types.PartitionChangeRecord(leader=1), (5, 10)),
        (types.PartitionChangeRecord(leader=-1), (5, 10)),
        (types.PartitionChangeRecord(directories=[DIRECTORY_LOST, DIRECTORY]), (4, 10)),
    ],
)
def test_epochs_after_a_change(
    change: types.PartitionChangeRecord, epochs: tuple[int, int]
) -> None:
    merged = merge_change(PARTITION, change)

    assert (merged.leader_epoch, merged.partition_epoch) == epochs


def test_directories_are_unknown_where_nobody_said() -> None:
    merged = merge_change(PARTITION, types.PartitionChangeRecord(replicas=[1, 2, 3]))

    assert merged.directories == [DIRECTORY_MIGRATING] * 3


@pytest.mark.parametrize(
    "wrong",
    [
        types.TopicRecord("orders", OTHER),
        types.TopicRecord("other", TOPIC),
        types.RemoveTopicRecord(OTHER),
        types.PartitionRecord(0, OTHER),
        types.PartitionChangeRecord(9, TOPIC),
        types.UnregisterBrokerRecord(1, 4),
        types.UnfenceBrokerRecord(2, 5),
        types.BrokerRegistrationChangeRecord(1, 6, fenced=1),
        types.ClearElrRecord("nothing"),
        types.RemoveAccessControlEntryRecord(OTHER),
        types.EndTransactionRecord(),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_that_contradicts_the_image_stops_the_reader(wrong: Message) -> None:
    with pytest.raises(MetadataError):
        fold([wrong], fold(CREATED))


def test_producer_ids_never_go_back() -> None:
    image = fold([types.ProducerIdsRecord(1, 1, 3000)])

    assert image.next_producer_id == 3000
    with pytest.raises(MetadataError):
        fold([types.ProducerIdsRecord(1, 1, 2000)], image)


def test_a_transaction_counts_when_it_has_ended() -> None:
    replay = Replay(fold(CREATED))
    replay.add(
        [types.BeginTransactionRecord(), types.FeatureLevelRecord("group.version", 1)],
        last_offset=6,
        epoch=1,
        timestamp=8,
    )
    assert replay.in_transaction
    replay.add([types.EndTransactionRecord()], last_offset=7, epoch=1, timestamp=8)
    assert not replay.in_transaction
    replay.add(
        [
            types.BeginTransactionRecord(),
            types.RemoveTopicRecord(TOPIC),
            types.AbortTransactionRecord(),
        ],
        last_offset=10,
        epoch=1,
        timestamp=9,
    )
    delta, image = replay.finish()

    assert image.features == {"group.version": 1}
    assert list(image.topics.by_id) == [TOPIC]
    assert not delta.deleted_topics
    assert image.offset == 10


def test_a_transaction_does_not_nest() -> None:
    with pytest.raises(MetadataError):
        fold([types.BeginTransactionRecord(), types.BeginTransactionRecord()])


def test_kraft_version_comes_by_control_record_only() -> None:
    replay = Replay(EMPTY_IMAGE)
    replay.add([types.FeatureLevelRecord("kraft.version", 7)], last_offset=0, epoch=1, timestamp=1)
    replay.add_control(kraft_version=1, last_offset=1, epoch=1, timestamp=1)

    assert replay.finish()[1].kraft_version == 1


NAMES = st.sampled_from(["a", "b", "c"])
IDS = st.sampled_from([bytes(15) + bytes((n,)) for n in (200, 201, 202)])
BROKERS = st.lists(st.integers(1, 3), min_size=1, max_size=3, unique=True)
RECORDS: st.SearchStrategy[Message] = st.one_of(
    st.builds(types.TopicRecord, NAMES, IDS),
    st.builds(types.RemoveTopicRecord, IDS),
    st.builds(
        types.PartitionRecord,
        st.integers(0, 2),
        IDS,
        BROKERS,
        BROKERS,
        leader=st.integers(-1, 3),
        leader_epoch=st.integers(0, 9),
        partition_epoch=st.integers(0, 9),
        eligible_leader_replicas=st.one_of(st.none(), BROKERS),
    ),
    st.builds(
        types.PartitionChangeRecord,
        st.integers(0, 2),
        IDS,
        isr=st.one_of(st.none(), BROKERS),
        leader=st.integers(-2, 3),
        eligible_leader_replicas=st.one_of(st.none(), st.just([]), BROKERS),
    ),
    st.builds(
        types.ConfigRecord,
        st.sampled_from([2, 4]),
        NAMES,
        st.sampled_from(["x", "y"]),
        st.one_of(st.none(), st.text(max_size=3)),
    ),
    st.builds(
        types.RegisterBrokerRecord,
        broker_id=st.integers(1, 2),
        broker_epoch=st.integers(0, 3),
        rack=st.one_of(st.none(), NAMES),
        fenced=st.booleans(),
        log_dirs=st.lists(IDS, max_size=2, unique=True),
        cordoned_log_dirs=st.one_of(st.none(), st.just([])),
        end_points=st.just([types.RegisterBrokerRecord.BrokerEndpoint("P", "h", 9092, 0)]),
        features=st.just([types.RegisterBrokerRecord.BrokerFeature("f", 0, 1)]),
    ),
    st.builds(
        types.BrokerRegistrationChangeRecord,
        st.integers(1, 2),
        st.integers(0, 3),
        fenced=st.integers(-1, 1),
        in_controlled_shutdown=st.integers(0, 1),
        log_dirs=st.lists(IDS, max_size=2, unique=True),
    ),
    st.builds(types.UnregisterBrokerRecord, st.integers(1, 2), st.integers(0, 3)),
    st.builds(types.RegisterControllerRecord, st.integers(1, 2), IDS),
    st.builds(types.FeatureLevelRecord, NAMES, st.integers(0, 3)),
    st.builds(types.ProducerIdsRecord, st.just(1), st.just(1), st.integers(0, 9)),
    st.builds(
        types.ClientQuotaRecord,
        st.just([types.ClientQuotaRecord.EntityData("user", None)]),
        NAMES,
        st.floats(0, 9),
        st.booleans(),
    ),
    st.builds(types.AccessControlEntryRecord, IDS, resource_name=NAMES),
    st.builds(types.RemoveAccessControlEntryRecord, IDS),
    st.builds(types.UserScramCredentialRecord, NAMES, st.integers(1, 2), iterations=st.just(4096)),
    st.builds(types.RemoveUserScramCredentialRecord, NAMES, st.integers(1, 2)),
    st.builds(types.DelegationTokenRecord, token_id=NAMES),
    st.builds(types.RemoveDelegationTokenRecord, NAMES),
    st.builds(types.ClearElrRecord, st.just("")),
    st.just(types.NoOpRecord()),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(RECORDS, max_size=25))
def test_an_image_is_the_fold_of_its_own_records(records: list[Message]) -> None:
    """Any log gives the image one by one and at once, and the image's records give it again."""
    image = fold([types.NoOpRecord()])
    accepted: list[Message] = [types.NoOpRecord()]
    for record in records:
        record = decode_record(encode_record(record, 30))
        try:
            image = fold([record], image)
        except MetadataError:
            continue
        accepted.append(record)

    assert fold(accepted) == image
    again = Replay(EMPTY_IMAGE)
    again.add(
        [decode_record(encode_record(record, 30)) for record in records_of(image)],
        last_offset=image.offset,
        epoch=image.epoch,
        timestamp=image.timestamp,
    )
    assert again.finish()[1] == image
