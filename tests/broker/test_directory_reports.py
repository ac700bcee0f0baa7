"""Which of several log dirs holds what, as the controller is told it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ottla.broker.controller.brokers import assign_directories
from ottla.broker.controller.topics import create_topics
from ottla.broker.log.log import Log
from ottla.broker.metadata.image import DIRECTORY_LOST
from ottla.protocol.messages.topics import CreateTopicsRequest
from ottla.testing.embedded import Broker


class Reporting:
    """A broker of two log dirs, and what its image says of where its partitions lie."""

    def __init__(self, broker: Broker) -> None:
        self.running = broker.running
        self.ids = self.running.logs.directory_ids

    async def create(self, name: str, partitions: int = 4) -> None:
        topic = CreateTopicsRequest.CreatableTopic(name, partitions, 1)
        rooms = self.running.rooms
        await rooms.quorum.submit(
            lambda image: create_topics(
                image, CreateTopicsRequest([topic]), config=rooms.config, rng=rooms.rng
            )
        )

    async def say(self, name: str, directory: bytes) -> None:
        """Has the image say that the first partition of a topic lies there."""
        quorum = self.running.quorum
        place = (quorum.image.topics.by_name[name].topic_id, 0)
        await quorum.submit(
            partial(assign_directories, broker_id=1, directories={place: directory})
        )

    def is_right(self, name: str) -> bool:
        partitions = self.running.quorum.image.topics.by_name[name].partitions
        return all(
            partition.directory_of(1) == self.ids[self.running.logs.dir_of(self.log(name, index))]
            for index, partition in partitions.items()
        )

    def other_dir(self, name: str) -> bytes:
        own = self.running.logs.dir_of(self.log(name))
        (other,) = (one for path, one in self.ids.items() if path != own)
        return other

    def log(self, name: str, index: int = 0) -> Log:
        log = self.running.logs.get(name, index)
        assert log is not None
        return log


def broker_of(folder: Path) -> Broker:
    return Broker(config={"log.dirs": f"{folder}/a,{folder}/b"})


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


async def test_of_a_change_only_what_it_changed_is_looked_at(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as broker:
        reporting = Reporting(broker)
        await reporting.create("first")
        await until(lambda: reporting.is_right("first"))
        await reporting.say("first", reporting.other_dir("first"))
        await reporting.create("second")
        await until(lambda: reporting.is_right("second"))

        assert not reporting.is_right("first")


async def test_what_the_image_says_to_be_lost_is_told(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as broker:
        reporting = Reporting(broker)
        await reporting.create("first")
        await until(lambda: reporting.is_right("first"))
        await reporting.say("first", DIRECTORY_LOST)

        await until(lambda: reporting.is_right("first"))


async def test_behind_a_refused_report_all_is_told_with_the_next_change(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as broker:
        reporting = Reporting(broker)
        await reporting.create("first")
        await until(lambda: reporting.is_right("first"))
        await reporting.say("first", reporting.other_dir("first"))
        reports, quorum = reporting.running._reports, reporting.running.quorum
        quorum._closed = True  # as a full disk: every command is refused
        await reports.assign()
        assert reports.is_behind
        quorum._closed = False
        await reporting.create("second")
        await until(lambda: reporting.is_right("first") and reporting.is_right("second"))
        await until(lambda: not reports.is_behind)


async def test_changes_that_come_together_are_all_told(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as broker:
        reporting = Reporting(broker)
        names = [f"t{number}" for number in range(20)]
        await asyncio.gather(*(reporting.create(name, 3) for name in names))

        await until(lambda: all(reporting.is_right(name) for name in names))
