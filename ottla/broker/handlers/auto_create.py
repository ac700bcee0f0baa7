"""Auto-creation: a topic that a client asks for and that does not exist comes to be.

The request that asks is answered UNKNOWN_TOPIC_OR_PARTITION, as Kafka does, and the client asks
again; meanwhile the topic is created. However many clients ask for a name, it is created once.
Names beyond the limits are left alone: who asked will ask again. What is created counts for the
quota of the client that asked first, which is not told if it has used it up, as in Kafka.

Internal topics are not created here: each comes with the coordinator that it belongs to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import islice
from typing import TYPE_CHECKING, Any

from ottla.broker.controller.names import topic_name_fault
from ottla.broker.handlers.topic_names import INTERNAL_TOPICS
from ottla.broker.handlers.topics import charge_of, create_topics, mutations
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.topics import CreateTopicsRequest

if TYPE_CHECKING:
    from ottla.broker.handlers.context import Rooms

PENDING_MAX = 1000
"""Names that wait at one time. Kafka has no limit; a name costs some hundred bytes here, and a
client that is left out asks again within its retry.backoff.ms."""
BATCH_MAX = 8
"""Topics created in one step. Each costs a directory on the loop that serves everybody, so a step
must stay within milliseconds."""
TOPICS_PER_SECOND = 100
"""Row 30 of the bad-input table. Kafka has no limit until a controller mutation quota is set; no
application needs more than this, and a mistake in a loop does not fill the disk."""
TOLD_MAX = 1000
"""Names of which it is remembered why they could not be created, so that it is told once."""

Spawn = Callable[[Coroutine[Any, Any, None], str], None]


class AutoCreation:
    """The names under way, each with the client that asked for it; one per broker. `spawn` runs a
    supervised coroutine by its name."""

    __slots__ = ("_pending", "_running", "_spawn", "_told")

    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._pending: dict[str, str | None] = {}
        self._running = False
        self._told: dict[str, tuple[ErrorCode, str | None]] = {}

    def __repr__(self) -> str:
        return f"<AutoCreation pending={len(self._pending)}>"

    def request(self, rooms: Rooms, names: list[str], client_id: str | None) -> None:
        """Begins to create those names that may be created and are not under way."""
        if not rooms.config.auto_create_topics_enable:
            return
        for name in names:
            if len(self._pending) >= PENDING_MAX:
                break
            if name not in INTERNAL_TOPICS and topic_name_fault(name) is None:
                self._pending.setdefault(name, client_id)
        if self._pending and not self._running:
            self._running = True
            self._spawn(self._create_pending(rooms), "auto-create")

    async def _create_pending(self, rooms: Rooms) -> None:
        try:
            while self._pending:
                client_id = next(iter(self._pending.values()))
                own = (name for name, asker in self._pending.items() if asker == client_id)
                names = list(islice(own, BATCH_MAX))
                created = await self._create(rooms, names, client_id)
                for name in names:
                    del self._pending[name]
                # Names that are refused, for a quota perhaps, hold up nobody who waits behind them.
                await asyncio.sleep(created / TOPICS_PER_SECOND)
        finally:
            self._pending.clear()
            self._running = False

    async def _create(self, rooms: Rooms, names: list[str], client_id: str | None) -> int:
        """Creates what may be created; returns how many topics that were."""
        wanted = [
            CreateTopicsRequest.CreatableTopic(
                name, rooms.config.num_partitions, rooms.config.default_replication_factor
            )
            for name in names
        ]
        taken = mutations(rooms, client_id, is_strict=True)
        try:
            response = await create_topics(rooms, CreateTopicsRequest(wanted), charge_of(taken))
        except KafkaError as error:
            for name in names:
                self._tell_failed(rooms, name, error.code, error.message, client_id)
            return 0
        created = 0
        for result in response.topics:
            code = ErrorCode(result.error_code)
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._tell_failed(rooms, result.name, code, result.error_message, client_id)
                continue
            self._told.pop(result.name, None)
            if code is ErrorCode.NONE:
                created += 1
                rooms.events.info("topic_auto_created", topic=result.name, client_id=client_id)
        return created

    def _tell_failed(
        self, rooms: Rooms, name: str, code: ErrorCode, reason: str | None, client_id: str | None
    ) -> None:
        """Once for each topic and reason, though the client asks again every second."""
        if self._told.get(name) == (code, reason):
            return
        if name not in self._told and len(self._told) >= TOLD_MAX:
            del self._told[next(iter(self._told))]
        self._told[name] = code, reason
        rooms.events.warning(
            "auto_create_failed", topic=name, error=code.name, reason=reason, client_id=client_id
        )
