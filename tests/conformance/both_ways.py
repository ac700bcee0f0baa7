"""One directory, two brokers: what Apache Kafka has filled, Ottla serves equal, and the other way.

    make files                                          three rounds, 20,000 records a topic
    make files ARGS="--records 2000 --rounds 1"         the short form, for CI

Kafka fills two log dirs: five codecs, idempotent producers, a compacted topic that its cleaner has
been through, transactions committed, aborted and left open. It is stopped, or killed; Ottla opens
the directory, and readers of all and of committed data must be given the same records at the same
offsets, and groups of every kind (carried_groups.py) must be as they were and go on. Then Ottla
fills two dirs with the same, but for the cleaner, and Apache Kafka opens them.
`ottla log verify --deep` looks at every file before and after.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tests.conformance import carried_groups
from tests.conformance.filling import Contents, Filled, fill, read_contents
from tests.peers import jars
from tests.peers.servers import ApacheKafka, Ottla, Server

CLEANER_SECONDS_MAX = 120
SETTINGS = {
    # The cleaner looks often, and deleted files go soon: both are waited for.
    "log.cleaner.backoff.ms": 300,
    "log.segment.delete.delay.ms": 1000,
    "log.initial.task.delay.ms": 100,
    # Several entries of every index, with few records.
    "log.index.interval.bytes": 512,
    # Preallocated indexes are sparse, and a copy of them is not: gigabytes of zeros to be written.
    "log.index.size.max.bytes": 65_536,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    # Opened, it is slow to start, and members have to be there still.
    "group.consumer.session.timeout.ms": 60_000,
    "group.share.session.timeout.ms": 60_000,
    "group.share.record.lock.duration.ms": 60_000,
}
console = Console(width=110, highlight=False)


class Different(Exception):
    """A reader was given something else than before."""


def dirs_of(server: Server) -> list[Path]:
    return [server.data, server.directory / "data2"]


def new_server(make: Callable[..., Server], folder: Path, **settings: object) -> Server:
    dirs = f"{folder}/data,{folder}/data2"
    return make(folder, **{"log_dirs": dirs, **settings})


def wait_for_cleaner(server: Server, partitions: int) -> None:
    """Until each partition of the compacted topic was cleaned once."""
    deadline = time.monotonic() + CLEANER_SECONDS_MAX
    while True:
        cleaned = sum(
            line.startswith("compacted ")
            for folder in dirs_of(server)
            for path in [folder / "cleaner-offset-checkpoint"]
            if path.exists()
            for line in path.read_text(encoding="ascii").splitlines()
        )
        if cleaned == partitions:
            return
        assert time.monotonic() < deadline, "the cleaner has not been through the topic"
        time.sleep(0.2)


def contents(bootstrap: str, filled: Filled) -> dict[bool, Contents]:
    return {
        committed: read_contents(bootstrap, filled.partitions, committed=committed)
        for committed in (False, True)
    }


def compare(wanted: dict[bool, Contents], found: dict[bool, Contents]) -> int:
    """How many records were compared; raises Different at the first that is not the same."""
    compared = 0
    for committed, by_partition in wanted.items():
        for key, rows in by_partition.items():
            theirs = found[committed][key]
            for row, other in zip(rows, theirs, strict=False):
                if row != other:
                    raise Different(f"{key}, committed {committed}: {row} became {other}")
            if len(rows) != len(theirs):
                raise Different(f"{key}, committed {committed}: {len(rows)}, now {len(theirs)}")
            compared += len(rows)
    return compared


def compare_groups(wanted: dict[str, Any], found: dict[str, Any]) -> None:
    """Raises Different at the first question that is answered otherwise."""
    for question, answer in wanted.items():
        if answer != found[question]:
            raise Different(f"groups, {question}: {answer} became {found[question]}")


def verify(server: Server) -> None:
    """`ottla log verify --deep` of both dirs finds nothing."""
    for folder in dirs_of(server):
        command = [sys.executable, "-m", "ottla", "log", "verify", "--deep", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Different(f"ottla log verify: {done.stdout[-2000:]}{done.stderr[-500:]}")


def end(server: Server, *, killed: bool) -> None:
    if killed:
        server.kill()
    else:
        server.stop()


def reopened(server: Server, make: Callable[..., Server], folder: Path) -> Server:
    """Another broker on a copy of the dirs of one that has ended."""
    other = new_server(make, folder, **SETTINGS_OF[make])
    for old, new in zip(dirs_of(server), dirs_of(other), strict=True):
        shutil.copytree(old, new)
    other.start()
    return other


def round_trip(
    fills: Callable[..., Server],
    opens: Callable[..., Server],
    folder: Path,
    records: int,
    killed: bool,
) -> str:
    """One way, once; says what was compared. Raises Different."""
    server = new_server(fills, folder / "first", **SETTINGS_OF[fills])
    other: Server | None = None
    try:
        server.start()
        is_kafka = fills is ApacheKafka
        filled = fill(server.bootstrap, records, cleaned=is_kafka)
        if is_kafka:
            wait_for_cleaner(server, filled.partitions["compacted"])
        wanted = contents(server.bootstrap, filled)
        left = carried_groups.fill(server.bootstrap)
        groups = carried_groups.seen(server.bootstrap)
        end(server, killed=killed)
        if not killed:
            verify(server)
        started = time.perf_counter()
        other = reopened(server, opens, folder / "second")
        seconds = time.perf_counter() - started
        # Before their sessions are over.
        compare_groups(groups, carried_groups.seen(other.bootstrap))
        members = carried_groups.go_on(other.bootstrap, left)
        count = compare(wanted, contents(other.bootstrap, filled))
        end(other, killed=False)
        verify(other)
        return f"{count} records equal, {members}, opened in {seconds:.1f} s"
    finally:
        server.close()
        if other is not None:
            other.close()


SETTINGS_OF: dict[Callable[..., Server], dict[str, object]] = {
    ApacheKafka: {name.replace(".", "_"): value for name, value in SETTINGS.items()},
    Ottla: {
        "log_index_interval_bytes": 512,
        "log_index_size_max_bytes": 65_536,
        "group_consumer_session_timeout_ms": 60_000,
        "group_share_session_timeout_ms": 60_000,
    },
}


@click.command()
@click.option("--records", default=20_000, show_default=True, help="To each topic.")
@click.option("--rounds", default=3, show_default=True)
def main(records: int, rounds: int) -> None:
    """Fill with one broker, open with the other, compare."""
    missing = jars.missing_tools()
    if missing:
        console.print(f"this machine lacks {missing}")
        sys.exit(1)
    table = Table(title=f"{records} records a topic, {rounds} rounds")
    for heading in ("filled by", "ended by", "opened by", "outcome"):
        table.add_column(heading)
    failures = 0
    ways = [(ApacheKafka, Ottla), (Ottla, ApacheKafka)]
    for _ in range(rounds):
        for fills, opens in ways:
            for killed in (False, True):
                folder = Path(tempfile.mkdtemp(prefix="ottla-both-ways-"))
                try:
                    outcome = round_trip(fills, opens, folder, records, killed)
                except (Different, AssertionError, RuntimeError, OSError) as error:
                    failures += 1
                    outcome = f"[red]{type(error).__name__}[/red]"
                    console.print(f"FAILED {error}", style="red", markup=False)
                finally:
                    shutil.rmtree(folder)
                how = "kill -9" if killed else "SIGTERM"
                table.add_row(fills.name, how, opens.name, outcome)
                console.print(f"{fills.name} {how} {opens.name}: {outcome}")
    console.print(table)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
