"""Which batch has a wrong offset, where one begins below the end of the one before it.

The CRC of a batch leaves its base offset out, for the leader fills that in; so a bit that flips
there leaves a batch that is sound but for its number. Offsets ascend in every log, and may jump:
compaction leaves gaps, and so does a repair. A jump alone is therefore no fault. But where `second`
begins below the end of `first`, one of the two is wrong, and the room between their neighbours says
which: a batch is at home where it has as many offsets as it needs.

    before | first | second | bound       before: the offset behind the batch before `first`
                                          bound: where the batch behind `second` begins; if there
                                          is none, what is durable ends, or the segment has to
| `first` has room between `before` and `second` | `second` has room between `first` and `bound` | |
|---|---|---|
| no | - | `second` is wrong: `first` follows the one before it, or nearly so |
| yes | no | `first` is wrong: it jumped over all that follows it |
| yes | yes | nobody can tell, so the one that came first is believed |

Of one wrong batch among right ones the rule never blames another, a right one has its room: but for
a wrong one that was not durable, behind a gap and the last durable batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Span(NamedTuple):
    """The offsets of a batch, and the position behind it in its file."""

    first_offset: int
    last_offset: int
    end: int

    @property
    def records(self) -> int:
        return self.last_offset - self.first_offset + 1


SpanAt = Callable[[int, int], Span | None]
"""(position, offset): the sound batch that begins at the position, if its first is below that."""


def is_misnumbered(first: Span, second: Span, *, before: int, bound: int) -> bool:
    """Whether `first` has a wrong offset; see the module. Its own is not below `before`."""
    if second.first_offset > first.last_offset or bound <= second.last_offset:
        return False  # they agree, or `second` agrees with nobody
    first_has_room = second.first_offset - before >= first.records
    second_has_room = bound - (first.last_offset + 1) >= second.records
    return first_has_room and not second_has_room


def jumped_too_far(
    batch: Span, *, before: int, limit: int, span_at: SpanAt, durable_end: int = 0
) -> bool:
    """Whether the offset of a batch that does not begin at `before` is wrong, by what follows it.

    All offsets of its segment lie below `limit`, and those below `durable_end`, if it is known, are
    durable.
    """
    second = span_at(batch.end, batch.last_offset + 1)
    if second is None:
        return False
    third = span_at(second.end, limit)
    if third is not None:
        bound = third.first_offset
    elif second.last_offset < durable_end:
        bound = min(durable_end, limit)
    else:
        bound = limit
    return is_misnumbered(batch, second, before=before, bound=bound)
