"""The composition root: builds the rooms, joins them, starts and stops them. No rules here.

The order of a start: bind the ports; take the log dirs; the metadata log, which says what there is;
the logs that it names; leadership of each; the registration; serve the ports; the jobs. A stop goes
the other way and ends with the mark of a clean stop in each log dir.
"""

from __future__ import annotations

import asyncio
import errno
import random
import secrets
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from heapq import merge
from operator import itemgetter
from typing import Any, TypeVar

from ottla.broker import open_files
from ottla.broker.clock import SystemClock
from ottla.broker.controller.activation import NewCluster, activate, check_log_dirs
from ottla.broker.controller.brokers import Registration, shutdown, unfence
from ottla.broker.controller.formatting import format_directories, read_bootstrap
from ottla.broker.controller.mutation_quotas import MutationQuotas
from ottla.broker.coordinator.group.coordinator import GroupCoordinator, make_group_coordinator
from ottla.broker.coordinator.share.coordinator import ShareCoordinator, make_share_coordinator
from ottla.broker.coordinator.transaction.coordinator import (
    TransactionCoordinator,
    make_transaction_coordinator,
)
from ottla.broker.directory_reports import DirectoryReports
from ottla.broker.faults import Call
from ottla.broker.handlers.auto_create import AutoCreation
from ottla.broker.handlers.context import Rooms
from ottla.broker.handlers.coordinators import CoordinatorTopics
from ottla.broker.handlers.enlisting import Enlisting
from ottla.broker.handlers.fetch_forms import FetchForms
from ottla.broker.handlers.metadata import PartitionAnswers
from ottla.broker.handlers.produce_forms import ProduceForms
from ottla.broker.handlers.producer_ids import ProducerIds
from ottla.broker.handlers.served import build_table
from ottla.broker.handlers.setting_history import SettingHistory
from ottla.broker.handlers.topic_names import LogConfigs
from ottla.broker.jobs import schedule_jobs
from ottla.broker.log.log import Log
from ottla.broker.log.manager import LogManager
from ottla.broker.log.reserves import Reserves
from ottla.broker.log.unreadable import UnreadableRanges
from ottla.broker.lookups import Lookups
from ottla.broker.measures import Measures
from ottla.broker.metadata.delta import Delta
from ottla.broker.metadata.image import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    EndpointImage,
    MetadataImage,
)
from ottla.broker.metadata.publish import MetadataMachine
from ottla.broker.metadata.records import METADATA_VERSION
from ottla.broker.network.limits import Limits, limit_accepting
from ottla.broker.network.listening import Listening
from ottla.broker.network.server import Server
from ottla.broker.ports import Events
from ottla.broker.posix import PosixDisk, raise_descriptor_limit
from ottla.broker.quorum.driver import Quorum
from ottla.broker.quorum.store import METADATA_DIRECTORY, QuorumSettings
from ottla.broker.quorum.voters import Endpoint, ReplicaKey, Voter
from ottla.broker.readiness import Readiness
from ottla.broker.replication.deadlines import Deadlines
from ottla.broker.replication.fetch_session import FetchSessions
from ottla.broker.replication.moves import ReplicaMoves
from ottla.broker.replication.publishing import Publisher
from ottla.broker.replication.replicas import Replicas
from ottla.broker.scheduler import Scheduler, in_worker
from ottla.broker.share.partitions import SharePartitions
from ottla.broker.telemetry.http import Pages, TelemetryServer, not_served
from ottla.config.broker import BrokerConfig
from ottla.config.passing_over import with_settings
from ottla.config.topic import effective_log_config
from ottla.config.types import LOOPBACK_OF, Listener, LogConfig, written_here
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.wire import uuid_text

STOP_GRACE_S = 0.5
"""A stop waits this long for requests that are being answered."""
WORKER_THREADS = 6
"""Two for conversions and two for look-ups, which may take seconds, at most; so cold reads, the
metadata log and checkpoints find two that are soon free."""
UNMADE_INTERVAL_MS = 5000
"""How often a partition is tried again for which its disk had no room."""
MS_PER_S = 1000
PLAINTEXT = 0
DEFAULT_CONTROLLER = Listener("CONTROLLER", "localhost", 9093)


T = TypeVar("T")


class Broker:
    """One broker on the running loop: `await start()`, then `await stop()`.

    `failed` is done, with the error, when the broker cannot go on: a broken invariant, or storage
    without which it cannot serve. `stop` still closes what can be closed, and raises that error.
    """

    def __init__(self, config: BrokerConfig, *, events: Events) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._static = config
        self._events = events
        self._clock = SystemClock()
        self._rng = random.Random(secrets.randbits(128))
        self._disk = PosixDisk()
        self._workers = ThreadPoolExecutor(WORKER_THREADS, thread_name_prefix="ottla-worker")
        self._open_files_max = raise_descriptor_limit()
        self._broker_epoch = -1
        self._log_configs = LogConfigs()
        self._listening = Listening()
        self._telemetry: TelemetryServer | None = None
        self.failed: asyncio.Future[BaseException] = self._loop.create_future()
        self.listeners: list[Listener] = []
        self.telemetry_port: int | None = None
        self._closing: asyncio.Task[None] | None = None
        self.scheduler = Scheduler(self._job_failed)
        self.logs = self._make_logs()
        self.replicas = Replicas(
            loop=self._loop,
            clock=self._clock,
            events=events,
            workers=self._workers,
            on_disk_failed=self._disk_failed,
            on_fatal=self.fail,
        )
        self._reserves = Reserves(self._disk, events)
        self._reserves.on_change = self._room_has_changed
        self._publisher = Publisher(
            node_id=config.node_id,
            logs=self.logs,
            replicas=self.replicas,
            config_of=self._log_config,
            events=events,
            in_worker=partial(in_worker, workers=self._workers),
        )
        self.moves = self._make_moves()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the first listener, for a client on this machine."""
        return written_here(self.listeners[0].host, self.listeners[0].port)

    @property
    def advertised_listeners(self) -> list[Listener]:
        """Where clients are told to go, of the listeners for which that is set."""
        told = self._static.advertised
        return [
            replace(told[bound.name], port=told[bound.name].port or bound.port)
            for bound in self.listeners
            if bound.name in told
        ]

    @property
    def exposed_listeners(self) -> list[Listener]:
        """Those that other machines may reach."""
        return self._listening.exposed

    @property
    def telemetry_address(self) -> str | None:
        """`host:port` of the telemetry, for who asks on this machine."""
        telemetry = self._telemetry
        return None if telemetry is None else written_here(*telemetry.address)

    @property
    def telemetry_is_exposed(self) -> bool:
        """Whether other machines may reach the telemetry."""
        return self._telemetry is not None and self._telemetry.is_exposed

    @property
    def connections_max(self) -> int:
        """What the files that the process may have open allow."""
        return open_files.connections_max(self._open_files_max)

    async def start(self) -> None:
        """Serves when it returns. Raises LogDirError, QuorumError or OSError, with a sentence."""
        try:
            # A port on which somebody listens must cost nothing: no file is written, no mark taken
            # away. One that somebody has bound as we do, and no more, is found at the end.
            await self._bind()
            self.logs.prepare()
            self._reserves.begin(one for one in self.logs.dirs if one not in self.logs.offline_dirs)
            quorum = self.quorum = self._make_quorum()
            quorum.on_refused = self._metadata_refused
            await quorum.start()
            check_log_dirs(quorum.image, len(self._static.data_dirs))  # before a mark is taken away
            self._reports = DirectoryReports(
                quorum=quorum, logs=self.logs, publisher=self._publisher, events=self._events
            )
            self.rooms = self._make_rooms()
            self._configure(self.quorum.image)
            self.server = self._make_server()
            self._limit_clients(self.quorum.image)
            await self._loop.run_in_executor(self._workers, self._load_logs)
            self._publisher.open_all(self.quorum.image)
            self.moves.resume()
            self.quorum.apply_by(self._apply)
            self.quorum.subscribe(self._published)
            await self._register()
            # Behind the new leader epochs of an unclean stop, or all would be read twice.
            self._take_up_coordinators()
            await self.server.serve()
            self.measures = Measures(self.rooms, self.server, self._loop)
            await self._serve_telemetry()
        except BaseException:
            await self._close(clean=False)
            raise
        schedule_jobs(self.scheduler, self.rooms, self.server)
        self.scheduler.every("unmade-partitions", UNMADE_INTERVAL_MS, self.lead_unmade)
        self.measures.start()
        if self._telemetry is None and self._static.ottla_telemetry_port >= 0:
            # Behind the start, which may have had a worse thing to say.
            self._events.warning(
                "telemetry_not_served",
                address=self._static.telemetry_address,
                reason="the port is in use; set ottla.telemetry.port to serve it elsewhere",
            )

    async def stop(self) -> None:
        """Answers what can be answered, syncs, marks clean; raises what had ended the broker."""
        await self._close(clean=True)
        if self.failed.done():
            raise self.failed.result()

    # the start, in order

    async def _bind(self) -> None:
        config = self._static
        self.listeners = await self._listening.bind(config.broker_listeners)
        if config.ottla_telemetry_port < 0:
            return
        telemetry = TelemetryServer()
        try:
            self.telemetry_port = await telemetry.bind(
                config.ottla_telemetry_host, config.ottla_telemetry_port
            )
        except OSError as error:
            self._do_without_telemetry(error)
        else:
            self._telemetry = telemetry

    def _make_logs(self) -> LogManager:
        config = self._static
        logs = LogManager(
            self._disk,
            config.data_dirs,
            clock=self._clock,
            events=self._events,
            rng=self._rng,
            node_id=config.node_id,
            cluster_id=config.ottla_cluster_id,
            new_cluster_id=uuid_text(secrets.token_bytes(16)),
            default_config=effective_log_config(config, {}),
            metadata_dir=config.metadata_dir,
        )
        logs.post_error = self._loop.call_soon_threadsafe
        logs.faults.on_offline(partial(self._on_loop, self._dir_offline))
        logs.faults.on_lost(partial(self._on_loop, self.fail))
        logs.faults.on_full(
            lambda path, error: self._on_loop(partial(self._reserves.refused, path), error)
        )
        return logs

    def _make_quorum(self) -> Quorum:
        config = self._static
        directory_id = self.logs.directory_ids[config.metadata_dir]
        local = ReplicaKey(config.node_id, directory_id)
        controller = (config.controller_listeners or (DEFAULT_CONTROLLER,))[0]
        endpoints = (Endpoint(controller.name, controller.host or "localhost", controller.port),)
        format_directories(
            self._disk,
            [one for one in config.data_dirs if one not in self.logs.offline_dirs],
            metadata_dir=config.metadata_dir,
            voter=Voter(local, endpoints),
            now_ms=self._clock.wall_ms(),
        )
        return Quorum(
            self._disk,
            f"{config.metadata_dir}/{METADATA_DIRECTORY}",
            local=local,
            endpoints=endpoints,
            machine=MetadataMachine(),
            settings=QuorumSettings(
                segment_bytes=config.metadata_log_segment_bytes,
                segment_ms=config.metadata_log_segment_ms,
                snapshot_bytes=config.metadata_log_max_record_bytes_between_snapshots,
                snapshot_interval_ms=config.metadata_log_max_snapshot_interval_ms,
                retention_bytes=config.metadata_max_retention_bytes,
                retention_ms=config.metadata_max_retention_ms,
            ),
            clock=self._clock,
            events=self._events,
            executor=self._workers,
            on_fatal=self._quorum_failed,
        )

    def _make_rooms(self) -> Rooms:
        slots = self._static.max_incremental_fetch_session_cache_slots
        groups = self._make_groups()
        share_state = self._make_share_state(groups)
        producer_ids = ProducerIds()
        transactions = self._make_transactions(groups, producer_ids)
        lookups = Lookups(partial(self._loop.run_in_executor, self._workers))
        return Rooms(
            config=self._static,
            clock=self._clock,
            events=self._events,
            rng=self._rng,
            logs=self.logs,
            quorum=self.quorum,
            replicas=self.replicas,
            moves=self.moves,
            fetch_sessions=FetchSessions(
                slots=slots, rng=self._rng, partition_count=self.replicas.count
            ),
            fetch_forms=FetchForms(),
            deadlines=Deadlines(self._loop),
            producer_ids=producer_ids,
            auto_creation=AutoCreation(self._spawn),
            groups=groups,
            share_state=share_state,
            transactions=transactions,
            enlisting=Enlisting(transactions),
            shares=SharePartitions(
                loop=self._loop,
                clock=self._clock,
                history=groups.history,
                replicas=self.replicas,
                coordinator=share_state,
                config=lambda: self.rooms.config,
                image=lambda: self.quorum.image,
                lookups=lookups,
                spawn=self._spawn,
            ),
            coordinator_topics=CoordinatorTopics(),
            mutation_quotas=MutationQuotas(
                self._static.controller_quota_window_num
                * self._static.controller_quota_window_size_seconds
                * MS_PER_S
            ),
            unreadable=UnreadableRanges(self._events),
            setting_history=SettingHistory(self._clock, self._events),
            partition_answers=PartitionAnswers(),
            lookups=lookups,
            reserves=self._reserves,
        )

    def _make_groups(self) -> GroupCoordinator:
        return make_group_coordinator(
            config=lambda: self.rooms.config,
            image=lambda: self.quorum.image,
            loop=self._loop,
            clock=self._clock,
            events=self._events,
            rng=self._rng,
            replicas=self.replicas,
            workers=self._workers,
            spawn=self._spawn,
        )

    def _make_share_state(self, groups: GroupCoordinator) -> ShareCoordinator:
        return make_share_coordinator(
            config=lambda: self.rooms.config,
            image=lambda: self.quorum.image,
            loop=self._loop,
            clock=self._clock,
            events=self._events,
            history=groups.history,
            replicas=self.replicas,
            workers=self._workers,
            spawn=self._spawn,
        )

    def _make_transactions(
        self, groups: GroupCoordinator, producer_ids: ProducerIds
    ) -> TransactionCoordinator:
        def take_producer_id() -> int:
            if not producer_ids.left:
                self._spawn(producer_ids.refill_beside(self.rooms), "producer-ids")
            return producer_ids.take()

        return make_transaction_coordinator(
            config=lambda: self.rooms.config,
            image=lambda: self.quorum.image,
            loop=self._loop,
            clock=self._clock,
            events=self._events,
            replicas=self.replicas,
            workers=self._workers,
            spawn=self._spawn,
            groups=groups,
            take_producer_id=take_producer_id,
        )

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.server.spawn(work, name)

    def _make_moves(self) -> ReplicaMoves:
        def bytes_per_second() -> int:
            return self.rooms.config.replica_alter_log_dirs_io_max_bytes_per_second

        return ReplicaMoves(
            logs=self.logs,
            replicas=self.replicas,
            clock=self._clock,
            events=self._events,
            rng=self._rng,
            in_worker=partial(self._loop.run_in_executor, self._workers),
            bytes_per_second=bytes_per_second,
            on_moved=lambda: self._reports.assign(),
        )

    def _make_server(self) -> Server:
        table = build_table()
        server = Server(
            listening=self._listening,
            rooms=self.rooms,
            table=table,
            forms=ProduceForms(self.replicas, table[ApiKey.PRODUCE].encoders),
            limits=Limits.of(self.rooms.config, self._open_files_max),
            workers=self._workers,
            events=self._events,
            on_fatal=self.fail,
        )
        limit_accepting(server.accept_rates, self.rooms.config)
        return server

    def _load_logs(self) -> None:
        image = self.quorum.image
        topics = image.topics.by_name

        def topic_id_of(name: str) -> bytes | None:
            topic = topics.get(name)
            return None if topic is None else topic.topic_id

        # As it is in force, which the metadata may say.
        self.logs.recovery_threads = self.rooms.config.num_recovery_threads_per_data_dir
        self.logs.load(config_of=partial(self._log_config, image), topic_id_of=topic_id_of)

    async def _register(self) -> None:
        config = self._static
        listeners = [self._endpoint(listener) for listener in self.listeners]
        controllers = [
            EndpointImage(one.name, one.host or "localhost", one.port, PLAINTEXT)
            for one in config.controller_listeners or (DEFAULT_CONTROLLER,)
        ]
        registered = await activate(
            self.quorum,
            new_cluster=NewCluster(
                read_bootstrap(self._disk, config.metadata_dir), config.min_insync_replicas
            ),
            registration=Registration(
                config.node_id,
                secrets.token_bytes(16),
                listeners,
                list(self.logs.directory_ids.values()),
                rack=config.broker_rack,
                previous_epoch=self.logs.previous_broker_epoch,
            ),
            controller_listeners=controllers,
            events=self._events,
        )
        self._broker_epoch = registered.epoch
        clean = registered.clean and not self.logs.unclean_dirs
        cordoned = self._reports.cordoned(self.rooms.config)
        await self.quorum.submit(
            lambda image: unfence(image, config.node_id, cordoned=cordoned, clean=clean)
        )
        await self._reports.assign()

    def _take_up_coordinators(self) -> None:
        for coordinator in self.rooms.coordinators:
            coordinator.take_up(self.quorum.image)

    async def lead_unmade(self) -> None:
        """Leads what can be made now that there is room again."""
        is_made = await self._publisher.make_unmade(lambda: self.quorum.image)
        if is_made:
            self._take_up_coordinators()
        if is_made or self._reports.is_behind:
            await self._reports.assign()

    def _endpoint(self, bound: Listener) -> EndpointImage:
        shown = self._static.advertised.get(bound.name, bound)
        host = "localhost" if shown.host in LOOPBACK_OF else shown.host
        return EndpointImage(bound.name, host, shown.port or bound.port, PLAINTEXT)

    async def _serve_telemetry(self) -> None:
        telemetry = self._telemetry
        if telemetry is None:
            return
        readiness = Readiness(self.rooms, self._disk, self._workers)
        pages = Pages(
            lines=self.measures.registry.lines,
            unready=readiness.unready,
            happened=self._happened,
        )
        try:
            await telemetry.serve(pages)
        except OSError as error:  # who has bound the port as well was quicker to listen
            self._telemetry = self.telemetry_port = None
            await telemetry.stop()
            self._do_without_telemetry(error)

    def _happened(self, group_id: str | None) -> Iterator[Mapping[str, Any]]:
        """What is told of a group, or of all groups, transactions and settings, by its time."""
        told = [
            self.rooms.groups.history.told_of(group_id),
            self.rooms.setting_history.told_of(group_id),
        ]
        if group_id is None:
            told.append(self.rooms.transactions.history.told_of(None))
        return merge(*told, key=itemgetter("wall_ms"))

    def _do_without_telemetry(self, error: OSError) -> None:
        """Raises OSError, with what to do, if somebody asked for just this port."""
        is_asked_for = "ottla_telemetry_port" in self._static.model_fields_set
        if error.errno != errno.EADDRINUSE or is_asked_for:
            raise not_served(self._static.telemetry_address, error) from error
        # Another broker of this machine has it; nobody asked this one for just that port.

    # the end

    async def _close(self, *, clean: bool) -> None:
        """Ends every part, once. Whoever is cancelled meanwhile, however often, goes when that is
        done: the directories are not given back under a sync."""
        closing = self._closing = self._closing or self._loop.create_task(self._end_parts(clean))
        cancelled: asyncio.CancelledError | None = None
        while not closing.done():
            try:
                await asyncio.shield(closing)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    async def _end_parts(self, clean: bool) -> None:
        parts: list[Callable[[], Awaitable[None] | None]] = [self.scheduler.stop]
        if self._telemetry is not None:
            parts.append(self._telemetry.stop)
        if hasattr(self, "measures"):
            parts.append(self.measures.stop)
        if hasattr(self, "server"):
            rooms = self.rooms
            parts += [self.server.pause, self.replicas.answer_fetches]
            parts += [rooms.transactions.close, rooms.groups.close]
            parts += [rooms.shares.close, rooms.share_state.close]
            parts += [partial(self.server.stop, grace_s=STOP_GRACE_S), rooms.deadlines.close]
        else:
            parts += [self._listening.close, self._listening.wait_closed]
        parts.append(self.moves.close)
        if hasattr(self, "quorum"):
            parts.append(partial(self._leave_quorum, clean))
        parts += [self.replicas.close, partial(self._close_logs, clean)]
        for part in parts:
            try:
                ended = part()
                if ended is not None:
                    await ended
            except Exception as error:  # whatever it is, the other parts are to end
                self._events.error("stop_failed", exc_info=error)
                self.fail(error)

    async def _leave_quorum(self, clean: bool) -> None:
        """Fences this broker and closes the metadata log; a disk that is full prevents no stop."""
        try:
            if clean and self._is_sound():
                await self.quorum.submit(lambda image: shutdown(image, self._static.node_id))
        except (KafkaError, OSError) as error:
            self._events.warning("shutdown_not_recorded", error=str(error))
        try:
            await self.quorum.stop()
        except OSError as error:
            self._events.error("metadata_log_not_closed", error=str(error))

    async def _close_logs(self, clean: bool) -> None:
        try:
            if clean and self._is_sound():
                epoch = self._broker_epoch
                await self._loop.run_in_executor(self._workers, self.logs.shutdown, epoch)
        finally:
            # A start that was given up may still be recovering logs in a worker: nobody else may
            # have the directories before it is through.
            await self._loop.run_in_executor(None, self._workers.shutdown)
            self.logs.abandon()

    def _is_sound(self) -> bool:
        """Whether it is registered, and nothing has gone wrong since."""
        return self._broker_epoch >= 0 and not self.failed.done()

    # what the rooms report

    async def _apply(self, delta: Delta, image: MetadataImage, show: Callable[[], None]) -> None:
        await self._publisher.apply(delta, image, show)
        self.rooms.share_state.published(delta, image)
        self.rooms.shares.published(delta)
        self.rooms.groups.published(delta, image)
        self.rooms.transactions.published(delta, image)

    def _published(self, delta: Delta, image: MetadataImage) -> None:
        is_configured = any(kind == BROKER_RESOURCE for kind, _ in delta.changed_configs)
        if is_configured:
            self._configure(image)
        if is_configured or METADATA_VERSION in delta.changed_features:
            self.server.spawn(self._reports.cordon(self.rooms.config), "cordon")
        if image.client_quotas is not delta.base.client_quotas:
            self._limit_clients(image)
        if delta.deleted_topics:
            self.rooms.unreadable.forget({one.name for one in delta.deleted_topics.values()})
        if self._reports.take_up(delta, image):
            self.server.spawn(self._reports.assign_changed(), "assign-directories")

    def _limit_clients(self, image: MetadataImage) -> None:
        self.server.limit(image.client_quotas)
        self.rooms.mutation_quotas.update(image.client_quotas)

    def _configure(self, image: MetadataImage) -> None:
        """What was set at run time goes over what the start said."""
        node = str(self._static.node_id)
        self.rooms.config = with_settings(
            self._static,
            default=dict(image.configs.get(BROKER_RESOURCE, ALL_BROKERS)),
            broker=dict(image.configs.get(BROKER_RESOURCE, node)),
            passed_over=lambda name, reason: self._events.error(
                "setting_passed_over", setting=name, reason=reason
            ),
        )
        self.logs.cordoned_dirs = self.rooms.config.cordoned_dirs
        if hasattr(self, "server"):
            self.server.change_limits(Limits.of(self.rooms.config, self._open_files_max))
            limit_accepting(self.server.accept_rates, self.rooms.config)

    def _log_config(self, image: MetadataImage, topic: str) -> LogConfig:
        overrides = image.configs.get(TOPIC_RESOURCE, topic)
        return self._log_configs.of(topic, self.rooms.config, overrides)

    def _on_loop(self, tell: Callable[[T], None], what: T) -> None:
        """A load and a shutdown run in workers, and report from there."""
        if threading.get_ident() == self._thread:
            tell(what)
        else:
            self._loop.call_soon_threadsafe(tell, what)

    def _disk_failed(self, log: Log, call: Call, error: OSError) -> None:
        self.logs.faults.failed(self.logs.dir_of(log), call, error)

    def _metadata_refused(self, error: OSError) -> None:
        self.logs.faults.failed(self._static.metadata_dir, Call.WRITE, error)

    def _room_has_changed(self) -> None:
        self.logs.full_dirs = frozenset(self._reserves.short)
        self.replicas.keep_room(self._reserves.short)

    def _dir_offline(self, path: str) -> None:
        for partition in list(self.replicas):
            if self.logs.dir_of(partition.log) == path:
                self.replicas.drop(partition, ErrorCode.KAFKA_STORAGE_ERROR)
        if hasattr(self, "rooms"):
            self._take_up_coordinators()

    def _job_failed(self, name: str, error: BaseException) -> None:
        self._events.error("job_failed", job=name, exc_info=error)
        if isinstance(error, AssertionError):
            self.fail(error)

    def _quorum_failed(self, error: BaseException) -> None:
        """A failed sync of the metadata log is a log dir lost, and the end with its own status."""
        if isinstance(error, OSError):
            self.logs.faults.failed(self._static.metadata_dir, Call.SYNC, error)
        self.fail(error)

    def fail(self, error: BaseException) -> None:
        """The broker cannot go on: it serves nobody any more, and whoever runs it sees `failed`."""
        if not self.failed.done():
            self._events.error("broker_failed", exc_info=error)
            self.failed.set_result(error)
            if hasattr(self, "server"):
                self.server.abort()
