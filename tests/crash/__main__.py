"""kill -9 of a real broker while producers write with acks=all, many times on one directory.

    make crash                              50 rounds
    make crash ARGS="--rounds 10"           a short form
    make crash ARGS="--rounds 50 --seed 7"  the same moments and records again
    make crash ARGS="--rounds 3 --kafka"    the same against Apache Kafka

Two raw idempotent producers keep five requests under way each and send what a crash left
unanswered once more under the old sequence numbers; librdkafka writes idempotent, plain and in
transactions beside them. In one round of eight the broker is killed a second time while it
recovers. At the end: nothing acknowledged is missing or lies at another offset, offsets are dense,
nothing of an idempotent producer is doubled or out of order, transactions are there as a whole or
not at all, and the broker was ready again within a second in nine rounds of ten. On a machine so
busy that a start takes that long by itself, a start on an empty directory, made just before, is
what a round is compared to.
"""

from __future__ import annotations

import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console

from tests.crash import oracle, transfers
from tests.crash.transfers import TransferWriter
from tests.crash.writers import LibraryWriter, RawWriter
from tests.peers import topics
from tests.peers.servers import ApacheKafka, Ottla, Server

RAW_PARTITIONS = 2
PARTITIONS = 3
READY_SECONDS_MAX = 1.0
# What a crash may add to a start on an empty directory where the second is missed.
ADDED_SECONDS_MAX = 0.3
# One round in ten may meet a moment in which the machine did something else.
IN_TIME_SHARE_MIN = 0.9
READY_SECONDS_MAX_KAFKA = 60.0
UNANSWERED_SHARE_MIN = 0.8
LIFE_SECONDS = (0.05, 0.6)
SECOND_KILL_ODDS = 8
SECOND_KILL_SECONDS = (0.0, 0.3)
WARM_UP_SECONDS_MAX = 60.0


@dataclass
class Round:
    """What one crash met."""

    lived: float
    unanswered: int
    outstanding: int
    twice: bool
    ready: float = 0.0
    empty: float = 0.0


@dataclass
class Crashes:
    """The writers, the broker, and the rounds so far."""

    server: Server
    random: random.Random
    up: threading.Event = field(default_factory=threading.Event)
    raw: list[RawWriter] = field(default_factory=list)
    library: list[LibraryWriter] = field(default_factory=list)
    transfers: list[TransferWriter] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)

    @property
    def writers(self) -> list[RawWriter | LibraryWriter | TransferWriter]:
        return [*self.raw, *self.library, *self.transfers]

    def make_topics(self) -> None:
        counts = {"raw": RAW_PARTITIONS, "idempotent": PARTITIONS, "plain": PARTITIONS}
        topics.create(self.server.bootstrap, counts, {"flush.messages": "1"})
        topics.create(self.server.bootstrap, {transfers.TOPIC: transfers.ACCOUNTS})

    def start_writers(self) -> None:
        port = self.server.port
        seeds = [self.random.randrange(1 << 32) for _ in range(RAW_PARTITIONS + 2)]
        self.raw = [
            RawWriter("raw", number, port, self.up, seeds[number])
            for number in range(RAW_PARTITIONS)
        ]
        self.library = [
            LibraryWriter(name, port, seed, idempotent=name == "idempotent", partitions=PARTITIONS)
            for name, seed in zip(("idempotent", "plain"), seeds[RAW_PARTITIONS:], strict=True)
        ]
        self.transfers = [
            TransferWriter(number, port, self.random.randrange(1 << 32))
            for number in range(transfers.WRITERS)
        ]
        self.up.set()
        for writer in self.writers:
            writer.start()

    def _answers(self) -> list[int]:
        return [writer.answered() for writer in self.writers]

    def _wait_for_answers(self) -> None:
        """Every writer has had an answer since the broker is up: requests are under way."""
        before = self._answers()
        deadline = time.monotonic() + WARM_UP_SECONDS_MAX
        while any(new == old for new, old in zip(self._answers(), before, strict=True)):
            assert time.monotonic() < deadline, "the writers get no answers"
            assert not self.failures(), self.failures()
            time.sleep(0.005)

    def failures(self) -> list[str]:
        return [line for writer in self.writers for line in writer.journal.failures]

    def crash(self) -> Round:
        """One round: life, kill -9, start; returns what it met."""
        self._wait_for_answers()
        lived = self.random.uniform(*LIFE_SECONDS)
        time.sleep(lived)
        resets = [len(writer.unanswered) for writer in self.raw]
        self.server.kill()
        self.up.clear()
        outstanding = sum(writer.outstanding() for writer in self.library)
        twice = self.random.randrange(SECOND_KILL_ODDS) == 0
        if twice:
            self.server.spawn()
            time.sleep(self.random.uniform(*SECOND_KILL_SECONDS))
            self.server.kill()
        empty = self._start_of_nothing()
        ready = self.server.start()
        unanswered = sum(
            writer.unanswered[seen] if len(writer.unanswered) > seen else 0
            for writer, seen in zip(self.raw, resets, strict=True)
        )
        self.up.set()
        done = Round(lived, unanswered, outstanding, twice, ready, empty)
        self.rounds.append(done)
        return done

    def _start_of_nothing(self) -> float:
        """Seconds of a start on an empty directory, on the machine as it is just now."""
        server = type(self.server)(self.server.directory / "empty")
        try:
            return server.start()
        finally:
            server.close()
            shutil.rmtree(server.directory)

    def finish(self) -> None:
        for writer in self.writers:
            writer.finish()
        for writer in self.writers:
            writer.join()


def judge_transfers(writers: list[TransferWriter], bootstrap: str, console: Console) -> list[str]:
    found, wrong = transfers.read_committed(bootstrap)
    for writer in writers:
        wrong += writer.journal.failures
        wrong += transfers.complaints(writer.name, writer.transfers, found)
        count = len(writer.transfers)
        console.print(f"{writer.name}: {writer.answered()} of {count} known to be committed")
    return wrong


def judge(crashes: Crashes, ready_max: float, console: Console) -> list[str]:
    """Reads everything back; returns what is wrong."""
    wrong: list[str] = []
    journals = {"raw": [writer.journal for writer in crashes.raw]}
    journals |= {writer.journal.topic: [writer.journal] for writer in crashes.library}
    for topic, written in journals.items():
        count = RAW_PARTITIONS if topic == "raw" else PARTITIONS
        partitions = oracle.read(crashes.server.bootstrap, topic, count)
        wrong += oracle.complaints(written, topic, partitions)
        for journal in written:
            console.print(
                f"{journal.name}: {len(journal.acknowledged)} records acknowledged, "
                f"{oracle.doubled(journal, partitions)} in the log twice"
            )
    wrong += judge_transfers(crashes.transfers, crashes.server.bootstrap, console)
    with_unanswered = sum(done.unanswered > 0 for done in crashes.rounds)
    if with_unanswered < UNANSWERED_SHARE_MIN * len(crashes.rounds):
        wrong.append(f"requests were unanswered in only {with_unanswered} rounds")
    ready = [done.ready for done in crashes.rounds]
    console.print(
        f"{len(ready)} rounds, requests unanswered at the kill in {with_unanswered}; "
        f"ready after {statistics.median(ready):.2f} s, at most {max(ready):.2f} s; "
        f"on an empty directory {statistics.median(done.empty for done in crashes.rounds):.2f} s"
    )
    in_time = sum(
        done.ready < max(ready_max, done.empty + ADDED_SECONDS_MAX) for done in crashes.rounds
    )
    if in_time < IN_TIME_SHARE_MIN * len(ready):
        wrong.append(f"ready again within {ready_max:g} s in only {in_time} rounds")
    return wrong


@click.command()
@click.option("--rounds", default=50, show_default=True)
@click.option("--seed", type=int, help="Without it one is drawn and printed.")
@click.option("--kafka", is_flag=True, help="Crash Apache Kafka instead.")
def main(rounds: int, seed: int | None, kafka: bool) -> None:
    """Crash the broker and check what it kept."""
    console = Console(width=110, highlight=False)
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    console.print(f"seed {seed}")
    folder = Path(tempfile.mkdtemp(prefix="ottla-crash-"))
    server: Server = ApacheKafka(folder) if kafka else Ottla(folder)
    crashes = Crashes(server, random.Random(seed))
    keep = True
    try:
        server.start()
        crashes.make_topics()
        crashes.start_writers()
        for number in range(rounds):
            done = crashes.crash()
            console.print(
                f"{number + 1:3} lived {done.lived:.2f} s, {done.unanswered:2} requests and "
                f"{done.outstanding:3} library records unanswered, ready in {done.ready:.2f} s"
                f"{', killed again while it recovered' if done.twice else ''}"
            )
        crashes.finish()
        ready_max = READY_SECONDS_MAX_KAFKA if kafka else READY_SECONDS_MAX
        wrong = judge(crashes, ready_max, console)
        keep = bool(wrong)
    finally:
        crashes.up.set()
        for writer in crashes.writers:
            writer.finish()
        server.close()
        if keep:
            console.print(f"kept: {folder}")
        else:
            shutil.rmtree(folder)
    for line in wrong:
        console.print(f"FAILED {line}", markup=False)
    if wrong:
        console.print(f'reproduce: make crash ARGS="--rounds {rounds} --seed {seed}"')
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
