"""The coordinators' topics are kept short: a periodic job, in place of compaction.

Where most records of a partition are out of date, all that its shard holds is written anew. When
that is durable what lies before it is deleted: a replay begins with records that make all there is.
While transactions are open it begins before them, at a place behind which that is true.
Segments below the log start go with the next retention.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ottla.broker.coordinator.runtime import Coordinator, S
from ottla.broker.replication.replicas import Partition

REDUNDANT_MIN = 1000
"""Records of a partition that may be out of date before they are deleted; a replay of so many takes
some milliseconds."""


def prune(coordinator: Coordinator[S], redundant_min: int = REDUNDANT_MIN) -> Iterator[None]:
    """Each partition that is led here and needs it, one at a step: it takes the loop for as long as
    its records take to be encoded."""
    for runner, shard in coordinator.loaded():
        if runner.shard is not shard:
            continue
        log = runner.partition.log
        held = range(max(log.log_start_offset, runner.anew_from), log.log_end_offset)
        if len(held) - 2 * shard.record_count < redundant_min:
            continue
        anew = shard.written_anew(runner.now(), held)
        if anew is None:
            continue  # it can be at another time
        # What is only on its way to the log now may stay.
        runner.anew_from = anew.begins_at
        anew.outcome.due.append(partial(_delete_before, runner.partition, anew.begins_at))
        runner.perform(anew.outcome)
        yield


def _delete_before(partition: Partition, offset: int) -> None:
    log = partition.log
    if partition.online and log.failed is None:
        log.delete_records(min(offset, log.high_watermark))
