"""confluent-kafka (librdkafka): a member of a share group, MEMBER BOOTSTRAP TOPIC GROUP HOW.

Values are numbers. By HOW `work` each record gets what its number says, by its remainder of 7:

    3   rejected
    5   released when it comes for the first time, else accepted
    6   released, whenever it comes
    else accepted

and those of 74, 81, 88 and 95 are accepted only when the locks that they came with would have
ended, and are renewed until then, if the client can: librdkafka cannot. Each line is told when the
broker has taken that, with [partition, offset, delivery count, type] of each record; types are the
protocol's numbers. What it does not know to be taken, for the broker went meanwhile, is `lost`. By
`hold` it takes what comes and says nothing of it to the broker; by `implicit` it says nothing to
its client, which accepts what it has handed out. On SIGTERM it closes its consumer.

    {"t": 1, "event": "took", "at": [[0, 17, 1, 1]]}
    {"t": 2, "event": "lost", "at": [[0, 17, 1, 1]]}
    {"t": 3, "event": "held", "at": [[0, 17, 1, 0]]}
    {"t": 4, "event": "renewed", "at": [[0, 17, 1, 4]]}
"""

from __future__ import annotations

import json
import signal
import sys
import time

from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

ACCEPT, RELEASE, REJECT = 1, 2, 3
TYPES = {
    ACCEPT: AcknowledgeType.ACCEPT,
    RELEASE: AcknowledgeType.RELEASE,
    REJECT: AcknowledgeType.REJECT,
}
POLL_S = 0.2


class Stopped(Exception):
    """SIGTERM: leave."""


def main() -> None:
    def stop(_number: int, _frame: object) -> None:
        raise Stopped

    bootstrap, topic, group, how = sys.argv[1:]
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "implicit" if how == "implicit" else "explicit",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    signal.signal(signal.SIGTERM, stop)
    try:
        while True:
            _take(consumer, how)
    except Stopped:
        consumer.close()


def type_of(number: int, delivery_count: int) -> int:
    """What a record gets."""
    if number % 7 == 3:
        return REJECT
    if number % 7 == 6 or (number % 7 == 5 and delivery_count == 1):
        return RELEASE
    return ACCEPT


def _take(consumer: ShareConsumer, how: str) -> None:
    taken: list[tuple[int, int, int, int]] = []
    for message in consumer.poll(POLL_S):
        if message.error() is not None:
            continue
        number, count = int(message.value() or b"0"), message.delivery_count() or 0
        kind = {"hold": 0, "implicit": ACCEPT}.get(how, type_of(number, count))
        if how == "work":
            consumer.acknowledge(message, TYPES[kind])
        taken.append((message.partition() or 0, message.offset() or 0, count, kind))
    if how == "hold" and taken:
        _tell("held", taken)
        signal.pause()
    if taken:
        results = consumer.commit_sync(20.0)
        failed = {place.partition for place, error in results.items() if error is not None}
        _tell("took", [one for one in taken if one[0] not in failed])
        _tell("lost", [one for one in taken if one[0] in failed])


def _tell(event: str, at: list[tuple[int, int, int, int]]) -> None:
    print(json.dumps({"t": round(time.time() * 1000), "event": event, "at": at}), flush=True)


if __name__ == "__main__":
    try:
        main()
    except KafkaException as error:
        sys.exit(str(error))
