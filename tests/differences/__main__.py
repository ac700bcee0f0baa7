"""Random sequences of requests to Ottla and to Apache Kafka 4.3.1, side by side.

    make differences
    make differences ARGS="--area data,groups --seeds 500 --first 1000"
    make differences ARGS="--keep"       leaves both brokers' directories, and says where

Every sequence comes of its area and seed alone. Where the answers differ and `known` has no reason
for it, the sequence is shortened and shown, each difference once. What does not come again is told
in a line, and is no failure.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tests.differences import cleaning, settling
from tests.differences.areas import AREAS
from tests.differences.comparing import Difference, differing
from tests.differences.known import KNOWN, Accepted
from tests.differences.known_shares import SHARES
from tests.differences.known_upgrades import UPGRADES
from tests.differences.peer import Peer
from tests.differences.playing import Duet
from tests.differences.requests import HangUp, Sequence
from tests.differences.shrinking import shortened
from tests.peers.servers import ApacheKafka, Ottla, Server

SETTINGS: dict[str, object] = {
    # Their times are of long ago, and they are to be read at last.
    "log.retention.ms": -1,
    # No session is to give way to another.
    "max.incremental.fetch.session.cache.slots": 200_000,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    # Neither speed nor crashes are asked for.
    "log.flush.interval.messages": 9_223_372_036_854_775_807,
    # Ottla does not compact; Kafka's cleaner would do so at a time of its own.
    "log.cleaner.enable": "false",
}
OTTLA_SETTINGS: dict[str, object] = {"node.id": 1}
TRIES_MAX = 250
REPEATS_MAX = 3
"""What is not seen again in so many was one of the moment: two connections, or two threads of a
broker, that came in another order."""
SHOWN_MAX, PLACES_MAX = 700, 6
"""An answer that is longer is cut: the places where it differs stand before it."""
console = Console(width=110, highlight=False)


class SmallKafka(ApacheKafka):
    """With the features that Ottla has: no eligible leaders, and no groups of Kafka Streams."""

    heap = "512M"
    features = ("eligible.leader.replicas.version=0", "streams.version=0")


@dataclass(slots=True)
class Run:
    """What was compared, and what was found."""

    duet: Duet
    number: int = 0
    sequences: Counter[str] = field(default_factory=Counter)
    shapes: Counter[str] = field(default_factory=Counter)

    def sequence(self, area: str, seed: int) -> None:
        """Plays one; shows what differs if it was not seen before."""
        whole = AREAS[area](seed)
        found = self._play(whole)
        self.sequences[area] += 1
        if found is None:
            return
        self.shapes[found.shape] += 1
        if self.shapes[found.shape] > 1:
            return
        last = found

        def differs(shorter: Sequence) -> bool:
            nonlocal last
            again = self._play(shorter)
            if again is None or again.shape != last.shape:
                return False
            last = again
            return True

        requests = self.duet.requests.copy()
        short = whole[: found.step + 1]
        if any(differs(short) for _ in range(REPEATS_MAX)):
            short = shortened(short, differs, TRIES_MAX)
            console.print(transcript(area, seed, short, last), markup=False)
        else:
            del self.shapes[found.shape]
            once = f"{area}, seed {seed}, once and not again: {found.shape[:SHOWN_MAX]}"
            console.print(once, markup=False)
        self.duet.requests = requests

    def _play(self, sequence: Sequence) -> Difference | None:
        self.number += 1
        found = self.duet.play(sequence, f"d{self.number:06d}x")
        for peer in self.duet.peers:
            cleaning.clean(peer, sequence)
        settling.applied(self.duet.kafka)
        return found


def transcript(area: str, seed: int, sequence: Sequence, found: Difference) -> str:
    """The sequence in a few lines, and both answers to its last request."""
    lines = [f"== {area}, seed {seed}: {found.shape[:SHOWN_MAX]}"]
    for step in sequence[: found.step + 1]:
        asked = [step] if isinstance(step, HangUp) else list(step)
        lines += [f"{'  ' if one is asked[0] else '  + '}{_cut(one)}" for one in asked]
    for path, kafka, ottla in islice(differing(found.kafka, found.ottla), PLACES_MAX):
        lines.append(f"  {path or 'the answer'}: Kafka {_cut(kafka)}, Ottla {_cut(ottla)}")
    lines += [f"  Kafka: {_cut(found.kafka)}", f"  Ottla: {_cut(found.ottla)}"]
    return "\n".join(lines)


def _cut(value: object) -> str:
    text = str(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _started(folder: Path, servers: list[Server]) -> Iterator[Peer]:
    """Both brokers, the second with a port that the first has left free."""
    for kind, own in ((SmallKafka, {}), (Ottla, OTTLA_SETTINGS)):
        server = kind(folder / kind.name)
        server.properties = {key: str(value) for key, value in (SETTINGS | own).items()}
        servers.append(server)
        server.start()
        yield Peer(server.name, server.port, str(server.data))


def _chosen(context: click.Context, parameter: click.Parameter, text: str) -> list[str]:
    areas = text.split(",") if text else list(AREAS)
    if unknown := set(areas) - AREAS.keys():
        raise click.BadParameter(f"{', '.join(unknown)}: there are {', '.join(AREAS)}")
    return areas


def _report(run: Run, seconds: float) -> None:
    duet = run.duet
    areas = ", ".join(f"{count} of {area}" for area, count in run.sequences.items())
    console.print(f"{areas}: {duet.requests.total()} requests in {seconds:.0f} s")
    by_api = ", ".join(f"{api.name} {count}" for api, count in duet.requests.most_common())
    console.print(f"by API: {by_api}")
    for reason, count in duet.accepted.met.most_common():
        console.print(f"known, {count} times: {reason}")
    if duet.unanswered:
        console.print(f"{duet.unanswered} sequences ended at a request that Kafka fails at")
    for shape, count in run.shapes.most_common():
        console.print(f"differs, {count} times: {shape[:SHOWN_MAX]}", markup=False)


@click.command()
@click.option("--seeds", default=100, show_default=True, help="Sequences of each area.")
@click.option("--first", default=0, show_default=True, help="The first seed.")
@click.option("--area", "areas", default="", callback=_chosen, help="Some of them, by commas.")
@click.option("--keep", is_flag=True, help="Leave the brokers' directories.")
def main(seeds: int, first: int, areas: list[str], keep: bool) -> None:
    """Compares what Ottla and Apache Kafka answer to random sequences of requests."""
    folder = Path(tempfile.mkdtemp(prefix="differences-"))
    servers: list[Server] = []
    started = time.monotonic()
    try:
        kafka, ottla = _started(folder, servers)
        for peer in (kafka, ottla):
            settling.warm(peer)
        run = Run(Duet(kafka, ottla, Accepted(KNOWN + UPGRADES + SHARES)))
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("")
            for seed in range(first, first + seeds):
                for area in areas:
                    found = len(run.shapes)
                    progress.update(task, description=f"{area} {seed}, {found} differences")
                    run.sequence(area, seed)
    finally:
        for server in servers:
            server.close()
        if keep:
            console.print(f"kept: {folder}")
        else:
            shutil.rmtree(folder)
    _report(run, time.monotonic() - started)
    sys.exit(1 if run.shapes else 0)


if __name__ == "__main__":
    main()
