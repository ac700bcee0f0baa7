"""What a share fetch needs of the disk before it acquires: a worker reads it, see
`log/first_touch.py`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ottla.broker.log.first_touch import FirstReads, FirstTouches, Openings, Touch
from ottla.broker.share.batches import Headers
from ottla.broker.share.partition import SharePartition
from ottla.broker.share.sessions import Place
from ottla.protocol.errors import KafkaError

Held = tuple[Place, SharePartition]


def first_reads(
    held_up: Sequence[Held], touched: dict[Place, int], *, records: int, max_bytes: int
) -> FirstReads:
    """Steps to what the next attempt reads of these partitions, which are loaded: the indexes, and
    then the headers of batches, which they lead to. At the end `touched` has the offset of each
    from which that was done. What cannot be read is the attempt's to tell.
    """
    offsets: dict[Place, int] = {}
    touches: list[Touch] = []
    for place, share in held_up:
        assert share.window is not None
        offset = offsets[place] = share.window.next_offset()
        log = share.partition.log
        with suppress(KafkaError, OSError):
            touches += log.places_to_touch(offset, upper=share.upper, openings=Openings(0))
            if share.rules.read_committed:
                touches += log.transactions_to_touch(offset)
    yield FirstTouches(touches)
    headers: list[Touch] = []
    for place, share in held_up:
        with suppress(KafkaError, OSError):
            headers += _headers(share, offsets[place], records, max_bytes)
        yield None
    yield FirstTouches(headers)
    touched.update(offsets)


def _headers(share: SharePartition, offset: int, records: int, max_bytes: int) -> list[Touch]:
    """Those that are looked at where so many records are acquired from an offset on, by each of
    those who wait: each will find that the one before has moved on."""
    window, log, limits = share.window, share.partition.log, share.rules.limits
    assert window is not None
    piece = log.read(offset, max_bytes=max_bytes, upper=share.upper, at_least_one=True)
    if piece is None:
        return []
    span = window.span(offset, min(records * max(len(share.waiters), 1), limits.record_locks))
    return [Headers(log.home.disk, piece, offset, span)]
