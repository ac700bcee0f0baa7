"""Leaders by request: what ElectLeaders writes and answers.

Pure: (image, request) -> (records, response). A preferred election is for partitions that their
first replica does not lead, an unclean one for those that nobody leads.
"""

from __future__ import annotations

from ottla.broker.controller.elections import (
    Election,
    acceptable_in,
    change_partition,
    rules_of,
)
from ottla.broker.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata_records import PartitionChangeRecord
from ottla.protocol.messages.topics import ElectLeadersRequest, ElectLeadersResponse
from ottla.protocol.schema import Message

TopicAnswer = ElectLeadersResponse.ReplicaElectionResult
PartitionAnswer = ElectLeadersResponse.PartitionResult

ELECTIONS = {0: Election.PREFERRED, 1: Election.UNCLEAN}
NOT_NEEDED = "Leader election not needed for topic partition."


def elect_leaders(
    image: MetadataImage, request: ElectLeadersRequest
) -> tuple[list[Message], ElectLeadersResponse]:
    """Elects where it is asked and needed; asked for all, what needs none is not named.

    Raises INVALID_REQUEST for an unknown kind of election, unless none is asked for.
    """
    if request.topic_partitions == []:
        return [], ElectLeadersResponse()
    election = ELECTIONS.get(request.election_type)
    if election is None:
        reason = f"Unknown election type {request.election_type}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    is_all = request.topic_partitions is None
    if request.topic_partitions is None:
        asked = [(one.name, list(one.partitions)) for one in image.topics.by_name.values()]
    else:
        asked = [(one.topic, one.partitions) for one in request.topic_partitions]
    records: dict[tuple[str, int], Message] = {}
    response = ElectLeadersResponse()
    for topic, indexes in asked:
        answers: list[PartitionAnswer] = []
        response.replica_election_results.append(TopicAnswer(topic, answers))
        for index in indexes:
            answer = PartitionAnswer(index, error_message=None)
            try:
                records[topic, index] = _elected(image, topic, index, election)
            except KafkaError as error:
                if is_all and error.code is ErrorCode.ELECTION_NOT_NEEDED:
                    continue
                answer.error_code, answer.error_message = int(error.code), error.message
            answers.append(answer)
    return list(records.values()), response


def refused_election(
    request: ElectLeadersRequest, version: int, error: KafkaError
) -> ElectLeadersResponse:
    """The same error at the top, which version 0 has no place for, and for each partition that the
    request names."""
    code = int(error.code)
    return ElectLeadersResponse(
        error_code=code if version >= 1 else 0,
        replica_election_results=[
            TopicAnswer(
                one.topic, [PartitionAnswer(index, code, error.message) for index in one.partitions]
            )
            for one in request.topic_partitions or ()
        ],
    )


def _elected(
    image: MetadataImage, name: str, index: int, election: Election
) -> PartitionChangeRecord:
    topic = image.topics.by_name.get(name)
    if topic is None:
        reason = f"No such topic as {name}"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
    partition = topic.partitions.get(index)
    if partition is None:
        reason = f"No such partition as {name}-{index}"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
    if not _needs(partition, election):
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, NOT_NEEDED)
    record = change_partition(
        topic.topic_id,
        index,
        partition,
        isr=partition.isr,
        rules=rules_of(image, topic),
        election=election,
        acceptable=acceptable_in(image, partition, starting=-1),
    )
    if record is None:
        if election is Election.PREFERRED:
            reason = "The preferred leader was not available."
            raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, reason)
        reason = "Eligible topic partition leaders are not available."
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, reason)
    return record


def _needs(partition: PartitionImage, election: Election) -> bool:
    if election is Election.PREFERRED:
        return partition.leader != partition.replicas[0]
    return partition.leader == NO_LEADER
