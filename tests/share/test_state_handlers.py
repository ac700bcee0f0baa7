"""The share coordinator's requests against a broker: where they go, what they are answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla.broker.coordinator.pruning import prune
from ottla.broker.coordinator.share.coordinator import SHARE_GROUP_STATE, snapshot_cold
from ottla.broker.coordinator.share.state import SharePartitionKey
from ottla.protocol.api import SERVED, ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import share_state
from ottla.protocol.messages.groups import FindCoordinatorRequest
from ottla.protocol.messages.topics import DeleteTopicsRequest
from tests.coordinator.asking import ask
from tests.handlers.rooms import NODE_ID, House

GROUP = "g"
Initialize = share_state.InitializeShareGroupStateRequest
Write = share_state.WriteShareGroupStateRequest
Read = share_state.ReadShareGroupStateRequest
Delete = share_state.DeleteShareGroupStateRequest
Summarize = share_state.ReadShareGroupStateSummaryRequest

KAFKAS_RANGES = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (0, 0),
    ApiKey.READ_SHARE_GROUP_STATE: (0, 0),
    ApiKey.WRITE_SHARE_GROUP_STATE: (0, 1),
    ApiKey.DELETE_SHARE_GROUP_STATE: (0, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (0, 1),
}


SETTINGS = {"share.coordinator.state.topic.num.partitions": "3"}


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with House(SETTINGS) as opened:
        await opened.create("t", partitions=2)
        yield opened


def _id(house: House) -> bytes:
    return house.rooms.image.topics.by_name["t"].topic_id


async def _find(house: House, key: str, version: int = 6) -> Any:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
    (found,) = (await ask(house, request, version)).coordinators
    return found


async def _make_topic(house: House) -> None:
    found = await _find(house, SharePartitionKey(GROUP, _id(house), 0).placed_by)
    assert (found.error_code, found.node_id) == (0, NODE_ID)


def _initialize(house: House, partitions: list[int], *, group: str = GROUP) -> Initialize:
    parts = [Initialize.PartitionData(index, 0, 10 + index) for index in partitions]
    return Initialize(group, [Initialize.InitializeStateData(_id(house), parts)])


def _write(house: House, *, version_count: int = 3) -> Write:
    part = Write.PartitionData(0, 0, 0, 10, version_count, [Write.StateBatch(10, 12, 2, 1)])
    return Write(GROUP, [Write.WriteStateData(_id(house), [part])])


def _read(house: House, partitions: list[int]) -> Read:
    parts = [Read.PartitionData(index, 0) for index in partitions]
    return Read(GROUP, [Read.ReadStateData(_id(house), parts)])


def test_the_versions_are_kafkas() -> None:
    served = {key: (SERVED[key].min_version, SERVED[key].max_version) for key in KAFKAS_RANGES}

    assert served == KAFKAS_RANGES


async def test_the_topic_is_made_once_as_kafka_makes_it() -> None:
    async with House() as house:
        await house.create("t")
        await _make_topic(house)
        topic = house.rooms.image.topics.by_name[SHARE_GROUP_STATE]

        assert len(topic.partitions) == 50
        assert house.rooms.image.configs.get(2, SHARE_GROUP_STATE) == {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": "1",
            "retention.ms": "-1",
            "segment.bytes": "104857600",
        }


@pytest.mark.parametrize(
    "key",
    ["g", "g:AAECAwQFBgcICQoLDA0ODw", "g:short:0", "g:AAECAwQFBgcICQoLDA0ODw:x", ":AAECAwQFBgc:0"],
)
async def test_a_malformed_key_is_refused(house: House, key: str) -> None:
    assert (await _find(house, key)).error_code == ErrorCode.INVALID_REQUEST


async def test_a_group_may_have_colons(house: House) -> None:
    assert (await _find(house, "a:b:AAECAwQFBgcICQoLDA0ODw:0")).error_code == 0
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=["g:AAECAwQFBgcICQoLDA0ODw:0"])
    (early,) = (await ask(house, request, 5)).coordinators
    assert early.error_code == ErrorCode.INVALID_REQUEST


async def test_nobody_coordinates_before_there_is_the_topic(house: House) -> None:
    answer = await ask(house, _read(house, [0]), 0)

    assert answer.results[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR


async def test_what_names_nothing_is_answered_with_nothing(house: House) -> None:
    await _make_topic(house)

    assert (await ask(house, _initialize(house, []), 0)).results == []
    assert (await ask(house, _initialize(house, [0], group=""), 0)).results == []
    assert (await ask(house, Read(GROUP, []), 0)).results == []


async def test_states_are_kept_over_a_restart(house: House) -> None:
    await _make_topic(house)
    initialized = await ask(house, _initialize(house, [1, 0]), 0)
    assert [(one.partition, one.error_code) for one in initialized.results[0].partitions] == [
        (1, 0),
        (0, 0),
    ]
    written = await ask(house, _write(house), 1)
    assert written.results[0].partitions[0].error_code == 0
    async with house.restarted() as again:
        read = (await ask(again, _read(again, [0, 1]), 0)).results[0].partitions
        part = Summarize.PartitionData(0, 0)
        request = Summarize(GROUP, [Summarize.ReadStateSummaryData(_id(again), [part])])
        summary = (await ask(again, request, 1)).results[0].partitions[0]

        assert [one.start_offset for one in read] == [10, 11]
        assert [(one.first_offset, one.last_offset) for one in read[0].state_batches] == [(10, 12)]
        assert (summary.start_offset, summary.delivery_complete_count) == (10, 3)


async def test_a_state_is_synced_whatever_flush_messages_says() -> None:
    async with House({**SETTINGS, "log.flush.interval.messages": str(2**63 - 1)}) as house:
        await house.create("t", partitions=2)
        await _make_topic(house)
        writing = ((_initialize(house, [0]), 0), (_write(house), 1))
        for written, (request, version) in enumerate(writing, 1):
            answer = await ask(house, request, version)
            key = SharePartitionKey(GROUP, _id(house), 0).placed_by
            log = house.rooms.share_state.runner(key)[0].partition.log

            assert answer.results[0].partitions[0].error_code == 0
            assert log.durable_end == log.log_end_offset == written


async def test_a_deleted_state_is_gone(house: House) -> None:
    await _make_topic(house)
    await ask(house, _initialize(house, [0]), 0)
    request = Delete(GROUP, [Delete.DeleteStateData(_id(house), [Delete.PartitionData(0)])])
    deleted = await ask(house, request, 0)

    assert deleted.results[0].partitions[0].error_code == 0
    read = await ask(house, _read(house, [0]), 0)
    assert read.results[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST


async def test_the_states_of_a_deleted_topic_go(house: House) -> None:
    await _make_topic(house)
    await ask(house, _initialize(house, [0, 1]), 0)
    await ask(house, DeleteTopicsRequest(topic_names=["t"]), 5)

    assert all(not shard.states for shard in house.rooms.share_state.shards())


async def test_old_records_are_deleted(house: House) -> None:
    await _make_topic(house)
    await ask(house, _initialize(house, [0, 1]), 0)
    for _ in range(12):
        await ask(house, _write(house), 1)
    list(prune(house.rooms.share_state, redundant_min=5))
    runner, _ = house.rooms.share_state.runner(SharePartitionKey(GROUP, _id(house), 0).placed_by)
    await ask(house, _read(house, [0]), 0)
    log = runner.partition.log

    assert log.log_start_offset >= 13
    assert log.log_end_offset - log.log_start_offset <= 2
    async with house.restarted() as again:
        read = (await ask(again, _read(again, [0, 1]), 0)).results[0].partitions
        assert [one.start_offset for one in read] == [10, 11]


async def test_what_is_cold_is_snapshot_again(house: House) -> None:
    await _make_topic(house)
    await house.append("t", 0, [b"v"] * 10)
    await ask(house, _initialize(house, [0]), 0)
    runner, _ = house.rooms.share_state.runner(SharePartitionKey(GROUP, _id(house), 0).placed_by)
    log = runner.partition.log
    end_offset = log.log_end_offset
    for waited_ms, records in ((299_999, 0), (1, 1), (600_000, 1)):
        house.rooms.clock.advance(waited_ms)  # type: ignore[attr-defined]
        snapshot_cold(house.rooms.share_state, 300_000)
        await ask(house, _read(house, [0]), 0)

        assert log.log_end_offset == end_offset + records
