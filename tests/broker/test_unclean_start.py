"""A start after kill -9: the coordinators read their partitions, each once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ottla.broker.broker import Broker as RunningBroker
from ottla.config.load import load
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.groups import FindCoordinatorRequest, OffsetCommitRequest
from ottla.testing.embedded import Broker
from tests.broker.small_client import SmallClient, client_of
from tests.handlers.rooms import RecordedEvents

CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
CommitPartition = OffsetCommitRequest.OffsetCommitRequestPartition


GROUPS = [f"g{number}" for number in range(20)]


async def _commit(client: SmallClient) -> None:
    """An offset of each group, as soon as its coordinator has read its partition."""
    topics = [CommitTopic("t", partitions=[CommitPartition(0, 0)])]
    for group in GROUPS:
        await client.connection.request(FindCoordinatorRequest(group), 3)
        code = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        while code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            answer = await client.connection.request(OffsetCommitRequest(group, topics=topics), 8)
            code = answer.topics[0].partitions[0].error_code
        assert code == ErrorCode.NONE


async def test_what_coordinators_keep_is_read_once(tmp_path: Path) -> None:
    async with Broker(tmp_path) as broker, client_of(broker) as client:
        await client.create("t")
        await _commit(client)
    (tmp_path / ".kafka_cleanshutdown").unlink()

    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": tmp_path}
    events = RecordedEvents()
    again = RunningBroker(
        load(overrides={**settings, "ottla.telemetry.port": -1}, environ={}).config, events=events
    )
    await again.start()
    async with client_of(again) as client:
        await _commit(client)
    await again.stop()

    (loaded,) = events.named("logs_loaded")
    assert loaded["unclean_dirs"] == [str(tmp_path)]
    partitions = [told["partition"] for told in events.named("coordinator_loaded")]
    assert partitions
    assert len(partitions) == len(set(partitions))


@pytest.mark.parametrize("is_clean", [True, False])
async def test_a_partition_that_was_removed_meanwhile_is_told(
    tmp_path: Path, is_clean: bool
) -> None:
    """It begins anew, as it does in Kafka; not in silence."""
    async with Broker(tmp_path) as broker, client_of(broker) as client:
        for topic in ("kept", "gone", "empty"):
            await client.create(topic)
        for topic in ("kept", "gone"):
            await client.produce(topic, b"1", b"2")
    for topic in ("gone", "empty"):
        shutil.rmtree(tmp_path / f"{topic}-0")
    if not is_clean:
        (tmp_path / ".kafka_cleanshutdown").unlink()

    events = RecordedEvents()
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": tmp_path}
    again = RunningBroker(
        load(overrides={**settings, "ottla.telemetry.port": -1}, environ={}).config, events=events
    )
    await again.start()
    await again.stop()

    (told,) = events.named("partitions_vanished")
    assert (told["partitions"], told["ends"]) == (["gone-0"], [2])
