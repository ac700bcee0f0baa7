"""The model of a log on a disk that fails: refused and broken writes, syncs and reads.

What was durable stays; a refusal changes nothing; what failed for good takes the log out of service
until the process is started again, by the rules of `crash`. Beside the faults, appends as a
follower takes them: several batches at once.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import HEADER_SIZE, stamp
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from ottla.testing.disk import TOTAL_BYTES
from tests.log.log_model import CLOCK, NO_ZERO_AT_THE_END, PRODUCERS, LogModel
from tests.log.logs import DIRECTORY, read_all

# Operations that a life may do without, so that what they hide is seen: each is kept or not.
_OPTIONAL = ("crash", "damage_index", "delete_records", "delete_segments", "truncate", "follow")


class FaultyModel(LogModel):
    """One life of a log; its operations and faults are drawn once, as its configuration is."""

    @property
    def operations(self) -> list[tuple[int, Callable[[], None]]]:
        drawn = [
            *super().operations,
            (6, self.follow),
            (2, self.fill_disk),
            (1, self.fail_write),
            (1, self.fail_sync),
            (2, self.fail_read),
        ]
        chance = random.Random(f"{self.seed} operations")
        left_out = {one for one in _OPTIONAL if chance.random() < 0.25}
        return [(weight, one) for weight, one in drawn if one.__name__ not in left_out]

    def follow(self) -> None:
        """Several batches at once, as a follower or the copy of a move takes them."""
        producer_id = self.rng.choice((-1, *PRODUCERS))
        if producer_id in self.open:
            producer_id = -1
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        base_offset = self.log.log_end_offset
        made: list[tuple[int, bytearray, int]] = []
        for _ in range(self.rng.randrange(1, 6)):
            count = self.rng.choice((1, 2, 3))
            value = bytes(self.rng.randrange(40))
            batch = build_batch(
                [Record(0, self._tick(), b"k", value, NO_ZERO_AT_THE_END)] * count,
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=sequence,
            )
            stamp(memoryview(batch), base_offset, self.epoch)
            made.append((base_offset, batch, sequence))
            base_offset += count
            sequence += count if producer_id >= 0 else 0
        records = memoryview(bytearray(b"".join(batch for _, batch, _ in made)))
        result = self.log.append_as_follower(records, now_ms=CLOCK)
        assert (result.base_offset, result.last_offset) == (made[0][0], base_offset - 1)
        for at, batch, first_sequence in made:
            self._note(at, memoryview(batch), producer_id, first_sequence)
        self.log.set_high_watermark(self.log.visible_end)

    def fill_disk(self) -> None:
        """No room: what is refused has changed nothing, and what was taken is whole."""
        self.disk.free = self.rng.choice((0, 10, 100, 1000))
        for _ in range(3):
            before = self.log.log_end_offset
            # Of several batches some may be whole on disk, and a crash may show them.
            refused = _refusal(self.append if self.disk.free else self.follow)
            assert refused is None or self.log.log_end_offset == before
            assert self.log.failed is None
        self.disk.free = TOTAL_BYTES

    def fail_write(self) -> None:
        """A write breaks, perhaps with a header done: the log fails, and a start makes it whole."""
        fault = self.disk.inject(
            "pwrite",
            errno.EIO,
            path=DIRECTORY,
            passing=self.rng.randrange(3),
            written=self.rng.choice((0, 1, HEADER_SIZE)),
        )
        undo = self.disk.inject("truncate", errno.EIO, path=".log", times=self.rng.randrange(2))
        for _ in range(4):
            before = self.log.log_end_offset
            if _breaks(self.append):
                assert self.log.log_end_offset == before
                self._is_out_of_service()
                self.crash()
                break
        fault.times = undo.times = 0

    def fail_sync(self) -> None:
        """A sync breaks: nothing more is acknowledged, whatever becomes of the page cache."""
        call = self.rng.choice(("sync", "sync", "sync_dir"))
        fault = self.disk.inject(call, errno.EIO, path=DIRECTORY, passing=self.rng.randrange(2))
        ticket = self.log.begin_flush()
        if ticket is not None:
            durable_end = self.log.durable_end
            try:
                ticket.sync()
            except OSError:
                assert self.log.durable_end == durable_end
                self._is_out_of_service()
                self.crash()
            else:
                self.log.finish_flush(ticket)
                self.log.set_high_watermark(self.log.visible_end)
        fault.times = 0

    def fail_read(self) -> None:
        """A read breaks: it raises or answers the truth, and the next one is as if nothing was."""
        call = self.rng.choice(("pread", "open", "size", "map"))
        fault = self.disk.inject(call, errno.EIO, passing=self.rng.randrange(3))
        _breaks(self.rng.choice((self.read, self.look_up)))
        fault.times = 0
        visible = [one for one in self.batches if one.last_offset >= self.start]
        assert read_all(self.log) == b"".join(one.data for one in visible)

    def _is_out_of_service(self) -> None:
        assert self.log.failed is not None
        end = self.log.log_end_offset
        assert _refusal(self.append) is not None
        assert self.log.log_end_offset == end


def _refusal(operation: Callable[[], None]) -> KafkaError | None:
    """What an operation was refused with: KAFKA_STORAGE_ERROR, or nothing."""
    refused: KafkaError | None = None
    try:
        operation()
    except KafkaError as error:
        refused = error
    assert refused is None or refused.code is ErrorCode.KAFKA_STORAGE_ERROR
    return refused


def _breaks(operation: Callable[[], None]) -> bool:
    """Whether an operation meets EIO."""
    broken: OSError | None = None
    try:
        operation()
    except OSError as error:
        broken = error
    assert broken is None or broken.errno == errno.EIO
    return broken is not None
