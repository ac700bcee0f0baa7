"""What the connections of a broker share.

One `Endpoint` per listener: the request table, the limits and the counters that its connections
use. One `Server` per broker: it serves the listeners (`listening.py`), sweeps idle and stuck
connections, and stops.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from ottla.broker.handlers.answers import CloseConnection, Pending
from ottla.broker.handlers.api_versions import unsupported_version_response
from ottla.broker.handlers.context import Rooms
from ottla.broker.handlers.produce_forms import ProduceForms
from ottla.broker.handlers.table import Entry
from ottla.broker.metadata.image import QuotaEntity
from ottla.broker.network.accept_rates import MAX_CREATION_RATE, AcceptRates
from ottla.broker.network.address_limits import AddressLimits
from ottla.broker.network.connection import DATA_APIS, Connection
from ottla.broker.network.connection_rates import CREATION_RATE, ConnectionRates
from ottla.broker.network.counters import NetworkCounters
from ottla.broker.network.lane import Lane
from ottla.broker.network.limits import Limits
from ottla.broker.network.listening import Listening
from ottla.broker.network.metering import AnswerTime, Meter
from ottla.broker.network.moderation import Moderation
from ottla.broker.network.outbox import TurnEnd
from ottla.broker.network.page_cache import PageCache
from ottla.broker.network.quotas import ClientQuotas
from ottla.broker.network.refusals import (
    DESCRIPTORS,
    INTERVAL_MS,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    Endings,
    Refusals,
    Refused,
)
from ottla.broker.network.waiting_room import WaitingRoom
from ottla.broker.open_files import WHAT_TO_DO
from ottla.broker.ports import Events
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError

OURS_ALONE = frozenset({"EBADF", "EFAULT", "EINVAL"})
"""Errors of a send that no peer can bring about."""


class Endpoint:
    """One listener's side of the server; the connections call it, never each other."""

    def __init__(self, server: Server, listener_name: str) -> None:
        self.server = server
        self.loop = server.loop
        self.listener_name = listener_name
        self.table: Mapping[int, Entry] = server.table
        self.rooms = server.rooms
        self.forms = server.forms
        self.page_cache = server.page_cache
        self.metrics = server.metrics
        self.turn_end = server.turn_end
        self.lane = server.lane
        self.max_request_size = server.limits.max_request_size
        self.send_buffer_bytes = server.limits.send_buffer_bytes
        self.receive_buffer_bytes = server.limits.receive_buffer_bytes

    @property
    def stopping(self) -> bool:
        return self.server.stopping

    def admit(self, connection: Connection, transport: asyncio.Transport) -> bool:
        """Whether the connection is taken in; else it has been sent away."""
        return self.server.admit(connection, transport, self.listener_name)

    def new_meter(self) -> Meter | None:
        return self.server.new_meter()

    def turned_away(self, reason: str, address: str) -> None:
        self.server.turned_away(reason, address)

    def forget(self, connection: Connection, held_bytes: int) -> None:
        self.server.forget(connection, held_bytes)

    def hold(self, delta_bytes: int) -> None:
        self.server.held_bytes += delta_bytes

    def refused(self, connection: Connection, reason: str) -> None:
        self.server.ended(connection, self.listener_name, reason)

    def fatal(self, error: BaseException) -> None:
        self.server.on_fatal(error)

    def unserved_version(self, entry: Entry, version: int) -> Any:
        """KIP-511: an ApiVersions request of any version learns what we serve."""
        if entry.api.key != ApiKey.API_VERSIONS:
            raise CloseConnection(f"{entry.api.key.name} version {version} is not served")
        return unsupported_version_response()

    def handler_failed(self, entry: Entry, version: int, error: Exception) -> Any:
        """The handler boundary: a domain error is answered; anything else is ours, and is told."""
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        if isinstance(error, KafkaError):
            code = error.code
        else:
            self.metrics.handler_errors += 1
            self.server.events.error(
                "handler_failed", api=entry.api.key.name, version=version, exc_info=error
            )
        response = entry.error_response(code, version)
        if response is None:
            raise CloseConnection(f"{entry.api.key.name} failed with {code.name}") from error
        return response

    def unwritable(self, entry: Entry, version: int, error: Exception) -> None:
        """An answer that its message cannot hold: ours, and the end of that connection alone."""
        self.metrics.handler_errors += 1
        self.server.events.error(
            "answer_not_written", api=entry.api.key.name, version=version, exc_info=error
        )

    def sending_failed(self, connection: Connection, reason: str) -> None:
        """Ends a connection. Nearly always the peer has gone; what no peer can do is told."""
        if reason in OURS_ALONE:
            self.metrics.handler_errors += 1
            self.server.events.error("answer_not_sent", peer=connection.peer, reason=reason)
        connection.close(f"send_failed:{reason}")

    def run(self, entry: Entry, version: int, work: Awaitable[Any], pending: Pending) -> None:
        """Runs a handler that awaits (the quorum, a worker); its answer keeps its place."""

        async def answer() -> None:
            try:
                response = await work
            except (asyncio.CancelledError, AssertionError):
                raise
            except Exception as error:  # the same boundary as for handlers that answer at once
                if pending.line is not None:
                    pending.line.failed(pending, error)
                else:
                    with suppress(CloseConnection):  # nobody waits any more; it is told
                        self.handler_failed(entry, version, error)
                return
            if not pending.abandoned:
                wait_ms = getattr(response, "throttle_time_ms", 0)
                if wait_ms and isinstance(pending.line, Connection):
                    pending.line.mute(wait_ms)
                pending.complete(response)

        self.server.spawn(answer(), f"handler-{entry.api.key.name}")


class Server:
    """The connections of one broker. `serve` begins to take them, `stop` answers what can be
    answered and closes the listeners, too."""

    def __init__(
        self,
        *,
        listening: Listening,
        rooms: Rooms,
        table: Mapping[int, Entry],
        forms: ProduceForms,
        limits: Limits,
        workers: ThreadPoolExecutor,
        events: Events,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.rooms = rooms
        self.table = table
        self.forms = forms
        self.limits = limits
        self.address_limits = AddressLimits()
        self.events = events
        self.on_fatal = on_fatal
        self.page_cache = PageCache(workers, rooms.unreadable)
        self.turn_end = TurnEnd(self.loop)
        self.moderation: Moderation | None = None
        data_entries = [entry for key, entry in table.items() if key in DATA_APIS]
        self.lane = Lane(
            self.loop, time.perf_counter, lambda: sum(entry.requests for entry in data_entries)
        )
        self.metrics = NetworkCounters()
        self.quotas = ClientQuotas(limits.quota_window_ms)
        self._answered = AnswerTime()
        self.connection_rates = ConnectionRates(
            window_ms=limits.quota_window_ms, window_count=limits.quota_window_count
        )
        self.refusals = Refusals()
        self._endings = Endings()
        self.accept_rates = AcceptRates(
            window_ms=limits.quota_window_ms,
            window_count=limits.quota_window_count,
            waiting_max=limits.backlog,
        )
        self.waiting_room = WaitingRoom(self.loop, most=limits.waiting_max)
        self.held_bytes = 0
        self.stopping = False
        self._connections: dict[Connection, str] = {}
        self._per_address: dict[str, int] = {}
        self._listening = listening
        self._tasks: set[asyncio.Task[None]] = set()
        self.change_limits(limits)

    @property
    def connections(self) -> list[Connection]:
        return list(self._connections)

    async def serve(self) -> None:
        """Begins to accept. OSError names an address that somebody else has taken meanwhile."""
        endpoints: dict[str, Endpoint] = {}

        def new_connection(listener_name: str) -> Connection:
            endpoint = endpoints.get(listener_name)
            if endpoint is None:
                endpoint = endpoints[listener_name] = Endpoint(self, listener_name)
            return Connection(endpoint)

        await self._listening.serve(new_connection, backlog=self.limits.backlog)

    def moderate(self, moderation: Moderation) -> None:
        """Has the loop rest from now on, where many tasks wait for the processors."""
        replicas, lane, cache = self.rooms.replicas, self.lane, self.page_cache
        conversions = replicas.conversions

        def is_held_up() -> bool:
            return (
                replicas.is_syncing()
                or lane.is_waited_for
                or cache.cold_sends_under_way > 0
                or conversions.are_under_way
            )

        self.moderation = moderation
        self.turn_end.moderate(moderation, is_held_up)

    def pause(self) -> None:
        """Accepts and reads no more; what has been taken up is still served."""
        self.stopping = True
        self._listening.close()
        self.waiting_room.close()
        for connection in self.connections:
            connection.pause()

    def abort(self) -> None:
        """Ends everything at once: the broker can no longer keep its word."""
        self.pause()
        for connection in self.connections:
            connection.close("broker_failed")

    async def stop(self, *, grace_s: float) -> None:
        """Accepts no more, lets open requests finish within the grace, then closes."""
        self.pause()
        deadline_s = self.loop.time() + grace_s
        finished = [connection.finish(deadline_s) for connection in self.connections]
        results = await asyncio.gather(*finished, return_exceptions=True)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        await self._listening.wait_closed()
        self._tell_due(self._now_ms() + INTERVAL_MS)
        for error in results:
            if error is not None:
                raise error

    def spawn(self, work: Any, name: str) -> None:
        """Runs a coroutine that belongs to the server; what it raises ends the broker."""
        task: asyncio.Task[None] = self.loop.create_task(work, name=name)
        self._tasks.add(task)

        def done(finished: asyncio.Task[None]) -> None:
            self._tasks.discard(finished)
            if not finished.cancelled() and (error := finished.exception()) is not None:
                self.on_fatal(error)

        task.add_done_callback(done)

    def change_limits(self, limits: Limits) -> None:
        """What is granted to those who connect from now on."""
        self.limits = limits
        exceptions = limits.connections_of_host
        for host in self.address_limits.update(limits.max_connections_per_ip, exceptions):
            self.spawn(self._find(host, self.address_limits.found), "find-addresses")

    def limit(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Puts client quotas in force. With none, requests cost one test more, and no meter."""
        for host in self.connection_rates.update(quotas):
            self.spawn(self._find(host, self.connection_rates.found), "find-addresses")
        had_any = self.quotas.enabled
        self.quotas.update(quotas)
        if self.quotas.enabled != had_any:
            for connection in self.connections:
                connection.meter(self.new_meter())

    def new_meter(self) -> Meter | None:
        """For one connection; None while nothing is limited."""
        if not self.quotas.enabled:
            return None
        return Meter(self.quotas, self.rooms.clock, self._answered)

    def admit(
        self, connection: Connection, transport: asyncio.Transport, listener_name: str
    ) -> bool:
        """Counts a connection against the limits, and sends it away if it is beyond one."""
        peer = transport.get_extra_info("peername") or ("?", 0)
        address = str(peer[0])
        if self.stopping:
            transport.abort()
            return False
        if len(self._connections) >= self.limits.max_connections:
            self.turned_away(self.limits.limited_by, address)
            transport.abort()
            return False
        if self.connection_rates.enabled:
            wait_ms = self.connection_rates.take(address, self.rooms.clock.monotonic_ms())
            if wait_ms:
                self.turned_away(CREATION_RATE, address)
                self.waiting_room.hold(transport, wait_ms)
                return False
        turn_ms: int | None = 0
        if self.accept_rates.enabled:
            turn_ms = self.accept_rates.take(listener_name, self.rooms.clock.monotonic_ms())
        if turn_ms is None:
            self.turned_away(MAX_CREATION_RATE, address)
            transport.abort()
            return False
        count = self._per_address.get(address, 0)
        if count >= self.address_limits.of(address):
            self.turned_away(MAX_CONNECTIONS_PER_IP, address)
            transport.abort()
            return False
        self._per_address[address] = count + 1
        self._connections[connection] = address
        if turn_ms:
            connection.hold_back(turn_ms)
        return True

    def turned_away(self, reason: str, address: str) -> None:
        """Counts a connection that is not served, and tells of it unless it is one of many."""
        self._tell_refused(self.refusals.add(reason, address, self._now_ms()))

    def ended(self, connection: Connection, listener_name: str, reason: str) -> None:
        """Tells of a connection that ends by its own fault, unless it is one of many."""
        address = self._connections.get(connection, "?")
        if self._endings.add(reason, address, self._now_ms()) is not None:
            self.events.info(
                "connection_closed", peer=connection.peer, listener=listener_name, reason=reason
            )

    def forget(self, connection: Connection, held_bytes: int) -> None:
        self.held_bytes -= held_bytes
        address = self._connections.pop(connection, None)
        if address is None:
            return
        left = self._per_address[address] - 1
        if left:
            self._per_address[address] = left
        else:
            del self._per_address[address]

    def sweep(self) -> None:
        """A periodic job: ends what is idle, frames that do not come, and what is over budget."""
        now_s = self.loop.time()
        if self.quotas.enabled:
            self.quotas.forget_idle(self.rooms.clock.monotonic_ms())
        if self.connection_rates.enabled:
            self.connection_rates.forget_full(self.rooms.clock.monotonic_ms())
        self._tell_due(self._now_ms())
        idle_max_s = self.limits.idle_ms / 1000 if self.limits.idle_ms >= 0 else float("inf")
        for connection in self.connections:
            if connection.overdue(now_s):
                connection.close("slow_frame")
            elif connection.hung_up():
                connection.close("hung_up")
            elif connection.idle_s(now_s) > idle_max_s:
                connection.close("idle")
            else:
                connection.rest(now_s)
        if 0 <= self.limits.held_bytes_max < self.held_bytes:
            self._shed()

    def _now_ms(self) -> int:
        return int(self.loop.time() * 1000)

    def _tell_due(self, now_ms: int) -> None:
        """What came in intervals that are over by then."""
        for refused in self.refusals.due(now_ms):
            self._tell_refused(refused)
        for ended in self._endings.due(now_ms):
            self.events.info("connections_closed", **ended._asdict())

    def _tell_refused(self, refused: Refused | None) -> None:
        if refused is None:
            return
        fields = refused._asdict()
        if refused.reason in (MAX_CONNECTIONS, self.limits.limited_by):
            fields["limit"] = self.limits.max_connections
        elif refused.reason == MAX_CONNECTIONS_PER_IP:
            fields["limit"] = self.address_limits.of(refused.address)
        if refused.reason == DESCRIPTORS:
            fields["fix"] = WHAT_TO_DO
        self.events.warning("connections_refused", **fields)

    async def _find(self, host: str, found: Callable[[str, list[str]], None]) -> None:
        """The addresses of a host that a quota or a limit is set for."""
        try:
            infos = await self.loop.getaddrinfo(host, None)
        except (OSError, UnicodeError) as error:
            self.events.warning("quota_host_not_found", host=host, error=str(error))
        else:
            found(host, [str(address[0]) for *_, address in infos])

    def _shed(self) -> None:
        """Over queued.max.request.bytes: the largest unfinished frames go first."""
        by_size = sorted(self.connections, key=lambda c: c._held_bytes, reverse=True)
        for connection in by_size:
            if self.held_bytes <= self.limits.held_bytes_max:
                return
            self.held_bytes -= connection._held_bytes
            connection._held_bytes = 0
            connection.close("queued_max_request_bytes")
