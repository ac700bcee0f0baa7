"""Log dirs that get no new partitions (KIP-1066): from the start, and as it is set at run time."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from ottla.broker.controller.brokers import CORDONED_SINCE
from ottla.broker.controller.features import BOOTSTRAP_LEVELS
from ottla.broker.metadata.records import METADATA_VERSION
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.features import UpdateFeaturesRequest
from ottla.protocol.messages.log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.topics import CreateTopicsRequest
from ottla.testing.embedded import Broker
from tests.broker.small_client import SmallClient, client_of

BROKER, SET, DELETE = 4, 0, 1
CORDONED = "cordoned.log.dirs"


class Cordoning:
    """A broker of two log dirs, `a` and `b`, and who sets which of them are cordoned."""

    def __init__(self, broker: Broker, client: SmallClient) -> None:
        self._broker = broker
        self._ask = client.connection.request

    async def set(self, value: str | None) -> int:
        operation = DELETE if value is None else SET
        change = IncrementalAlterConfigsRequest.AlterableConfig(CORDONED, operation, value)
        wanted = IncrementalAlterConfigsRequest.AlterConfigsResource(BROKER, "1", [change])
        answer = await self._ask(IncrementalAlterConfigsRequest([wanted]), 1)
        code: int = answer.responses[0].error_code
        return code

    async def create(self, name: str, partitions: int = 4) -> tuple[int, Counter[str]]:
        """The error, and how many partitions lie in each log dir."""
        topic = CreateTopicsRequest.CreatableTopic(name, partitions, 1)
        answer = await self._ask(CreateTopicsRequest([topic]), 7)
        places = Counter(
            Path(self._broker.running.logs.dir_of(log)).name
            for log in self._broker.running.logs.logs
            if log.topic == name
        )
        return answer.topics[0].error_code, places

    async def cordoned(self) -> list[str]:
        answer = await self._ask(DescribeLogDirsRequest(None), 5)
        return [Path(one.log_dir).name for one in answer.results if one.is_cordoned]

    async def until_cordoned(self, *names: str) -> None:
        """Placing goes by it at once; that it is shown takes a sync of the metadata."""
        async with asyncio.timeout(10):
            while await self.cordoned() != list(names):
                pass


def broker_of(folder: Path, **config: str) -> Broker:
    dirs = f"{folder}/a,{folder}/b"
    names = {name.replace("_", "."): value for name, value in config.items()}
    return Broker(config={"log.dirs": dirs, **names})


async def test_it_is_in_force_when_it_is_answered_and_over_a_restart(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as broker, client_of(broker) as client:
        cordoning = Cordoning(broker, client)
        assert await cordoning.set(f"{tmp_path}/a") == 0
        assert await cordoning.create("beside") == (0, {"b": 4})
        await cordoning.until_cordoned("a")
        assert await cordoning.set("*") == 0
        nowhere = ErrorCode.INVALID_REPLICATION_FACTOR, Counter[str]()
        assert await cordoning.create("nowhere") == nowhere
        assert await cordoning.set(f"{tmp_path}/c") == ErrorCode.INVALID_REQUEST
        await cordoning.until_cordoned("a", "b")

    async with broker_of(tmp_path) as broker, client_of(broker) as client:
        cordoning = Cordoning(broker, client)
        assert await cordoning.create("nowhere") == nowhere
        assert await cordoning.set(None) == 0
        assert await cordoning.create("anywhere") == (0, {"a": 4})
        await cordoning.until_cordoned()


async def test_the_start_says_it_and_what_is_set_goes_before(tmp_path: Path) -> None:
    everything = broker_of(tmp_path, cordoned_log_dirs="*")
    async with everything as broker, client_of(broker) as client:
        cordoning = Cordoning(broker, client)
        assert await cordoning.cordoned() == ["a", "b"]
        assert await cordoning.set(f"{tmp_path}/b") == 0
        assert await cordoning.create("t") == (0, {"a": 4})


async def test_a_level_that_comes_later_begins_with_what_is_cordoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster of Apache Kafka 4.2 has no record for it until it is upgraded."""
    monkeypatch.setitem(BOOTSTRAP_LEVELS, METADATA_VERSION, CORDONED_SINCE - 1)
    everything = broker_of(tmp_path, cordoned_log_dirs="*")
    async with everything as broker, client_of(broker) as client:
        cordoning = Cordoning(broker, client)
        assert await cordoning.cordoned() == []
        assert (await cordoning.create("before"))[0] == 0
        level = UpdateFeaturesRequest.FeatureUpdateKey(METADATA_VERSION, CORDONED_SINCE)
        answer = await client.connection.request(UpdateFeaturesRequest(feature_updates=[level]), 1)
        assert answer.error_code == 0
        assert (await cordoning.create("behind"))[0] == ErrorCode.INVALID_REPLICATION_FACTOR
        await cordoning.until_cordoned("a", "b")
