"""Transactions of one producer, decided as a coordinator would."""

from __future__ import annotations

from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.control import build_marker
from ottla.protocol.records.record import Record
from tests.handlers.rooms import START_MS, House

PRODUCER_ID = 9


class Transactions:
    """Writes into one partition; what is written is visible when `house.append` has returned."""

    def __init__(self, house: House, topic: str, partition: int = 0) -> None:
        led = house.rooms.replicas.get(topic, partition)
        assert led is not None
        self._replicas = house.rooms.replicas
        self._led = led
        self._sequence = 0

    def write(self, *, committed: bool, batches: int = 1, value: bytes = b"v") -> int:
        """So many batches of one record, and the marker behind them; the offset of the first."""
        first_offset = self._led.log.log_end_offset
        for _ in range(batches):
            batch = build_batch(
                [Record(0, START_MS, None, value)],
                transactional=True,
                producer_id=PRODUCER_ID,
                producer_epoch=0,
                base_sequence=self._sequence,
            )
            self._sequence += 1
            self._replicas.append(self._led, memoryview(batch))
        marker = build_marker(
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            committed=committed,
            coordinator_epoch=0,
            timestamp=START_MS,
        )
        self._replicas.append_internal(self._led, memoryview(marker))
        return first_offset
