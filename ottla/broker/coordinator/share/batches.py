"""Ranges of records that share one delivery state, and how a later range goes over earlier ones.

Of two that say something of the same record, the one with the greater delivery count counts, of
two with equal counts the one further on its way (available, acknowledged, archived): a record is
never delivered less often than before, and what is settled stays settled. So the order in which
they are merged does not matter. Ranges that touch and say the same become one.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

AVAILABLE = 0
ACQUIRED = 1
"""Never written: who holds a record is not known after a restart."""
ACKNOWLEDGED = 2
ARCHIVED = 4

NO_OFFSET = -1
FEW = 8
"""So many times fewer new batches than there are already are worth a place of their own each."""


class StateBatch(NamedTuple):
    """Records `first` to `last`, both included, and how often they were delivered."""

    first: int
    last: int
    state: int
    delivery_count: int


def merged(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """The batches without overlap, in order; what lies below the start is left out.

    A start of -1 leaves nothing out.
    """
    coming = sorted(batch for batch in batches if batch.last >= start_offset)
    result: list[StateBatch] = []
    open_: list[tuple[int, int, int]] = []  # (-count, -state, last), the one that counts first
    position = start_offset
    index = 0
    while index < len(coming) or open_:
        while open_ and open_[0][2] < position:
            heapq.heappop(open_)
        if not open_:
            if index == len(coming):
                break
            position = max(position, coming[index].first)
        while index < len(coming) and coming[index].first <= position:
            batch = coming[index]
            index += 1
            if batch.last >= position:
                heapq.heappush(open_, (-batch.delivery_count, -batch.state, batch.last))
        if not open_:
            continue
        count, state, last = open_[0]
        if index < len(coming):
            last = min(last, coming[index].first - 1)
        _append(result, StateBatch(position, last, -state, -count))
        position = last + 1
    return tuple(result)


def merged_into(
    known: Sequence[StateBatch], new: Sequence[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """The same as `merged` of both, where `known` is a result of it for an earlier start, or for
    the same: what lies far from the new ones is not looked at, so records that are acknowledged
    one by one do not cost by all that were before them."""
    if len(new) * FEW > len(known):
        return merged([*known, *new], start_offset)
    result = list(known)
    for batch in new:
        begin = bisect_left(result, (batch.first,))
        if begin and result[begin - 1].last >= batch.first - 1:
            begin -= 1
        end = bisect_left(result, (batch.last + 2,))
        result[begin:end] = merged([*result[begin:end], batch], NO_OFFSET)
    begin = bisect_left(result, (start_offset,))
    if begin and result[begin - 1].last >= start_offset:
        begin -= 1
        result[begin] = result[begin]._replace(first=start_offset)
    return tuple(result[begin:])


def _append(result: list[StateBatch], batch: StateBatch) -> None:
    if result:
        before = result[-1]
        if before.last + 1 == batch.first and before[2:] == batch[2:]:
            result[-1] = StateBatch(before.first, batch.last, batch.state, batch.delivery_count)
            return
    result.append(batch)
