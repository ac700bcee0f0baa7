"""The job that keeps the scan after a crash short: a turn of `log.waypoint_keeper`."""

from __future__ import annotations

from functools import partial

from ottla.broker.faults import Call
from ottla.broker.log import waypoint_keeper
from ottla.broker.log.log import Log
from ottla.broker.log.manager import LogManager
from ottla.broker.log.waypoints import WaypointTicket
from ottla.broker.scheduler import in_worker


async def keep_waypoints(logs: LogManager) -> None:
    """Writes the waypoints that are due, in a worker, and names those that are synced."""
    begun: list[tuple[Log, WaypointTicket]] = []
    for log in waypoint_keeper.due_logs(logs.logs):
        try:
            ticket = waypoint_keeper.begin(log)
        except OSError as error:  # it reads the index; nothing is written yet
            logs.faults.failed(logs.dir_of(log), Call.READ, error)
            continue
        if ticket is not None:
            begun.append((log, ticket))
    if begun:
        try:
            failed = await in_worker(partial(waypoint_keeper.write_all, begun))
        finally:
            for log, ticket in begun:
                log.waypoints.finish(ticket)
        for log, reason in failed:
            logs.faults.failed(logs.dir_of(log), Call.WRITE, reason)
    synced = [log for log in logs.logs if log.waypoints.is_nameable(log.durable_end)]
    if not synced:
        return
    await in_worker(logs.checkpoint_recovery_points)
    for log in synced:
        if logs.get(log.topic, log.partition) is log:  # it may have been deleted meanwhile
            try:
                log.waypoints.name()
            except OSError as error:
                logs.faults.failed(logs.dir_of(log), Call.WRITE, error)
