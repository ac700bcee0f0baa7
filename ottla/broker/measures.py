"""The broker's metrics page: what the rooms count anyway, by Prometheus' names.

Nothing is counted here; every value is read from its room when the page is asked for.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable

from ottla import __version__
from ottla.broker.controller.setting_changes import RESOURCES
from ottla.broker.group_lag import watch_lag
from ottla.broker.group_measures import watch_groups, watch_shares
from ottla.broker.handlers.context import Rooms
from ottla.broker.handlers.table import LATENCY_BUCKETS_S
from ottla.broker.network.refusals import REASONS
from ottla.broker.network.server import Server
from ottla.broker.telemetry.lag import LoopLag, Timers
from ottla.broker.telemetry.metrics import SECONDS, HistogramSample, Registry, Sample
from ottla.broker.telemetry.process import watch_process
from ottla.broker.transaction_measures import watch_transactions
from ottla.compiled import build
from ottla.protocol.errors import ErrorCode

THROTTLED_CLIENTS_MAX = 20
"""Clients that are named by the page for each quota; a client chooses its id as it likes."""


class Measures:
    """Registers every metric of one broker. `start` and `stop` bound the loop-lag probe."""

    def __init__(self, rooms: Rooms, server: Server, timers: Timers) -> None:
        self.registry = Registry()
        self._rooms = rooms
        self._server = server
        self._lag = LoopLag(
            timers,
            self.registry.histogram(
                "ottla_loop_lag_seconds", "How late the event loop runs its timers.", SECONDS
            ),
        )
        self.registry.watch(
            "ottla_build_info",
            "1, with the version of the broker, and whether it is compiled.",
            self._build_info,
        )
        self._watch_requests()
        self._watch_connections()
        self._watch_partitions()
        self._watch_disks()
        watch_groups(self.registry, rooms)
        watch_shares(self.registry, rooms)
        watch_lag(self.registry, rooms)
        watch_transactions(self.registry, rooms)
        watch_process(self.registry)

    def start(self) -> None:
        self._lag.start()

    def stop(self) -> None:
        self._lag.stop()

    def _watch_requests(self) -> None:
        registry, server = self.registry, self._server
        metrics = server.metrics
        registry.watch_histograms(
            "ottla_request_seconds",
            "Time from a request's last byte to its answer, by API.",
            LATENCY_BUCKETS_S,
            self._latencies,
        )
        registry.watch(
            "ottla_answer_errors_total",
            "Errors that clients were told, by API; one answer may tell several.",
            self._answer_errors,
            kind="counter",
        )
        registry.watch(
            "ottla_received_bytes_total",
            "Bytes received from clients.",
            lambda: metrics.received_bytes,
            kind="counter",
        )
        registry.watch(
            "ottla_sent_bytes_total",
            "Bytes sent to clients.",
            lambda: metrics.sent_bytes,
            kind="counter",
        )
        registry.watch(
            "ottla_held_request_bytes", "Bytes of unfinished requests.", lambda: server.held_bytes
        )
        registry.watch(
            "ottla_handler_errors_total",
            "Requests that failed by a bug of ours.",
            lambda: metrics.handler_errors,
            kind="counter",
        )
        registry.watch(
            "ottla_rests_total",
            "Times that the loop left the processors to others for a moment, where many waited.",
            lambda: [] if server.moderation is None else server.moderation.rests,
            kind="counter",
        )
        registry.watch(
            "ottla_joint_sends_total",
            "Small answers that left with others in one system call; absent where none do.",
            lambda: [] if server.turn_end.joint is None else server.turn_end.joint_sends,
            kind="counter",
        )
        registry.watch(
            "ottla_cold_reads_total",
            "Steps of a fetch that workers sent, for they may have had to be read from the disk.",
            lambda: server.page_cache.cold_sends,
            kind="counter",
        )

    def _watch_connections(self) -> None:
        registry, server = self.registry, self._server
        metrics = server.metrics
        registry.watch("ottla_connections", "Open connections.", lambda: len(server.connections))
        registry.watch(
            "ottla_connections_accepted_total",
            "Connections taken in; those that a limit turns away are not.",
            lambda: metrics.accepted,
            kind="counter",
        )
        registry.watch(
            "ottla_connections_refused_total",
            "Connections that came and were not taken in, by what limits them.",
            self._refused,
            kind="counter",
        )
        registry.watch(
            "ottla_connections_closed_total",
            "Connections taken in that the broker ended, by reason.",
            lambda: [({"reason": why}, n) for why, n in metrics.closed_by_reason.items()],
            kind="counter",
        )
        registry.watch(
            "ottla_connections_held",
            "Connections that are not served, for their address makes more than its quota.",
            lambda: len(server.waiting_room),
        )
        registry.watch(
            "ottla_throttles_total",
            "Times that a client was made to wait, for it used more than a quota.",
            lambda: metrics.throttles,
            kind="counter",
        )
        registry.watch(
            "ottla_throttle_seconds_total",
            "Seconds that clients were made to wait.",
            lambda: metrics.throttled_ms / 1000,
            kind="counter",
        )
        registry.watch(
            "ottla_client_throttle_seconds_total",
            "Seconds that a client was told to wait, by quota: the longest of each quota.",
            self._client_waits,
            kind="counter",
        )

    def _watch_partitions(self) -> None:
        registry, replicas = self.registry, self._rooms.replicas
        registry.watch(
            "ottla_log_start_offset",
            "First offset that can be read, by partition.",
            lambda: self._by_partition("log_start_offset"),
        )
        registry.watch(
            "ottla_log_end_offset",
            "Next offset to be written, by partition.",
            lambda: self._by_partition("log_end_offset"),
        )
        registry.watch(
            "ottla_high_watermark",
            "Offset up to which consumers see, by partition.",
            lambda: self._by_partition("high_watermark"),
        )
        registry.watch(
            "ottla_log_size_bytes",
            "Size of a partition's log.",
            lambda: self._by_partition("size_bytes"),
        )
        registry.watch(
            "ottla_commit_waiters",
            "Produce requests that wait for a sync.",
            lambda: sum(len(partition.commit_waiters) for partition in replicas),
        )
        registry.watch(
            "ottla_fetch_waiters",
            "Fetch requests that are parked.",
            lambda: sum(len(partition.fetch_waiters) for partition in replicas),
        )

    def _watch_disks(self) -> None:
        registry, rooms = self.registry, self._rooms
        registry.watch_histograms(
            "ottla_sync_seconds",
            "Time of a sync, its wait for a thread included.",
            SECONDS,
            lambda: [({}, rooms.replicas.sync_times.counts, rooms.replicas.sync_times.sum)],
        )
        registry.watch(
            "ottla_offline_log_dirs",
            "Log directories that failed and serve nothing until a restart.",
            lambda: len(rooms.logs.offline_dirs),
        )
        registry.watch(
            "ottla_full_log_dirs",
            "Log directories where clients' records are refused until there is room again.",
            lambda: len(rooms.reserves.short.keys() - rooms.logs.offline_dirs.keys()),
        )
        registry.watch(
            "ottla_refused_disk_calls_total",
            "Calls that a log directory refused without harm, as one that is full does.",
            self._refused_calls,
            kind="counter",
        )
        registry.watch(
            "ottla_scrubbed_bytes_total",
            "Bytes of old segments that were read again and held against their CRCs.",
            lambda: rooms.logs.scrubber.scrubbed_bytes,
            kind="counter",
        )
        registry.watch(
            "ottla_damaged_bytes",
            "Bytes of a partition's log in quarantine, for they hold no valid batch any more.",
            self._damaged,
        )
        registry.watch(
            "ottla_fetch_sessions",
            "Incremental fetch sessions.",
            lambda: len(rooms.fetch_sessions),
        )
        registry.watch(
            "ottla_metadata_offset",
            "Last offset of the metadata log that is in force.",
            lambda: rooms.image.offset,
        )
        registry.watch(
            "ottla_setting_changes_total",
            "Settings that clients changed, by what they belong to; /events tells who and what.",
            self._setting_changes,
            kind="counter",
        )

    def _build_info(self) -> Iterable[Sample]:
        yield {"version": __version__, "python": platform.python_version(), "build": build()}, 1

    def _latencies(self) -> Iterable[HistogramSample]:
        for entry in self._server.table.values():
            if entry.requests:
                yield {"api": entry.api.key.name}, entry.buckets, entry.seconds

    def _answer_errors(self) -> Iterable[Sample]:
        for entry in self._server.table.values():
            for code, count in sorted(entry.errors.items()):
                yield {"api": entry.api.key.name, "error": ErrorCode(code).name}, count

    def _refused(self) -> Iterable[Sample]:
        counts = self._server.refusals.counts
        for limit in dict.fromkeys((*REASONS, *counts)):
            yield {"limit": limit}, counts[limit]

    def _refused_calls(self) -> Iterable[Sample]:
        for (path, name), count in self._rooms.logs.faults.refusals.items():
            yield {"dir": path, "errno": name}, count

    def _client_waits(self) -> Iterable[Sample]:
        waits = self._server.quotas.longest_waits(THROTTLED_CLIENTS_MAX)
        for resource, (user, client_id), waited_ms in waits:
            labels = {"quota": resource.value, "user": user or "", "client_id": client_id or ""}
            yield labels, waited_ms / 1000

    def _setting_changes(self) -> Iterable[Sample]:
        counts = self._rooms.setting_history.counts
        for resource in RESOURCES:
            yield {"resource": resource}, counts[resource]

    def _damaged(self) -> Iterable[Sample]:
        for log in self._rooms.logs.logs:
            if log.quarantine:
                labels = {"topic": log.topic, "partition": str(log.partition)}
                yield labels, log.quarantine.damaged_bytes

    def _by_partition(self, name: str) -> Iterable[Sample]:
        # Partitions come and go while others have the loop, as they do within a long page.
        for partition in list(self._rooms.replicas):
            labels = {"topic": partition.topic, "partition": str(partition.index)}
            yield labels, getattr(partition.log, name)
