"""Reassignments: three brokers, a partition on some of them, and what it becomes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ottla.broker.controller.reassignments import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from ottla.broker.metadata.image import MetadataImage, PartitionImage
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata_records import ConfigRecord, PartitionRecord, TopicRecord
from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
)
from tests.controller.clusters import applied, cluster, directory

TOPIC_ID = bytes(15) + b"\xaa"
Asked = AlterPartitionReassignmentsRequest.ReassignablePartition
AskedTopic = AlterPartitionReassignmentsRequest.ReassignableTopic


def _image(
    replicas: list[int], isr: list[int] | None = None, fenced: tuple[int, ...] = ()
) -> MetadataImage:
    isr = replicas if isr is None else isr
    partition = PartitionRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        leader_epoch=5,
        partition_epoch=5,
        directories=[directory(one) for one in replicas],
    )
    return applied([TopicRecord("t", TOPIC_ID), partition], cluster(1, 2, 3, 4, fenced=fenced))


def _altered(
    image: MetadataImage, replicas: list[int] | None, *, any_factor: bool = True
) -> tuple[MetadataImage, int, str | None]:
    """The image after it, and what the partition was answered."""
    request = AlterPartitionReassignmentsRequest(
        60_000, any_factor, [AskedTopic("t", [Asked(0, replicas)])]
    )
    records, response = alter_partition_reassignments(image, request)
    (answer,) = response.responses[0].partitions
    assert response.error_code == 0
    assert response.allow_replication_factor_change == any_factor
    after = applied(records, image) if records else image
    return after, answer.error_code, answer.error_message


def test_where_no_topic_is_named_the_factor_may_change() -> None:
    request = AlterPartitionReassignmentsRequest(60_000, False, [])
    records, response = alter_partition_reassignments(_image([1]), request)

    assert records == []
    assert response.allow_replication_factor_change


def _partition(image: MetadataImage) -> PartitionImage:
    return image.topics.by_name["t"].partitions[0]


@dataclass(frozen=True)
class Row:
    """`becomes` is (replicas, adding, removing, isr, leader, leader epoch)."""

    says: str
    replicas: list[int]
    isr: list[int]
    target: list[int]
    becomes: tuple[list[int], list[int], list[int], list[int], int, int]


ROWS = [
    Row("the same", [1], [1], [1], ([1], [], [], [1], 1, 5)),
    Row("another order", [1, 2], [1, 2], [2, 1], ([2, 1], [], [], [1, 2], 1, 5)),
    Row("one more, which is to come", [1], [1], [1, 2], ([1, 2], [2], [], [1], 1, 5)),
    Row("one for another", [1], [1], [2], ([2, 1], [2], [1], [1], 1, 5)),
    Row("one less, at once", [1, 2], [1, 2], [1], ([1], [], [], [1], 1, 6)),
    Row("the leader less, at once", [1, 2], [1, 2], [2], ([2], [], [], [2], 2, 6)),
    Row("one less, none left in sync", [1, 2], [1], [2], ([2, 1], [], [1], [1], 1, 5)),
    Row("two others", [1, 2], [2, 1], [4, 3], ([4, 3, 1, 2], [3, 4], [1, 2], [2, 1], 2, 5)),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.says)
def test_what_a_partition_becomes(row: Row) -> None:
    image = _image(row.replicas, row.isr)

    after, code, message = _altered(image, row.target)
    found = _partition(after)

    assert (code, message) == (0, None)
    assert row.becomes == (
        found.replicas,
        found.adding_replicas,
        found.removing_replicas,
        found.isr,
        found.leader,
        found.leader_epoch,
    )
    assert found.directories == [directory(one) for one in found.replicas]
    assert (after is image) == (row.says == "the same")


REFUSED = [
    ([9], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes broker 9, but no such broker"),
    ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes the broker 1 more than once."),
    ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes an empty replica list."),
    ([4], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "are fenced or in controlled shutdown."),
    (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
]


@pytest.mark.parametrize(("target", "code", "says"), REFUSED)
def test_targets_that_are_refused(
    target: list[int] | None, code: ErrorCode, says: str | None
) -> None:
    image = _image([1, 2], fenced=(4,))

    after, answered, message = _altered(image, target)

    assert answered == code
    assert message == says if says is None else says in (message or "")
    assert after is image


def test_the_replication_factor_is_kept_when_it_must_be() -> None:
    image = _image([1, 2])
    _, code, message = _altered(image, [1], any_factor=False)
    assert code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert message == "The replication factor is changed from 2 to 1"

    under_way, code, _ = _altered(image, [1, 3], any_factor=False)
    assert code == 0
    assert _partition(under_way).replicas == [1, 3, 2]
    _, code, _ = _altered(under_way, [3, 4], any_factor=False)
    assert code == 0


def test_one_under_way_is_listed_and_called_back() -> None:
    image, _, _ = _altered(_image([1, 2]), [3, 4])
    (topic,) = list_partition_reassignments(image, ListPartitionReassignmentsRequest()).topics
    (ongoing,) = topic.partitions
    assert (ongoing.replicas, ongoing.adding_replicas, ongoing.removing_replicas) == (
        [3, 4, 1, 2],
        [3, 4],
        [1, 2],
    )

    back, code, _ = _altered(image, None)
    found = _partition(back)

    assert code == 0
    assert (found.replicas, found.isr, found.leader) == ([1, 2], [1, 2], 1)
    assert (found.adding_replicas, found.removing_replicas) == ([], [])
    assert found.leader_epoch == 6, "who had come is fenced"
    assert list_partition_reassignments(back, ListPartitionReassignmentsRequest()).topics == []


@pytest.mark.parametrize(("said", "unclean"), [(None, False), ("true", True), (" True ", True)])
def test_nobody_of_the_old_is_in_sync(said: str | None, unclean: bool) -> None:
    """Calling it back would lose records, so it takes the topic's leave."""
    image, _, _ = _altered(_image([1]), [2])
    partition = _partition(image)._replace(isr=[2], leader=2)
    image.topics.by_name["t"].partitions[0] = partition
    if said is not None:
        image = applied([ConfigRecord(2, "t", "unclean.leader.election.enable", said)], image)

    back, code, _ = _altered(image, None)

    assert code == (0 if unclean else ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    assert _partition(back).replicas == ([1] if unclean else [2, 1])
    assert _partition(back).leader == (1 if unclean else 2)


def test_topics_and_partitions_that_are_not_there() -> None:
    request = AlterPartitionReassignmentsRequest(
        60_000,
        True,
        [AskedTopic("nope", [Asked(0, [1])]), AskedTopic("t", [Asked(7, None), Asked(0, [1])])],
    )

    records, response = alter_partition_reassignments(_image([1]), request)

    assert records == []
    answers = [one for topic in response.responses for one in topic.partitions]
    assert [(one.error_code, one.error_message) for one in answers] == [
        (3, "Unable to find a topic named nope."),
        (3, "Unable to find partition t:7."),
        (0, None),
    ]
    asked = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    listing = ListPartitionReassignmentsRequest(topics=[asked("nope", [0]), asked("t", [0, 7])])
    assert list_partition_reassignments(_image([1]), listing).topics == []
