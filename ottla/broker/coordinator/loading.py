"""A shard is loaded: the log of its partition is read from start to end and replayed.

Short logs are replayed at once. A long one is read in pieces by a worker, and replayed on the loop
a few records at a time, so that nobody else waits for it: what is written anew comes in batches of
thousands. Nobody sees the shard before all is replayed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Protocol

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.coordinator.record_format import RecordFormat, unknown_types
from ottla.broker.log.file_slice import FileSlice
from ottla.broker.log.log import UPPER_LOG_END, Log
from ottla.broker.ports import Clock
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import (
    HEADER_SIZE,
    MAGIC,
    NO_PRODUCER_ID,
    BatchHeader,
    check_crc,
    read_header,
)
from ottla.protocol.records.control import read_marker
from ottla.protocol.records.record import iterate_records

READ_BYTES = 1024 * 1024
SHORT_LOG_BYTES = 64 * 1024
"""Some hundred records: milliseconds."""
RECORDS_PER_TURN = 200
"""About 3 ms of replay, after which others get the loop."""


class LoadFailed(Exception):
    """The log cannot be read, or holds what cannot be understood."""


class Replayed(Protocol):
    def apply(self, record: CoordinatorRecord, now_wall_ms: int, producer_id: int = -1) -> None: ...

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None: ...


class Loader:
    """Replays one log into one shard, once. `records` counts what was applied."""

    def __init__(
        self, log: Log, shard: Replayed, clock: Clock, record_format: RecordFormat
    ) -> None:
        self._log = log
        self._decode = record_format.decode
        self._shard = shard
        self._now_wall_ms = clock.wall_ms()
        self._offset = log.log_start_offset
        self._unknown: dict[bytes, None] = {}
        self.records = 0

    @property
    def is_short(self) -> bool:
        return self._log.size_bytes <= SHORT_LOG_BYTES

    @property
    def unknown_types(self) -> list[int]:
        """Types of records that were left alone."""
        return unknown_types(self._unknown)

    def load_now(self) -> None:
        """Loads without giving way. Raises LoadFailed."""
        while (piece := self._next_piece()) is not None:
            for _ in self._replay(_read(piece)):
                pass

    async def load(self, workers: Executor, given_up: Callable[[], bool]) -> None:
        """Loads beside everything else, until it is done or `given_up`. Raises LoadFailed."""
        loop = asyncio.get_running_loop()
        since_turn = 0
        while not given_up() and (piece := self._next_piece()) is not None:
            piece.file.pin()
            try:
                data = await loop.run_in_executor(workers, _read, piece)
            finally:
                piece.file.unpin()
            for _ in self._replay(data):
                since_turn += 1
                if since_turn >= RECORDS_PER_TURN:
                    since_turn = 0
                    await asyncio.sleep(0)
                    if given_up():
                        return

    def _next_piece(self) -> FileSlice | None:
        log = self._log
        # What was compacted away or deleted meanwhile need not be replayed.
        self._offset = max(self._offset, log.log_start_offset)
        try:
            return log.read(
                self._offset, max_bytes=READ_BYTES, upper=UPPER_LOG_END, at_least_one=True
            )
        except (KafkaError, OSError) as error:
            raise LoadFailed(f"{log!r} cannot be read at {self._offset}: {error}") from error

    def _replay(self, data: bytes) -> Iterator[None]:
        """The whole batches of a piece, a record or a marker at a step; moves on behind each."""
        view = memoryview(data)
        position = 0
        while position + HEADER_SIZE <= len(view):
            header = read_header(view, position)
            end = position + header.size
            if header.size < HEADER_SIZE or end > len(view):
                break
            self._check(view[position:end], header)
            self._offset = header.last_offset + 1
            yield from self._replay_batch(view[position:end], header)
            position = end
        if not position:
            raise LoadFailed(f"{self._log!r} has no whole batch at {self._offset}")

    def _check(self, batch: memoryview, header: BatchHeader) -> None:
        """What is damaged must not be taken for another offset, or another state, and be written
        anew as such. No CRC covers the offset of a batch."""
        is_whole = header.magic != MAGIC or check_crc(batch)
        if not (is_whole and self._offset <= header.last_offset < self._log.log_end_offset):
            raise LoadFailed(f"{self._log!r} is damaged at {header.base_offset}")

    def _replay_batch(self, view: memoryview, header: BatchHeader) -> Iterator[None]:
        shard = self._shard
        try:
            if header.is_control:
                marker = read_marker(view)
                if marker is not None:
                    shard.end_transaction(marker.producer_id, is_commit=marker.committed)
                yield
                return
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
            for one in iterate_records(view):
                record = self._decode(one.key, one.value)
                if record is not None:
                    shard.apply(record, self._now_wall_ms, producer_id)
                elif one.key is not None:
                    self._unknown[one.key[:2]] = None
                self.records += 1
                yield
        except KafkaError as error:
            where = f"{self._log!r} at {header.base_offset}"
            raise LoadFailed(f"{where} cannot be replayed: {error}") from error


def _read(piece: FileSlice) -> bytes:
    try:
        data = piece.read()
    except OSError as error:
        raise LoadFailed(str(error)) from error
    if not data:
        raise LoadFailed(f"{piece!r} is empty")
    return data
