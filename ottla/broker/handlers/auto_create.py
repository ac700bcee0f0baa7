"""Auto-creation: a topic that a client asks for and that does not exist comes to be.

The request that asks is answered UNKNOWN_TOPIC_OR_PARTITION, as Kafka does, and the client asks
again; meanwhile the topic is created. However many clients ask for a name, it is created once.
Names beyond the limits are left alone: who asked will ask again.

Internal topics are not created here: each comes with the coordinator that it belongs to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import islice
from typing import TYPE_CHECKING, Any

from ottla.broker.controller.names import topic_name_fault
from ottla.broker.handlers.topic_names import INTERNAL_TOPICS
from ottla.broker.handlers.topics import create_topics
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

Spawn = Callable[[Coroutine[Any, Any, None], str], None]


class AutoCreation:
    """The names under way; one per broker. `spawn` runs a supervised coroutine by its name."""

    __slots__ = ("_pending", "_running", "_spawn")

    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._pending: dict[str, None] = {}
        self._running = False

    def __repr__(self) -> str:
        return f"<AutoCreation pending={len(self._pending)}>"

    def request(self, rooms: Rooms, names: list[str]) -> None:
        """Begins to create those names that may be created and are not under way."""
        if not rooms.config.auto_create_topics_enable:
            return
        for name in names:
            if len(self._pending) >= PENDING_MAX:
                break
            if name not in INTERNAL_TOPICS and topic_name_fault(name) is None:
                self._pending[name] = None
        if self._pending and not self._running:
            self._running = True
            self._spawn(self._create_pending(rooms), "auto-create")

    async def _create_pending(self, rooms: Rooms) -> None:
        try:
            while self._pending:
                names = list(islice(self._pending, BATCH_MAX))
                await _create(rooms, names)
                for name in names:
                    del self._pending[name]
                await asyncio.sleep(len(names) / TOPICS_PER_SECOND)
        finally:
            self._pending.clear()
            self._running = False


async def _create(rooms: Rooms, names: list[str]) -> None:
    wanted = [
        CreateTopicsRequest.CreatableTopic(
            name, rooms.config.num_partitions, rooms.config.default_replication_factor
        )
        for name in names
    ]
    try:
        response = await create_topics(rooms, CreateTopicsRequest(wanted))
    except KafkaError as error:
        rooms.events.warning("auto_create_failed", topics=names, error=error.code.name)
        return
    for result in response.topics:
        if result.error_code == ErrorCode.NONE:
            rooms.events.info("topic_auto_created", topic=result.name)
        elif result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            rooms.events.warning(
                "auto_create_failed",
                topics=[result.name],
                error=ErrorCode(result.error_code).name,
                reason=result.error_message,
            )
