"""A group's members without a coordinator of theirs: requests to a house, answers by offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.broker.coordinator.share.state import SharePartitionKey
from ottla.broker.handlers.answers import Pending
from ottla.broker.handlers.share_fetch import handle_share_fetch
from ottla.broker.share.window import Window
from ottla.protocol.messages import share_group, share_state
from ottla.protocol.messages.groups import FindCoordinatorRequest
from tests.coordinator.asking import ask
from tests.handlers.rooms import House

GROUP = "g"
TOPIC = "t"
Ranges = Sequence[tuple[int, int, list[int]]]
Fetch = share_group.ShareFetchRequest
Acknowledge = share_group.ShareAcknowledgeRequest
Initialize = share_state.InitializeShareGroupStateRequest
Summarize = share_state.ReadShareGroupStateSummaryRequest


def topic_id(house: House) -> bytes:
    return house.rooms.image.topics.by_name[TOPIC].topic_id


async def begin(
    house: House,
    *,
    partitions: int = 1,
    start: int = 0,
    configs: Mapping[str, str] | None = None,
) -> None:
    """A topic, and a group that begins at an offset of it."""
    await house.create(TOPIC, partitions=partitions, configs=configs)
    key = SharePartitionKey(GROUP, topic_id(house), 0).placed_by
    await ask(house, FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), 6)
    await initialize(house, partitions=partitions, start=start)


async def initialize(
    house: House, *, partitions: int = 1, start: int = 0, state_epoch: int = 0
) -> None:
    parts = [Initialize.PartitionData(index, state_epoch, start) for index in range(partitions)]
    request = Initialize(GROUP, [Initialize.InitializeStateData(topic_id(house), parts)])
    answer = await ask(house, request, 0)
    assert [one.error_code for one in answer.results[0].partitions] == [0] * partitions


async def produce(house: House, *sizes: int, partition: int = 0) -> None:
    """Batches of so many records."""
    for size in sizes:
        await house.append(TOPIC, partition, [b"v"] * size)


async def loaded(house: House, partition: int = 0) -> Window:
    """What the group has in hand, when its state is read: an old leader is fenced by a record, and
    that takes a sync."""
    led = house.rooms.replicas.by_id(topic_id(house), partition)
    assert led is not None
    share = house.rooms.shares.take_up(GROUP, led)
    while share.window is None:
        assert share.failure is None
        await asyncio.sleep(0)
    return share.window


async def written(house: House) -> None:
    """All that the share coordinator of partition 0 was given is durable: it answers nothing
    before."""
    request = Summarize(
        GROUP, [Summarize.ReadStateSummaryData(topic_id(house), [Summarize.PartitionData(0, 0)])]
    )
    (answer,) = (await ask(house, request, 1)).results[0].partitions
    assert answer.error_code == 0


class Member:
    """One member; its session's epochs count by themselves."""

    def __init__(self, house: House, name: str) -> None:
        self.house = house
        self.name = name
        self.epoch = 0

    def fetch_request(
        self,
        *,
        acks: Ranges = (),
        partitions: Sequence[int] = (0,),
        records: int = 500,
        wait_ms: int = 0,
        exactly: bool = False,
        epoch: int | None = None,
        **fields: Any,
    ) -> share_group.ShareFetchRequest:
        parts = [
            Fetch.FetchPartition(
                index,
                acknowledgement_batches=[
                    Fetch.AcknowledgementBatch(*one) for one in (acks if index == 0 else ())
                ],
            )
            for index in partitions
        ]
        request = Fetch(
            GROUP,
            self.name,
            self.epoch if epoch is None else epoch,
            wait_ms,
            1,
            max_records=records,
            batch_size=records,
            share_acquire_mode=int(exactly),
            topics=[Fetch.FetchTopic(topic_id(self.house), parts)],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        return request

    async def fetch(self, **fields: Any) -> Any:
        """The whole answer."""
        answer = await ask(self.house, self.fetch_request(**fields), 2)
        if answer.error_code == 0 and fields.get("epoch") is None:
            self.epoch += 1
        return answer

    async def refused(self) -> tuple[int, str | None]:
        """The error of partition 0, whose state cannot be read, and its message: they are told
        when the fetch waits no more."""
        waiting = handle_share_fetch(self.house.session, self.fetch_request(wait_ms=60_000), 2)
        self.epoch += 1
        while list(self.house.rooms.shares.by_group()):
            await asyncio.sleep(0)
        assert isinstance(waiting, Pending)
        assert waiting.response is None
        waiting.hurry()
        answer: Any = waiting.response
        (part,) = answer.responses[0].partitions
        return part.error_code, part.error_message

    async def acquire(self, **fields: Any) -> list[tuple[int, int, int]]:
        """(first, last, delivery count) of what partition 0 gives."""
        answer = await self.fetch(**fields)
        assert answer.error_code == 0, answer.error_message
        for topic in answer.responses:
            for part in topic.partitions:
                assert part.error_code == 0, part.error_message
                assert part.acknowledge_error_code == 0, part.acknowledge_error_message
        return acquired_of(answer)

    async def acknowledge(self, *ranges: tuple[int, int, list[int]], **fields: Any) -> Any:
        """The answer of partition 0, or the whole one that is refused."""
        answer = await self.acknowledged(*ranges, **fields)
        return answer if answer.error_code else answer.responses[0].partitions[0]

    async def acknowledged(self, *ranges: tuple[int, int, list[int]], **fields: Any) -> Any:
        """The whole answer."""
        epoch = fields.pop("epoch", None)
        part = Acknowledge.AcknowledgePartition(
            0, [Acknowledge.AcknowledgementBatch(*one) for one in ranges]
        )
        request = Acknowledge(
            GROUP,
            self.name,
            self.epoch if epoch is None else epoch,
            topics=[Acknowledge.AcknowledgeTopic(topic_id(self.house), [part])],
            **fields,
        )
        answer = await ask(self.house, request, 2)
        if not answer.error_code and epoch is None:
            self.epoch += 1
        return answer


def acquired_of(answer: Any, partition: int = 0) -> list[tuple[int, int, int]]:
    return [
        (one.first_offset, one.last_offset, one.delivery_count)
        for topic in answer.responses
        for part in topic.partitions
        if part.partition_index == partition
        for one in part.acquired_records
    ]
