"""What an incremental answer names (KIP-227): records, errors, ends and starts that have moved."""

from __future__ import annotations

from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.offsets import DeleteRecordsRequest
from tests.coordinator.asking import ask
from tests.handlers.rooms import House

TOPIC = "t"
AT_LEISURE = {"flush.messages": "1000000"}


def _topic(topic_id: bytes, offsets: dict[int, int], **fields: Any) -> FetchRequest.FetchTopic:
    parts = [
        FetchRequest.FetchPartition(index, fetch_offset=offset, partition_max_bytes=1000, **fields)
        for index, offset in offsets.items()
    ]
    return FetchRequest.FetchTopic(topic_id=topic_id, partitions=parts)


class _Session:
    """Of three partitions, each with a record that has been told of."""

    def __init__(self, house: House, topic_id: bytes) -> None:
        self._house, self._topic_id = house, topic_id
        self._session_id, self._epoch = 0, 0

    async def ask(self, offsets: dict[int, int], **fields: Any) -> dict[int, Any]:
        """What is named, by partition; `offsets` are what has changed."""
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=[_topic(self._topic_id, offsets, **fields)] if offsets else [],
        )
        answer = await ask(self._house, request, 16)
        assert answer.error_code == ErrorCode.NONE
        self._session_id, self._epoch = answer.session_id, self._epoch + 1
        return {
            part.partition_index: part for topic in answer.responses for part in topic.partitions
        }


async def _begun(house: House) -> _Session:
    topic_id = await house.create(TOPIC, partitions=3, configs=AT_LEISURE)
    for index in range(3):
        await house.append(TOPIC, index, [b"v"])
    session = _Session(house, topic_id)
    assert set(await session.ask({0: 1, 1: 1, 2: 1})) == {0, 1, 2}
    return session


async def test_nothing_is_named_where_nothing_is_new(house: House) -> None:
    session = await _begun(house)

    assert await session.ask({}) == {}
    assert await session.ask({}) == {}


async def test_records_are_named_until_their_reader_has_gone_on(house: House) -> None:
    session = await _begun(house)
    await house.append(TOPIC, 1, [b"w"])

    for _ in range(2):
        named = await session.ask({})
        assert set(named) == {1}
        assert (named[1].high_watermark, bool(named[1].records)) == (2, True)
    assert await session.ask({1: 2}) == {}


async def test_an_end_is_named_that_its_reader_has_gone_to_by_itself(house: House) -> None:
    session = await _begun(house)
    await house.append(TOPIC, 1, [b"w"])

    named = await session.ask({1: 2})

    assert (set(named), named[1].high_watermark, bool(named[1].records)) == ({1}, 2, False)
    assert await session.ask({}) == {}


async def test_a_start_is_named_once_that_records_were_deleted_up_to(house: House) -> None:
    session = await _begun(house)
    asking = DeleteRecordsRequest
    topic = asking.DeleteRecordsTopic(TOPIC, [asking.DeleteRecordsPartition(2, 1)])
    answer = await ask(house, asking([topic], 1000), 2)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE

    named = await session.ask({})

    assert (set(named), named[2].log_start_offset) == ({2}, 1)
    assert await session.ask({}) == {}


async def test_an_error_is_named_each_time(house: House) -> None:
    session = await _begun(house)

    for offset, fields, code in (
        (9, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (1, {"current_leader_epoch": 7}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        named = await session.ask({0: offset}, **fields)
        assert (set(named), named[0].error_code) == ({0}, code)
        assert (await session.ask({}))[0].error_code == code
