"""What confluent-kafka's AdminClient lists, describes, changes and deletes of groups: one with the
classic protocol, one with the consumer protocol (KIP-848), both with live members, and one that is
known by its offsets alone.

It has no call that deletes offsets of a group, and none for share groups.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    TopicPartition,
)

from tests.conformance.admin_answers import AdminClient, answer, only, refused

CLASSIC, CONSUMER, SIMPLE = "admin-classic", "admin-consumer", "admin-simple"
MISSING = "admin-missing"
OPERATIONS = {"READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}
SETTLED_SECONDS_MAX = 30.0


def act(client: AdminClient, bootstrap: str, topic: str) -> None:
    """Does it all on a topic of three partitions, and leaves no group behind."""
    with _settled(bootstrap, topic) as members:
        _simple_made(client, topic)
        _listed(client)
        _classic_described(client, bootstrap, topic, members[:2])
        _consumer_described(client, topic, members[2])
        _missing_described(client)
        _offsets_changed(client, topic, members)
        for name in (CLASSIC, CONSUMER):
            refused(client.delete_consumer_groups([name])[name], KafkaError.NON_EMPTY_GROUP)
    _emptied(client)
    names = (CLASSIC, CONSUMER, SIMPLE)
    deleted = client.delete_consumer_groups([*names, MISSING])
    assert [answer(deleted[name]) for name in names] == [None, None, None]
    refused(deleted[MISSING], KafkaError.GROUP_ID_NOT_FOUND)
    assert _groups(client) == {}


@contextmanager
def _settled(bootstrap: str, topic: str) -> Iterator[list[Consumer]]:
    """Two members of the classic group and one of the consumer group, with all they get."""
    common = {"bootstrap.servers": bootstrap, "enable.auto.commit": False, "log_level": 0}
    classic = {**common, "group.id": CLASSIC}
    new = {**common, "group.id": CONSUMER, "group.protocol": "consumer"}
    members = [
        Consumer({**classic, "client.id": "one"}),
        Consumer({**classic, "client.id": "two"}),
        Consumer({**new, "client.id": "three"}),
    ]
    try:
        for member in members:
            member.subscribe([topic])
        deadline = time.monotonic() + SETTLED_SECONDS_MAX
        while [len(member.assignment()) for member in members] not in ([1, 2, 3], [2, 1, 3]):
            assert time.monotonic() < deadline, [member.assignment() for member in members]
            for member in members:
                member.poll(0.05)
        yield members
    finally:
        for member in members:
            member.close()


def _partitions(places: list[TopicPartition], topic: str) -> list[int]:
    assert all(place.topic == topic for place in places)
    return sorted(place.partition for place in places)


def _offsets(client: AdminClient, group: str, places: list[TopicPartition] | None) -> Any:
    """What the group has committed by partition."""
    asked = ConsumerGroupTopicPartitions(group, places)
    found = answer(only(client.list_consumer_group_offsets([asked])))
    assert found.group_id == group
    assert all(one.error is None for one in found.topic_partitions)
    return {one.partition: one.offset for one in found.topic_partitions}


def _alter(client: AdminClient, group: str, places: list[TopicPartition]) -> Any:
    asked = ConsumerGroupTopicPartitions(group, places)
    return only(client.alter_consumer_group_offsets([asked]))


def _simple_made(client: AdminClient, topic: str) -> None:
    """Offsets make a group; they may go back, and what was not committed has none."""
    for offset in (3, 2):
        places = [TopicPartition(topic, 0, offset), TopicPartition(topic, 1, 0)]
        found = answer(_alter(client, SIMPLE, places))
        assert found.group_id == SIMPLE
        assert [(one.partition, one.error) for one in found.topic_partitions] == [
            (0, None),
            (1, None),
        ]
    assert _offsets(client, SIMPLE, None) == {0: 2, 1: 0}
    asked = [TopicPartition(topic, 0), TopicPartition(topic, 2)]
    assert _offsets(client, SIMPLE, asked) == {0: 2, 2: OFFSET_INVALID}


def _groups(client: AdminClient, **filters: Any) -> dict[str, tuple[str, str, bool]]:
    """State, type and whether it is simple, of each group of this page."""
    found = answer(client.list_consumer_groups(**filters))
    assert found.errors == []
    return {
        one.group_id: (one.state.name, one.type.name, one.is_simple_consumer_group)
        for one in found.valid
        if one.group_id.startswith("admin-")
    }


def _listed(client: AdminClient) -> None:
    everything = {
        CLASSIC: ("STABLE", "CLASSIC", False),
        CONSUMER: ("STABLE", "CONSUMER", False),
        SIMPLE: ("EMPTY", "CLASSIC", True),
    }
    assert _groups(client) == everything
    for filters, names in (
        ({"states": {ConsumerGroupState.STABLE}}, (CLASSIC, CONSUMER)),
        ({"states": {ConsumerGroupState.EMPTY}}, (SIMPLE,)),
        ({"types": {ConsumerGroupType.CONSUMER}}, (CONSUMER,)),
        ({"types": {ConsumerGroupType.CLASSIC}}, (CLASSIC, SIMPLE)),
        (
            {"states": {ConsumerGroupState.EMPTY}, "types": {ConsumerGroupType.CONSUMER}},
            (),
        ),
    ):
        assert _groups(client, **filters) == {name: everything[name] for name in names}
    # The older call, by ListGroups and DescribeGroups of their lowest versions.
    (old,) = (one for one in client.list_groups() if one.id == CLASSIC)
    assert (old.error, old.state, old.protocol_type) == (None, "Stable", "consumer")
    assert old.protocol == "range"
    assert sorted(member.client_id for member in old.members) == ["one", "two"]


def _described(client: AdminClient, group: str) -> Any:
    asked = client.describe_consumer_groups([group], include_authorized_operations=True)
    return answer(asked[group])


def _classic_described(
    client: AdminClient, bootstrap: str, topic: str, members: list[Consumer]
) -> None:
    found = _described(client, CLASSIC)
    assert (found.group_id, found.is_simple_consumer_group) == (CLASSIC, False)
    assert (found.state.name, found.type.name) == ("STABLE", "CLASSIC")
    assert found.partition_assignor == "range"
    assert f"{found.coordinator.host}:{found.coordinator.port}" == bootstrap
    assert {one.name for one in found.authorized_operations} == OPERATIONS
    expected = {
        member.memberid(): (name, _partitions(member.assignment(), topic))
        for name, member in zip(("one", "two"), members, strict=True)
    }
    assert {
        one.member_id: (one.client_id, _partitions(one.assignment.topic_partitions, topic))
        for one in found.members
    } == expected
    assert {one.host for one in found.members} == {"/127.0.0.1"}
    assert {one.group_instance_id for one in found.members} == {None}


def _consumer_described(client: AdminClient, topic: str, member: Consumer) -> None:
    found = _described(client, CONSUMER)
    assert (found.state.name, found.type.name) == ("STABLE", "CONSUMER")
    assert found.partition_assignor == "uniform"
    assert {one.name for one in found.authorized_operations} == OPERATIONS
    (one,) = found.members
    assert one.member_id == member.memberid()
    assert (one.client_id, one.host, one.group_instance_id) == ("three", "/127.0.0.1", None)
    assert _partitions(one.assignment.topic_partitions, topic) == [0, 1, 2]
    assert _partitions(one.target_assignment.topic_partitions, topic) == [0, 1, 2]


def _missing_described(client: AdminClient) -> None:
    """By this client no error, but a dead group."""
    found = answer(client.describe_consumer_groups([MISSING])[MISSING])
    assert (found.state.name, found.members) == ("DEAD", [])


def _offsets_changed(client: AdminClient, topic: str, members: list[Consumer]) -> None:
    """What members commit is seen; nobody else may commit while they are there."""
    whole = {CLASSIC: members[0], CONSUMER: members[2]}
    for group, member in whole.items():
        own = member.assignment()[0].partition
        member.commit(offsets=[TopicPartition(topic, own, 3)], asynchronous=False)
        assert _offsets(client, group, None) == {own: 3}
        asked = _alter(client, group, [TopicPartition(topic, own, 1)])
        (place,) = answer(asked).topic_partitions
        assert place.error.code() == KafkaError.UNKNOWN_MEMBER_ID
        assert _offsets(client, group, None) == {own: 3}


def _emptied(client: AdminClient) -> None:
    """Members that closed are gone at once."""
    assert _groups(client) == {
        CLASSIC: ("EMPTY", "CLASSIC", False),
        CONSUMER: ("EMPTY", "CONSUMER", False),
        SIMPLE: ("EMPTY", "CLASSIC", True),
    }
