"""ElectLeaders: which partitions need a leader, and what the others are answered."""

from __future__ import annotations

import pytest

from ottla.broker.controller.elect_leaders import elect_leaders, refused_election
from ottla.broker.metadata.image import NO_LEADER, MetadataImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata_records import PartitionRecord, TopicRecord
from ottla.protocol.messages.topics import ElectLeadersRequest, ElectLeadersResponse
from ottla.protocol.schema import Message
from tests.controller.clusters import applied, cluster, directory

PREFERRED, UNCLEAN = 0, 1
TOPIC_ID = bytes(15) + b"\xaa"
Asked = ElectLeadersRequest.TopicPartitions
LED, OTHER, LAGGING, NOBODY, LOST = range(5)


def _image() -> MetadataImage:
    """Five partitions on brokers 1 and 2, of which both are up; 3 is not."""
    rows: dict[int, tuple[list[int], list[int], int]] = {
        LED: ([1, 2], [1, 2], 1),
        OTHER: ([1, 2], [1, 2], 2),
        LAGGING: ([1, 2], [2], 2),
        NOBODY: ([1, 3], [3], NO_LEADER),
        LOST: ([3], [3], NO_LEADER),
    }
    records: list[Message] = [TopicRecord("t", TOPIC_ID)]
    records += [
        PartitionRecord(
            partition_id=index,
            topic_id=TOPIC_ID,
            replicas=replicas,
            isr=isr,
            leader=leader,
            leader_epoch=4,
            directories=[directory(one) for one in replicas],
        )
        for index, (replicas, isr, leader) in rows.items()
    ]
    return applied(records, cluster(1, 2, 3, fenced=(3,)))


def _answers(kind: int, asked: list[Asked] | None) -> tuple[list[Message], dict[int, int]]:
    records, response = elect_leaders(_image(), ElectLeadersRequest(kind, asked))
    return records, {
        one.partition_id: one.error_code
        for topic in response.replica_election_results
        for one in topic.partition_result
    }


def test_preferred() -> None:
    records, codes = _answers(PREFERRED, [Asked("t", [LED, OTHER, LAGGING, NOBODY, LOST])])

    assert codes == {
        LED: ErrorCode.ELECTION_NOT_NEEDED,
        OTHER: 0,
        LAGGING: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        NOBODY: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        LOST: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    }
    after = applied(records, _image()).topics.by_name["t"].partitions
    assert {index: one.leader for index, one in after.items()} == {
        LED: 1,
        OTHER: 1,
        LAGGING: 2,
        NOBODY: NO_LEADER,
        LOST: NO_LEADER,
    }


def test_unclean() -> None:
    records, codes = _answers(UNCLEAN, [Asked("t", [LED, NOBODY, NOBODY, LOST])])

    assert codes == {
        LED: ErrorCode.ELECTION_NOT_NEEDED,
        NOBODY: 0,
        LOST: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    }
    assert len(records) == 1, "named twice is elected once"
    after = applied(records, _image()).topics.by_name["t"].partitions[NOBODY]
    assert (after.leader, after.isr, after.leader_epoch) == (1, [1], 5)


def test_of_all_those_are_named_that_need_one() -> None:
    _, codes = _answers(UNCLEAN, None)

    assert codes == {NOBODY: 0, LOST: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_what_is_not_there() -> None:
    records, response = elect_leaders(
        _image(), ElectLeadersRequest(PREFERRED, [Asked("nope", [0]), Asked("t", [7])])
    )

    assert records == []
    assert [
        (one.error_code, one.error_message)
        for topic in response.replica_election_results
        for one in topic.partition_result
    ] == [(3, "No such topic as nope"), (3, "No such partition as t-7")]


def test_who_asks_for_no_partition_is_answered_whatever_the_kind() -> None:
    assert elect_leaders(_image(), ElectLeadersRequest(2, [])) == ([], ElectLeadersResponse())


def test_an_unknown_kind_is_refused_for_every_partition() -> None:
    request = ElectLeadersRequest(2, [Asked("t", [0, 1])])
    with pytest.raises(KafkaError) as raised:
        elect_leaders(_image(), request)

    response = refused_election(request, 2, raised.value)

    assert response.error_code == ErrorCode.INVALID_REQUEST
    (topic,) = response.replica_election_results
    assert [(one.partition_id, one.error_code) for one in topic.partition_result] == [
        (0, 42),
        (1, 42),
    ]
    assert topic.partition_result[0].error_message == "Unknown election type 2"
