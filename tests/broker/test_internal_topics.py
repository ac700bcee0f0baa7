"""What coordinators write is on disk before they answer, whatever the broker is told to sync."""

from __future__ import annotations

from ottla.broker.handlers.topic_names import INTERNAL_TOPICS
from ottla.broker.log.log import Log
from ottla.client.connection import Connection
from ottla.protocol.messages import groups
from ottla.protocol.messages.producer_ids import InitProducerIdRequest
from ottla.protocol.messages.topics import CreateTopicsRequest
from ottla.testing.embedded import Broker

SETTINGS = {
    "log.flush.interval.messages": 2**63 - 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
GROUP_KEY, TRANSACTION_KEY = 0, 1


async def test_coordinators_sync_whatever_flush_messages_says() -> None:
    async with Broker(config=SETTINGS) as broker:
        host, _, port = broker.bootstrap_servers.partition(":")
        connection = await Connection.open(host, int(port))
        for key_type in (GROUP_KEY, TRANSACTION_KEY):
            find = groups.FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"])
            await connection.request(find, 4)
        await connection.request(
            CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("t", 1, 1)]), 5
        )
        part = groups.OffsetCommitRequest.OffsetCommitRequestPartition(0, 7)
        topic = groups.OffsetCommitRequest.OffsetCommitRequestTopic("t", partitions=[part])
        committed = await connection.request(groups.OffsetCommitRequest("x", topics=[topic]), 9)
        begun = await connection.request(InitProducerIdRequest("x", 60_000), 4)
        await connection.close()

        assert [one.error_code for one in committed.topics[0].partitions] == [0]
        assert begun.error_code == 0
        written = _written(broker)
        assert {log.topic for log in written} == {"__consumer_offsets", "__transaction_state"}
        assert all(log.durable_end == log.log_end_offset for log in written), written


def _written(broker: Broker) -> list[Log]:
    running = broker.running
    led = [
        running.replicas.get(name, index)
        for name, topic in running.rooms.image.topics.by_name.items()
        if name in INTERNAL_TOPICS
        for index in topic.partitions
    ]
    return [one.log for one in led if one is not None and one.log.log_end_offset]
