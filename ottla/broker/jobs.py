"""The periodic jobs of a broker, by name: what runs how often, and where it waits for the disk."""

from __future__ import annotations

import asyncio
from functools import partial

from ottla.broker.coordinator.pruning import prune
from ottla.broker.coordinator.runtime import Coordinator, S
from ottla.broker.coordinator.share.coordinator import snapshot_cold
from ottla.broker.descriptors import RELEASE_INTERVAL_MS
from ottla.broker.handlers.context import Rooms
from ottla.broker.log.waypoint_keeper import WAYPOINT_INTERVAL_MS
from ottla.broker.network.server import Server
from ottla.broker.retention_job import apply_retention, remove_deleted
from ottla.broker.scheduler import Scheduler, in_worker
from ottla.broker.scrub_job import scrub_a_while
from ottla.broker.waypoint_job import keep_waypoints

WAITER_SWEEP_MS = 100
"""How late a Produce timeout may be; clients count in tens of seconds."""
CONNECTION_SWEEP_MS = 1000
DELETION_SWEEP_MS = 1000
ACCOUNT_SWEEP_MS = 60_000
SNAPSHOT_CHECK_MS = 10_000
SCRUB_RUN_MS = 1000
REFUSALS_CHECK_MS = 1000
RESERVES_CHECK_MS = 1000
"""How long clients' records are refused at most when a full disk has room again."""
PRUNE_INTERVAL_MS = 1000
"""Often, for where transactions follow one another there are few moments between two of them."""
MOVES_INTERVAL_MS = 500
"""How late a move between log dirs may begin."""


def schedule_jobs(scheduler: Scheduler, rooms: Rooms, server: Server) -> None:
    config, logs, replicas = rooms.config, rooms.logs, rooms.replicas

    def flush_due() -> None:
        for log in logs.due_for_flush():
            partition = replicas.get(log.topic, log.partition)
            if partition is not None:
                replicas.flush(partition)

    def release_descriptors() -> None:
        unsynced_count = logs.disk.held.release_surplus()
        for log in logs.longest_unsynced(unsynced_count):
            partition = replicas.get(log.topic, log.partition)
            if partition is not None:
                replicas.flush(partition)

    delay_ms = config.log_initial_task_delay_ms
    scheduler.every("waiters", WAITER_SWEEP_MS, replicas.expire_waiters)
    scheduler.every("connections", CONNECTION_SWEEP_MS, server.sweep)
    scheduler.every("deletion", DELETION_SWEEP_MS, partial(remove_deleted, rooms))
    scheduler.every("metadata-snapshot", SNAPSHOT_CHECK_MS, rooms.quorum.snapshot_if_due)
    scheduler.every("flush", min(config.log_flush_scheduler_interval_ms, 2**31 - 1), flush_due)
    scheduler.every(
        "retention",
        config.log_retention_check_interval_ms,
        partial(apply_retention, rooms),
        delay_ms=delay_ms,
    )
    scheduler.every("descriptors", RELEASE_INTERVAL_MS, release_descriptors)
    scheduler.every("refusals", REFUSALS_CHECK_MS, logs.faults.tell_passed)
    scheduler.every("reserves", RESERVES_CHECK_MS, partial(look_for_room, rooms))
    scheduler.every("waypoints", WAYPOINT_INTERVAL_MS, partial(keep_waypoints, logs), delay_ms=0)
    scheduler.every("replica-moves", MOVES_INTERVAL_MS, rooms.moves.run)
    scheduler.every(
        "scrub", SCRUB_RUN_MS, partial(scrub_a_while, rooms, SCRUB_RUN_MS), delay_ms=delay_ms
    )
    for name, interval_ms, write in (
        (
            "recovery-point-checkpoint",
            config.log_flush_offset_checkpoint_interval_ms,
            logs.checkpoint_recovery_points,
        ),
        (
            "log-start-checkpoint",
            config.log_flush_start_offset_checkpoint_interval_ms,
            logs.checkpoint_log_start_offsets,
        ),
        (
            "high-watermark-checkpoint",
            config.replica_high_watermark_checkpoint_interval_ms,
            logs.checkpoint_high_watermarks,
        ),
    ):
        if interval_ms > 0:
            scheduler.every(name, interval_ms, write, threaded=True)
        else:  # Kafka writes them once then, and again at the stop
            scheduler.once(name, delay_ms, write, threaded=True)
    schedule_group_jobs(scheduler, rooms)
    schedule_account_jobs(scheduler, rooms)
    schedule_share_jobs(scheduler, rooms)
    schedule_transaction_jobs(scheduler, rooms)
    scheduler.every(
        "producer-expiry",
        config.producer_id_expiration_check_interval_ms,
        partial(expire_producers, rooms),
    )


async def look_for_room(rooms: Rooms) -> None:
    """Serves clients again in the log dirs that were full, where there is room."""
    reserves = rooms.reserves
    for path, own_room in list(reserves.short.items()):
        if path in rooms.logs.offline_dirs:
            continue
        try:
            if await in_worker(partial(reserves.recover, path)):
                reserves.recovered(path)
            elif own_room.is_due():
                own_room.left_bytes = 0  # or some of it would be spent twice
                own_room.left_bytes = await in_worker(partial(reserves.own_bytes, path))
        except OSError as error:
            reserves.do_without(path, error)


def expire_producers(rooms: Rooms) -> None:
    """Forgets the idempotent producers that are silent for producer.id.expiration.ms."""
    now_ms = rooms.clock.monotonic_ms()
    for log in rooms.logs.logs:
        log.producer_state.expire(now_ms, rooms.config.producer_id_expiration_ms)


def schedule_account_jobs(scheduler: Scheduler, rooms: Rooms) -> None:
    """The jobs of the quotas that are not the network's."""

    def forget_idle() -> None:
        rooms.mutation_quotas.forget_idle(rooms.clock.monotonic_ms())

    scheduler.every("idle-accounts", ACCOUNT_SWEEP_MS, forget_idle)


async def _prune(coordinator: Coordinator[S]) -> None:
    for _ in prune(coordinator):
        await asyncio.sleep(0)


def schedule_group_jobs(scheduler: Scheduler, rooms: Rooms) -> None:
    """The jobs of the group coordinator."""

    async def expire_offsets() -> None:
        for runner, shard in rooms.groups.loaded():
            if runner.shard is shard:
                runner.perform(shard.expire_offsets(rooms.groups.now()))
            await asyncio.sleep(0)  # each looks at all that it has

    interval_ms = rooms.config.offsets_retention_check_interval_ms
    scheduler.every("offset-expiry", interval_ms, expire_offsets)
    scheduler.every("group-state-pruning", PRUNE_INTERVAL_MS, partial(_prune, rooms.groups))


def schedule_transaction_jobs(scheduler: Scheduler, rooms: Rooms) -> None:
    """The jobs of the transaction coordinator."""
    config, coordinator = rooms.config, rooms.transactions

    async def abort_timed_out() -> None:
        for runner, shard in coordinator.loaded():
            if runner.shard is shard:
                runner.perform(shard.abort_timed_out(coordinator.now()))
            await asyncio.sleep(0)  # each looks at all that it has

    async def remove_expired() -> None:
        for runner, shard in coordinator.loaded():
            if runner.shard is shard:
                runner.perform(shard.remove_expired(coordinator.now()))
            await asyncio.sleep(0)

    abort_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
    remove_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
    scheduler.every("transaction-timeouts", abort_ms, abort_timed_out)
    scheduler.every("transactional-id-expiry", remove_ms, remove_expired)
    scheduler.every("transaction-state-pruning", PRUNE_INTERVAL_MS, partial(_prune, coordinator))


def schedule_share_jobs(scheduler: Scheduler, rooms: Rooms) -> None:
    """The jobs of the share coordinator."""
    config, coordinator = rooms.config, rooms.share_state
    prune_ms = config.share_coordinator_state_topic_prune_interval_ms
    cold_ms = config.share_coordinator_cold_partition_snapshot_interval_ms
    scheduler.every("share-state-pruning", prune_ms, partial(_prune, coordinator))
    scheduler.every("share-state-snapshots", cold_ms, partial(snapshot_cold, coordinator, cold_ms))
