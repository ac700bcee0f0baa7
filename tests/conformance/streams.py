"""An application of Kafka Streams that counts exactly once, through the death of both sides.

    python -m tests.conformance.streams [--kafka]

The application (java/StreamsApp.java) counts the words of lines and joins the counts with a table
of colours. It is killed with SIGKILL while it counts, another takes its place, and then the broker
is killed and started again while that one counts. What readers of committed records see of each
word must be one number after the other, up to the number of lines: nothing twice, nothing left out.
`make conformance` runs it, too.

With --kafka Apache Kafka is the broker.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from signal import SIGKILL

import click
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import OFFSET_BEGINNING

from tests.conformance import clients, scenes
from tests.conformance.scenes import Kind, MemberProcess, java
from tests.peers import topics
from tests.peers.servers import ApacheKafka, Ottla, Server

LINES, COLOURS, COLOURED = "lines", "colours", "coloured"
PARTITIONS = 2
WORDS = {"grass": "green", "sky": "blue", "snow": "white", "coal": "black", "brick": "red"}
LINES_A_PART = 10_000
"""Lines that are written before, between and after the two kills."""
PROGRESS = 100
"""Counts of each word that are seen before a kill: there is work, and most is still to be done."""
SECONDS_MAX = 60.0
KINDS = (Kind(replace(clients.JAVA, name="kafka-streams"), java("StreamsApp.java")),)


class Reader:
    """The counts of each word that are committed, in their order."""

    def __init__(self, bootstrap: str) -> None:
        self.counts: dict[str, list[int]] = {word: [] for word in WORDS}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        assigned = [TopicPartition(COLOURED, i, OFFSET_BEGINNING) for i in range(PARTITIONS)]
        self._consumer.assign(assigned)

    def close(self) -> None:
        self._consumer.close()

    def have(self, count: int) -> bool:
        """Reads on; whether each word has been counted so far."""
        for message in self._consumer.consume(1000, 0.1):
            key, value = message.key(), message.value()
            if message.error() is None:
                assert key is not None
                assert value is not None
                colour, _, number = value.decode().partition(" ")
                word = key.decode()
                assert colour == WORDS[word], f"{word} is {colour}"
                self.counts[word].append(int(number))
        return self.least >= count

    @property
    def least(self) -> int:
        """How far the word that was counted least has come."""
        return min(numbers[-1] if numbers else 0 for numbers in self.counts.values())

    def check(self, lines: int) -> None:
        for word, numbers in self.counts.items():
            gaps = [pair for pair in pairwise(numbers) if pair[1] != pair[0] + 1]
            assert not gaps, f"{word} was counted {gaps[:3]}"
            assert numbers[-1] == lines, f"{word} was counted to {numbers[-1]} of {lines}"


class App:
    """One process of the application."""

    def __init__(self, command: tuple[str, ...], server: Server, state: Path) -> None:
        self.states: list[str] = []
        arguments = (server.bootstrap, str(state), LINES, COLOURS, COLOURED)
        self.process = MemberProcess(
            (*command, *arguments), lambda told: self.states.append(told["state"])
        )

    def wait_for(self, state: str) -> str:
        return scenes.wait(
            lambda: state in self.states,
            SECONDS_MAX,
            lambda: f"the application is not {state}: {self.states} {self.process.tail()}",
        )

    def end(self) -> None:
        if not self.process.is_over:
            self.process.end(SIGKILL)


def _act(kind: Kind, server: Server) -> list[str]:
    steps: list[str] = []
    with ExitStack() as held:
        held.callback(server.close)
        server.start()
        topics.create(server.bootstrap, dict.fromkeys((LINES, COLOURS, COLOURED), PARTITIONS))
        # What is joined has to lie in the partition that a Java producer takes for it.
        settings = {"bootstrap.servers": server.bootstrap, "partitioner": "murmur2", "log_level": 0}
        producer = Producer(settings)
        for word, colour in WORDS.items():
            producer.produce(COLOURS, colour, key=word)
        reader = Reader(server.bootstrap)
        held.callback(reader.close)

        def write_part() -> None:
            for number in range(LINES_A_PART):
                producer.produce(LINES, " ".join(WORDS), partition=number % PARTITIONS)
            assert producer.flush(SECONDS_MAX) == 0, "lines were not answered"

        def start() -> App:
            app = App(kind.command, server, server.directory / "state")
            held.callback(app.end)
            return app

        def counted(count: int, app: App) -> str:
            return scenes.wait(
                lambda: reader.have(count),
                SECONDS_MAX,
                lambda: f"{reader.least} of {count} counted: {app.states} {app.process.tail()}",
            )

        app = start()
        steps.append(app.wait_for("RUNNING"))
        write_part()
        steps.append(counted(PROGRESS, app))
        steps.append(f"(killed at {reader.least})")
        app.end()
        app = start()
        write_part()
        steps.append(counted(LINES_A_PART + PROGRESS, app))
        steps.append(f"(broker killed at {reader.least})")
        server.kill()
        server.start()
        write_part()
        steps.append(counted(3 * LINES_A_PART, app))
        app.process.say("end")
        steps.append(app.wait_for("NOT_RUNNING"))
        reader.check(3 * LINES_A_PART)
    return steps


def run(names: list[str], *, is_kafka: bool = False) -> scenes.Ran:
    """Plays it with Ottla, or with Apache Kafka."""

    def act(kind: Kind, folder: Path) -> list[str]:
        broker = ApacheKafka if is_kafka else Ottla
        return _act(kind, broker(folder / kind.name))

    return scenes.run(KINDS, names, act, at_once=1, what="streams application")


@click.command()
@click.option("--kafka", "is_kafka", is_flag=True, help="Apache Kafka is the broker.")
def main(is_kafka: bool) -> None:
    """Play it alone."""
    scenes.report("streams application", lambda: run([], is_kafka=is_kafka))


if __name__ == "__main__":
    main()
