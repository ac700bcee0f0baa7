"""A look-up by time in whatever log a partition has.

Others have their turns between its steps, and may move the log, delete from it, or lead it anew;
then it looks again, so that what it finds was right at some moment of the look-up.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.log.log import Log
from ottla.broker.log.time_search import Steps, TimedOffset
from ottla.broker.replication.replicas import Partition
from ottla.protocol.errors import KafkaError


def steps_in(led: Callable[[], Partition], begin: Callable[[Log], Steps]) -> Steps:
    """A look-up in the log of a partition. It begins again if the partition lies in another log
    meanwhile, or is led anew, or if what was found has been deleted since.

    Raises what `led` does, when the partition is not led any more, and what the look-up does.
    """
    while True:
        partition = led()
        log, leader_epoch = partition.log, partition.leader_epoch
        log_start_offset = log.log_start_offset
        steps = begin(log)
        outcome: TimedOffset | None = None
        try:
            search = next(steps)
            while True:
                failure: KafkaError | OSError | None = None
                try:
                    outcome = yield search
                except (KafkaError, OSError) as error:
                    failure = error
                again = led()
                if (again, again.log, again.leader_epoch) != (partition, log, leader_epoch):
                    break
                search = steps.send(outcome) if failure is None else steps.throw(failure)
        except StopIteration as done:
            found: TimedOffset | None = done.value
            is_kept = found is not None and found[0] >= log.log_start_offset
            if is_kept or log.log_start_offset == log_start_offset:
                return found
        except FileNotFoundError:
            if log.log_start_offset == log_start_offset:
                raise
