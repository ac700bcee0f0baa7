"""A broker without a network: real rooms, a simulated disk, requests as clients encode them."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from inspect import isawaitable
from typing import Any

from ottla.broker.controller import brokers
from ottla.broker.controller.activation import NewCluster, activate
from ottla.broker.controller.features import bootstrap_records
from ottla.broker.controller.formatting import format_directories
from ottla.broker.controller.mutation_quotas import MutationQuotas
from ottla.broker.coordinator.group.coordinator import GroupCoordinator, make_group_coordinator
from ottla.broker.coordinator.share.coordinator import ShareCoordinator, make_share_coordinator
from ottla.broker.coordinator.transaction.coordinator import (
    TransactionCoordinator,
    make_transaction_coordinator,
)
from ottla.broker.faults import Call, takes_dir_offline
from ottla.broker.handlers.auto_create import AutoCreation
from ottla.broker.handlers.context import Rooms, Session
from ottla.broker.handlers.coordinators import CoordinatorTopics
from ottla.broker.handlers.enlisting import Enlisting
from ottla.broker.handlers.fetch_forms import FetchForms
from ottla.broker.handlers.metadata import PartitionAnswers
from ottla.broker.handlers.producer_ids import ProducerIds
from ottla.broker.handlers.served import HANDLERS
from ottla.broker.handlers.setting_history import SettingHistory
from ottla.broker.handlers.topic_names import LogConfigs
from ottla.broker.log.log import Log
from ottla.broker.log.manager import LogManager
from ottla.broker.log.reserves import Reserves
from ottla.broker.log.unreadable import UnreadableRanges
from ottla.broker.lookups import Lookups
from ottla.broker.metadata.delta import Delta
from ottla.broker.metadata.image import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    DIRECTORY_LOST,
    NO_LEADER,
    TOPIC_RESOURCE,
    EndpointImage,
    MetadataImage,
)
from ottla.broker.metadata.publish import MetadataMachine
from ottla.broker.quorum.driver import Quorum
from ottla.broker.quorum.store import METADATA_DIRECTORY, QuorumSettings
from ottla.broker.quorum.voters import Endpoint, ReplicaKey, Voter
from ottla.broker.replication.deadlines import Deadlines
from ottla.broker.replication.fetch_session import FetchSessions
from ottla.broker.replication.moves import ReplicaMoves
from ottla.broker.replication.publishing import Publisher
from ottla.broker.replication.replicas import Replicas
from ottla.broker.share.partitions import SharePartitions
from ottla.config.broker import BrokerConfig, Layers
from ottla.config.topic import effective_log_config
from ottla.config.types import LogConfig
from ottla.protocol.api import SERVED
from ottla.protocol.codec import decoder, encoder
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata_records import PartitionChangeRecord
from ottla.protocol.messages.topics import CreateTopicsRequest
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from ottla.protocol.schema import Message
from ottla.testing.clock import SimClock
from ottla.testing.disk import SimDisk

NODE_ID = 1
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
DATA_DIR = "/data"
LISTENER = "PLAINTEXT"
SECOND_MS = 1000
START_MS = 1_700_000_000_000
API_OF = {api.request: api for api in SERVED.values()}


class RecordedEvents:
    """Events in the order in which they were told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []

    def named(self, name: str) -> list[dict[str, Any]]:
        return [fields for event, fields in self.told if event == name]

    def is_enabled_for(self, level: int) -> bool:
        return True

    def debug(self, event: str, **fields: Any) -> None:
        self.told.append((event, fields))

    info = warning = error = debug


class House:
    """`async with House({"num.partitions": "3"}) as house: await house.ask(request, version)`."""

    rooms: Rooms
    session: Session

    def __init__(
        self, config: Mapping[str, str] | None = None, *, disk: SimDisk | None = None
    ) -> None:
        self.events = RecordedEvents()
        self.disk = SimDisk() if disk is None else disk
        self.background: set[asyncio.Task[None]] = set()
        self.log_configs = LogConfigs()
        self._static = dict(config or {})
        self._config = BrokerConfig.assemble(
            Layers(static={"node.id": str(NODE_ID), "log.dirs": DATA_DIR, **self._static})
        )
        self._clock = SimClock(wall_ms=START_MS)
        self._rng = random.Random(7)
        self.lookup_clock_s: Callable[[], float] = lambda: 0.0
        self._fatal: list[BaseException] = []
        self._open = False

    async def __aenter__(self) -> House:
        self._workers = ThreadPoolExecutor(2)
        self.lookup_workers: Executor = self._workers
        logs = self._load_logs()
        quorum = self._make_quorum(logs)
        replicas = Replicas(
            loop=asyncio.get_running_loop(),
            clock=self._clock,
            events=self.events,
            workers=self._workers,
            on_disk_failed=self._disk_failed,
            on_fatal=self._fatal.append,
        )
        groups, share_state = self._make_coordinators(replicas)
        transactions = self._make_transactions(replicas, groups, producer_ids := ProducerIds())
        lookups = Lookups(self._in_worker, lambda: self.lookup_clock_s())
        self.rooms = Rooms(
            config=self._config,
            clock=self._clock,
            events=self.events,
            rng=self._rng,
            logs=logs,
            quorum=quorum,
            replicas=replicas,
            moves=self._make_moves(logs, replicas),
            fetch_sessions=FetchSessions(slots=10, rng=self._rng, partition_count=replicas.count),
            fetch_forms=FetchForms(),
            deadlines=Deadlines(asyncio.get_running_loop()),
            producer_ids=producer_ids,
            auto_creation=AutoCreation(self._spawn),
            groups=groups,
            share_state=share_state,
            transactions=transactions,
            enlisting=Enlisting(transactions),
            shares=self._make_shares(replicas, groups, share_state, lookups),
            coordinator_topics=CoordinatorTopics(),
            mutation_quotas=MutationQuotas(11_000),
            unreadable=UnreadableRanges(self.events),
            setting_history=SettingHistory(self._clock, self.events),
            partition_answers=PartitionAnswers(),
            lookups=lookups,
            reserves=Reserves(self.disk, self.events),
        )
        self.session = Session(self.rooms, LISTENER, "127.0.0.1", 9092, "127.0.0.1:50000")
        await quorum.start()
        publisher = Publisher(
            node_id=NODE_ID,
            logs=logs,
            replicas=replicas,
            config_of=self._log_config,
            events=self.events,
            in_worker=partial(asyncio.get_running_loop().run_in_executor, None),
        )
        publisher.open_all(quorum.image)
        self.rooms.share_state.take_up(quorum.image)
        self.rooms.groups.take_up(quorum.image)
        self.rooms.transactions.take_up(quorum.image)

        async def apply(delta: Delta, image: MetadataImage, show: Callable[[], None]) -> None:
            await publisher.apply(delta, image, show)
            self.rooms.share_state.published(delta, image)
            self.rooms.shares.published(delta)
            self.rooms.groups.published(delta, image)
            self.rooms.transactions.published(delta, image)

        quorum.apply_by(apply)
        quorum.subscribe(self._apply_dynamic)
        await self._register(logs, quorum)
        self._open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._open:
            return
        self._open = False
        for task in self.background:
            task.cancel()
        await asyncio.gather(*self.background, return_exceptions=True)
        broker_epoch = self.rooms.image.cluster.brokers[NODE_ID].epoch
        self.rooms.deadlines.close()
        self.rooms.transactions.close()
        self.rooms.groups.close()
        self.rooms.shares.close()
        self.rooms.share_state.close()
        await self.rooms.moves.close()
        await self.rooms.replicas.close()
        await self.rooms.quorum.stop()
        self.rooms.logs.shutdown(broker_epoch)
        self._workers.shutdown()

        assert self._fatal == []

    def restarted(self) -> _Restarted:
        """The same disk under a new broker, after this one stops cleanly."""
        return _Restarted(self)

    async def ask(self, request: Message, version: int) -> Any:
        """The answer as a client decodes it, to the request as it encodes it."""
        api = API_OF[type(request)]
        assert api.min_version <= version <= api.max_version
        asked = _through_wire(request, version)
        answer = HANDLERS[api.key](self.session, asked, version)
        if isawaitable(answer):
            answer = await answer
        return _through_wire(answer, version)

    async def create(
        self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> bytes:
        """Creates a topic and returns its id."""
        wanted = [
            CreateTopicsRequest.CreatableTopicConfig(key, value)
            for key, value in (configs or {}).items()
        ]
        topic = CreateTopicsRequest.CreatableTopic(name, partitions, 1, [], wanted)
        answer = await self.ask(CreateTopicsRequest([topic]), 7)
        (result,) = answer.topics
        assert result.error_code == 0, result.error_message
        topic_id: bytes = result.topic_id
        return topic_id

    def take_fatal(self) -> list[BaseException]:
        """What would have ended the broker, and is no fault of the test's."""
        taken, self._fatal[:] = self._fatal[:], []
        return taken

    async def append(
        self,
        topic: str,
        partition: int,
        values: list[bytes],
        *,
        timestamp: int = START_MS,
        transactional: bool = False,
    ) -> None:
        """Appends one batch, its records one second apart, and waits until it is visible."""
        records = [
            Record(offset=index, timestamp=timestamp + index * SECOND_MS, key=None, value=value)
            for index, value in enumerate(values)
        ]
        batch = build_batch(
            records,
            transactional=transactional,
            producer_id=9 if transactional else -1,
            producer_epoch=0 if transactional else -1,
            base_sequence=0 if transactional else -1,
        )
        await self.append_batch(topic, partition, memoryview(batch))

    async def append_batch(self, topic: str, partition: int, batch: memoryview) -> None:
        """Appends a batch as a client sends it, and waits until it is visible."""
        led = self.rooms.replicas.get(topic, partition)
        assert led is not None
        result = self.rooms.replicas.append(led, batch)
        if led.log.high_watermark <= result.last_offset:
            visible = _Visible()
            self.rooms.replicas.await_commit(
                led, last_offset=result.last_offset, timeout_ms=5000, listener=visible, part=None
            )
            await visible.future

    async def lose_leader(self, topic: str, partition: int) -> None:
        await self._change(topic, partition, leader=NO_LEADER)

    async def raise_leader_epoch(self, topic: str, partition: int) -> None:
        await self._change(topic, partition, leader=NODE_ID)

    async def lose_directory(self, topic: str, partition: int) -> None:
        await self._change(topic, partition, directories=[DIRECTORY_LOST])

    async def settle(self) -> None:
        """Waits for what runs in the background."""
        while self.background:
            await asyncio.gather(*self.background)

    def _in_worker(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().run_in_executor(self.lookup_workers, work)

    def fail_disk(self) -> None:
        """The log directory goes offline, as after a failed sync."""
        self.rooms.logs.faults.failed(DATA_DIR, Call.SYNC, OSError(errno.EIO, "input/output error"))

    def _load_logs(self) -> LogManager:
        logs = self._make_logs()
        logs.load(config_of=lambda name: self.log_configs.of(name, self._config, {}))
        return logs

    def _make_logs(self) -> LogManager:
        return LogManager(
            self.disk,
            list(self._config.data_dirs),
            clock=self._clock,
            events=self.events,
            rng=self._rng,
            node_id=NODE_ID,
            cluster_id=CLUSTER_ID,
            default_config=effective_log_config(self._config, {}),
        )

    def _make_moves(self, logs: LogManager, replicas: Replicas) -> ReplicaMoves:
        async def nothing() -> None: ...

        return ReplicaMoves(
            logs=logs,
            replicas=replicas,
            clock=self._clock,
            events=self.events,
            rng=self._rng,
            in_worker=partial(asyncio.get_running_loop().run_in_executor, self._workers),
            bytes_per_second=lambda: 1 << 30,
            on_moved=nothing,
        )

    def _make_shares(
        self,
        replicas: Replicas,
        groups: GroupCoordinator,
        share_state: ShareCoordinator,
        lookups: Lookups,
    ) -> SharePartitions:
        return SharePartitions(
            loop=asyncio.get_running_loop(),
            clock=self._clock,
            history=groups.history,
            replicas=replicas,
            coordinator=share_state,
            config=lambda: self.rooms.config,
            image=lambda: self.rooms.image,
            lookups=lookups,
            spawn=self._spawn,
        )

    def _make_transactions(
        self, replicas: Replicas, groups: GroupCoordinator, producer_ids: ProducerIds
    ) -> TransactionCoordinator:
        return make_transaction_coordinator(
            config=lambda: self.rooms.config,
            image=lambda: self.rooms.image,
            loop=asyncio.get_running_loop(),
            clock=self._clock,
            events=self.events,
            replicas=replicas,
            workers=self._workers,
            spawn=self._spawn,
            groups=groups,
            take_producer_id=producer_ids.take,
        )

    def _make_coordinators(self, replicas: Replicas) -> tuple[GroupCoordinator, ShareCoordinator]:
        groups = make_group_coordinator(
            config=lambda: self.rooms.config,
            image=lambda: self.rooms.image,
            loop=asyncio.get_running_loop(),
            clock=self._clock,
            events=self.events,
            rng=self._rng,
            replicas=replicas,
            workers=self._workers,
            spawn=self._spawn,
        )
        share_state = make_share_coordinator(
            config=lambda: self.rooms.config,
            image=lambda: self.rooms.image,
            loop=asyncio.get_running_loop(),
            clock=self._clock,
            events=self.events,
            history=groups.history,
            replicas=replicas,
            workers=self._workers,
            spawn=self._spawn,
        )
        return groups, share_state

    def _make_quorum(self, logs: LogManager) -> Quorum:
        local = ReplicaKey(NODE_ID, logs.directory_ids[DATA_DIR])
        endpoints = (Endpoint("CONTROLLER", "127.0.0.1", 9093),)
        format_directories(
            self.disk,
            list(self._config.data_dirs),
            metadata_dir=DATA_DIR,
            voter=Voter(local, endpoints),
            now_ms=self._clock.wall_ms(),
        )
        return Quorum(
            self.disk,
            f"{DATA_DIR}/{METADATA_DIRECTORY}",
            local=local,
            endpoints=endpoints,
            machine=MetadataMachine(),
            settings=QuorumSettings(),
            clock=self._clock,
            events=self.events,
            executor=self._workers,
            on_fatal=self._fatal.append,
        )

    async def _register(self, logs: LogManager, quorum: Quorum) -> None:
        registered = await activate(
            quorum,
            new_cluster=NewCluster(bootstrap_records()),
            registration=brokers.Registration(
                broker_id=NODE_ID,
                incarnation_id=self._rng.randbytes(16),
                listeners=[EndpointImage(LISTENER, "127.0.0.1", 9092, 0)],
                directories=list(logs.directory_ids.values()),
                previous_epoch=logs.previous_broker_epoch,
            ),
            controller_listeners=[EndpointImage("CONTROLLER", "127.0.0.1", 9093, 0)],
            events=self.events,
        )
        await quorum.submit(
            lambda image: brokers.unfence(image, NODE_ID, cordoned=[], clean=registered.clean)
        )

    def _apply_dynamic(self, delta: Delta, image: MetadataImage) -> None:
        self.rooms.config = self._config.with_dynamic(
            default=image.configs.get(BROKER_RESOURCE, ALL_BROKERS),
            broker=image.configs.get(BROKER_RESOURCE, str(NODE_ID)),
        )
        self.rooms.mutation_quotas.update(image.client_quotas)

    def _log_config(self, image: MetadataImage, topic: str) -> LogConfig:
        overrides = image.configs.get(TOPIC_RESOURCE, topic)
        return self.log_configs.of(topic, self.rooms.config, overrides)

    def _disk_failed(self, log: Log, call: Call, error: OSError) -> None:
        if takes_dir_offline(call, error):
            self._fatal.append(error)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.background.add(task)
        task.add_done_callback(self.background.discard)

    async def _change(self, topic: str, partition: int, **fields: Any) -> None:
        topic_id = self.rooms.image.topics.by_name[topic].topic_id
        record = PartitionChangeRecord(partition_id=partition, topic_id=topic_id, **fields)
        await self.rooms.quorum.submit(lambda image: ([record], None))


class _Restarted:
    def __init__(self, before: House) -> None:
        self._before = before
        self._house = House(before._static, disk=before.disk)

    async def __aenter__(self) -> House:
        await self._before.__aexit__()
        return await self._house.__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await self._house.__aexit__()


class _Visible:
    """Waits for one append."""

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def committed(self, part: object) -> None:
        self.future.set_result(None)

    def failed(self, part: object, code: ErrorCode) -> None:
        raise AssertionError(code)


def _through_wire(message: Any, version: int) -> Any:
    out = bytearray()
    encoder(type(message), version)(message, out, [])
    decoded, end = decoder(type(message), version)(memoryview(out), 0)
    assert end == len(out)
    return decoded
