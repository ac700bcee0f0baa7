"""A node's metadata quorum on a simulated disk."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from ottla.broker.controller.activation import NewCluster, activate
from ottla.broker.controller.brokers import Registered, Registration, shutdown, unfence
from ottla.broker.controller.formatting import format_directories, read_bootstrap
from ottla.broker.controller.names import new_id
from ottla.broker.controller.topics import create_topics
from ottla.broker.log.directories import make_log_dir
from ottla.broker.metadata.image import EndpointImage, MetadataImage
from ottla.broker.metadata.publish import MetadataMachine
from ottla.broker.quorum.driver import Quorum
from ottla.broker.quorum.store import METADATA_DIRECTORY, QuorumSettings
from ottla.broker.quorum.voters import Endpoint, ReplicaKey, Voter
from ottla.config.broker import BrokerConfig, Layers
from ottla.protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.schema import Message
from ottla.testing.clock import SimClock
from ottla.testing.disk import SimDisk

T = TypeVar("T")

LOG_DIR = "data"
DIRECTORY_ID = bytes(6) + b"\x40\x00\x80" + bytes(6) + b"\xd1"
CONTROLLER = Endpoint("CONTROLLER", "localhost", 9093)
CONFIG = BrokerConfig.assemble(Layers())


class InlineExecutor(Executor):
    """Runs at once, on the caller's thread, so that calls on the disk have one order."""

    def submit(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except OSError as error:
            future.set_exception(error)
        return future


class Recorder:
    """Events by name."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def _note(self, event: str, **fields: Any) -> None:
        self.names.append(event)

    def is_enabled_for(self, level: int) -> bool:
        return True

    debug = info = warning = error = _note


class Node:
    """One node; `start` does what a broker does until it serves."""

    def __init__(
        self,
        disk: SimDisk,
        *,
        settings: QuorumSettings | None = None,
        clock: SimClock | None = None,
        executor: Executor | None = None,
        seed: int = 1,
        directory_id: bytes = DIRECTORY_ID,
        endpoint: Endpoint = CONTROLLER,
    ) -> None:
        self.disk = disk
        self.clock = clock or SimClock()
        self.events = Recorder()
        self.rng = random.Random(seed)
        self.fatal: list[BaseException] = []
        self.published: list[int] = []
        self.key = ReplicaKey(1, directory_id)
        self.endpoint = endpoint
        self.quorum = Quorum(
            disk,
            f"{LOG_DIR}/{METADATA_DIRECTORY}",
            local=self.key,
            endpoints=(endpoint,),
            machine=MetadataMachine(),
            settings=settings or QuorumSettings(),
            clock=self.clock,
            events=self.events,
            executor=executor or InlineExecutor(),
            on_fatal=self.fatal.append,
        )
        self.quorum.subscribe(lambda delta, image: self.published.append(image.offset))

    @property
    def image(self) -> MetadataImage:
        return self.quorum.image

    def format(self) -> bool:
        make_log_dir(self.disk, LOG_DIR)
        return format_directories(
            self.disk,
            [LOG_DIR],
            metadata_dir=LOG_DIR,
            voter=Voter(self.key, (self.endpoint,)),
            now_ms=self.clock.wall_ms(),
        )

    async def start(
        self,
        *,
        previous_epoch: int = -1,
        bootstrap: list[Message] | None = None,
        more_directories: Sequence[bytes] = (),
    ) -> Registered:
        self.format()
        await self.quorum.start()
        registered = await activate(
            self.quorum,
            new_cluster=NewCluster(bootstrap or read_bootstrap(self.disk, LOG_DIR)),
            registration=Registration(
                broker_id=1,
                incarnation_id=new_id(self.rng),
                listeners=[EndpointImage("PLAINTEXT", "localhost", 9092, 0)],
                directories=[self.key.directory_id, *more_directories],
                previous_epoch=previous_epoch,
            ),
            controller_listeners=[EndpointImage(*self.endpoint, 0)],
            events=self.events,
        )
        await self.quorum.submit(
            lambda image: unfence(image, 1, cordoned=[], clean=registered.clean)
        )
        return registered

    async def create(self, *names: str, partitions: int = 1) -> CreateTopicsResponse:
        topics = [CreateTopicsRequest.CreatableTopic(name, partitions, 1) for name in names]
        request = CreateTopicsRequest(topics)
        return await self.quorum.submit(
            lambda image: create_topics(image, request, config=CONFIG, rng=self.rng)
        )

    async def stop(self) -> None:
        await self.quorum.submit(lambda image: shutdown(image, 1))
        await self.quorum.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


async def running(disk: SimDisk | None = None, **options: Any) -> Node:
    node = Node(disk or SimDisk(), **options)
    await node.start()
    return node
