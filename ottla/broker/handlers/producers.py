"""DescribeProducers: whom a partition knows by producer id, and what they have open (KIP-664)."""

from __future__ import annotations

from ottla.broker.controller.names import topic_name_fault
from ottla.broker.controller.topics import UNKNOWN_TOPIC
from ottla.broker.handlers.context import Rooms, Session
from ottla.broker.handlers.partitions import led_partition
from ottla.broker.log.producer_state import NO_OFFSET, Producer
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.producer_ids import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)

TopicAnswer = DescribeProducersResponse.TopicResponse
PartitionAnswer = DescribeProducersResponse.PartitionResponse
State = DescribeProducersResponse.ProducerState

NO_SEQUENCE = -1


def handle_describe_producers(
    session: Session, request: DescribeProducersRequest, version: int
) -> DescribeProducersResponse:
    """Each partition by itself: its producers, or why it has none to show. One that is named again
    gets the same answer again, as in Kafka; it is made once."""
    response = DescribeProducersResponse()
    known: dict[tuple[str, int], PartitionAnswer] = {}
    for topic in request.topics:
        answers: list[PartitionAnswer] = []
        response.topics.append(TopicAnswer(topic.name, answers))
        for index in topic.partition_indexes:
            answer = known.get((topic.name, index))
            if answer is None:
                answer = known[topic.name, index] = _answer(session.rooms, topic.name, index)
            answers.append(answer)
    return response


def _answer(rooms: Rooms, topic: str, index: int) -> PartitionAnswer:
    answer = PartitionAnswer(index)
    try:
        answer.active_producers = _active(rooms, topic, index)
    except KafkaError as error:
        answer.error_code, answer.error_message = int(error.code), error.message
    return answer


def _active(rooms: Rooms, topic: str, index: int) -> list[State]:
    fault = topic_name_fault(topic)
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    if topic not in rooms.image.topics.by_name:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC)
    known = led_partition(rooms, topic, index).log.producer_state.producers
    return [_shown(producer_id, producer) for producer_id, producer in known.items()]


def _shown(producer_id: int, producer: Producer) -> State:
    start = producer.transaction_start
    return State(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.batches[-1].last_sequence if producer.batches else NO_SEQUENCE,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=NO_OFFSET if start is None else start,
    )
