"""Unmodified clients against a broker: what each writes, it and others read back byte for byte.

    make conformance
    make conformance ARGS="--only kcat,franz-go --records 1000"
    make conformance ARGS="--bootstrap 127.0.0.1:9092"      any broker; its files are not looked at

A tool that the machine lacks is skipped by name; with CI=true in the environment that is a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tests.conformance import (
    admin_clients,
    admin_commands,
    connect,
    files,
    groups,
    share_groups,
    streams,
    transactions,
)
from tests.conformance.clients import CLIENTS, CONFLUENT, JAVA, Client, ClientError
from tests.conformance.records import PARTITIONS, expected
from tests.conformance.scenes import Ran
from tests.peers import jars, topics
from tests.peers.servers import Ottla

FAILURES = (
    AssertionError,
    ClientError,
    OSError,
    RuntimeError,
    files.FilesError,
    subprocess.SubprocessError,
)
SCENES: tuple[tuple[str, str, Callable[[list[str]], Ran]], ...] = (
    ("groups", "a group", groups.run),
    ("share groups", "a share group", share_groups.run),
    ("transactions", "transactions", transactions.run),
    ("Kafka Streams", "an application", streams.run),
    ("Kafka Connect", "a worker", connect.run),
)
"""What is told before it begins, of what it is, and who plays it."""
console = Console(width=110, highlight=False)


@dataclass
class Run:
    """What has been done: the rows of the table, the failures, the tools that are missing."""

    records: int
    rows: dict[str, list[str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    written: list[Client] = field(default_factory=list)

    def skip(self, what: str, missing: list[str]) -> None:
        self.skipped.append(what)
        console.print(f"skipped: {what}: this machine lacks {', '.join(missing)}")

    def step(self, what: str, action: Callable[[], str]) -> str:
        """Does one thing; returns what the table shows for it, and keeps its failure."""
        try:
            return action()
        except FAILURES as error:
            self.failures.append(f"{what}: {error}")
            return "[red]failed[/red]"

    def read(self, reader: Client, writer: Client, bootstrap: str) -> str:
        """One client reads what another wrote; returns the seconds."""

        def action() -> str:
            seconds, digests = reader.run("consume", bootstrap, writer.name, self.records)
            wanted = expected(self.records, codec_header_only=writer.codec_header_only)
            assert digests == wanted, f"digests {digests} are not {wanted}"
            return f"{seconds:.1f}"

        return self.step(f"{reader.name} reads what {writer.name} wrote", action)


def exercise(run: Run, client: Client, bootstrap: str, readers: list[Client]) -> None:
    """One row of the table: prepare, produce, consume, and others read it."""

    def produce() -> str:
        client.prepare()
        seconds, _digests = client.run("produce", bootstrap, client.name, run.records)
        return f"{seconds:.1f}"

    row = [client.version(), run.step(f"{client.name} writes", produce)]
    if "failed" in row[1]:
        run.rows[client.name] = [*row, "", *("" for _ in readers)]
        return
    run.written.append(client)
    row.append(run.read(client, client, bootstrap) if client.consumes else "cannot assign")
    row += ["" if reader is client else run.read(reader, client, bootstrap) for reader in readers]
    run.rows[client.name] = row


def administer(run: Run, client: Client, bootstrap: str) -> None:
    """A client's own admin client, its calls and their values."""
    what = f"{client.name}'s admin client"
    said = run.step(what, lambda: admin_clients.ACTS[client.name](bootstrap))
    console.print(f"{what}: {said}")


def print_table(run: Run, readers: list[Client]) -> None:
    table = Table(title=f"{run.records} records each: seconds, start of the process included")
    table.add_column("client")
    table.add_column("version")
    for heading in ("produce", "consume", *(f"read by {reader.name}" for reader in readers)):
        table.add_column(heading, justify="right")
    for name, row in run.rows.items():
        table.add_row(name, *row)
    console.print(table)


def examine_files(run: Run, data: Path, scratch: Path) -> None:
    """Apache Kafka's dump tool and its broker on the directory that was left."""
    count = run.records * len(run.written)
    said = run.step("DumpLogSegments", lambda: files.dump(data, count))
    console.print(f"DumpLogSegments: {said}")

    def serve() -> str:
        kafka = files.opened_by_kafka(data, scratch)
        try:
            for client in run.written:
                run.read(CONFLUENT, client, kafka.bootstrap)
        finally:
            kafka.close()
        return f"read {len(run.written)} topics"

    console.print(f"Apache Kafka on our directory: {run.step('Apache Kafka opens it', serve)}")


def run_commands(run: Run, bootstrap: str = "") -> None:
    """Apache Kafka's own commands, to a broker of their own if none is named."""
    if JAVA.missing():
        run.skip("Apache Kafka's commands", JAVA.missing())
        return
    JAVA.prepare()

    def action() -> str:
        if bootstrap:
            return admin_commands.run(bootstrap)
        return admin_commands.run_apart(is_kafka=False)

    console.print(f"Apache Kafka's administrative commands: {run.step('administration', action)}")


def play_scenes(run: Run, names: list[str]) -> None:
    """Each with brokers of its own."""
    for title, what, play in SCENES:
        console.print(f"{title} ...")
        done, failures, _skipped = play(names)
        for name, steps in done.items():
            console.print(f"{what} of {name}: seconds of each part: {steps}")
        run.failures += failures


def run_clients(run: Run, bootstrap: str, names: list[str]) -> None:
    present: list[Client] = []
    for client in CLIENTS:
        if names and client.name not in names:
            continue
        if client.missing():
            run.skip(client.name, client.missing())
        else:
            present.append(client)
    topics.create(bootstrap, {client.name: PARTITIONS for client in present})
    readers = [CONFLUENT]
    if not JAVA.missing():
        JAVA.prepare()
        readers.append(JAVA)
    for client in present:
        console.print(f"{client.name} ...")
        exercise(run, client, bootstrap, readers)
        if client.name in admin_clients.ACTS:
            administer(run, client, bootstrap)
    print_table(run, readers)


@click.command()
@click.option("--bootstrap", default="", help="A running broker; without it Ottla is started.")
@click.option("--only", default="", help="Client names, with commas.")
@click.option("--records", default=10_000, show_default=True)
@click.option("--keep", is_flag=True, help="Leave the data directory and say where it is.")
def main(bootstrap: str, only: str, records: int, keep: bool) -> None:
    """Run every client that this machine has."""
    started = time.perf_counter()
    run = Run(records)
    names = [name for name in only.split(",") if name]
    if bootstrap:
        run_commands(run, bootstrap)
        run_clients(run, bootstrap, names)
    else:
        folder = Path(tempfile.mkdtemp(prefix="ottla-conformance-"))
        # kafkajs's admin client joins a group whenever it sets its offsets.
        server = Ottla(folder / "ottla", group_initial_rebalance_delay_ms=500)
        try:
            run_commands(run)
            server.start()
            run_clients(run, server.bootstrap, names)
            server.stop()
            play_scenes(run, names)
            if jars.missing_tools():
                run.skip("Apache Kafka on our files", [jars.missing_tools()])
            else:
                examine_files(run, server.data, folder / "kafka")
        finally:
            server.close()
            if keep:
                console.print(f"kept: {folder}")
            else:
                shutil.rmtree(folder)
    for failure in run.failures:
        console.print(f"FAILED {failure}", style="red", markup=False)
    short = os.environ.get("CI") == "true" and run.skipped
    console.print(
        f"{len(run.rows)} clients, {len(run.failures)} failures, {len(run.skipped)} skipped, "
        f"{time.perf_counter() - started:.0f} s"
    )
    sys.exit(1 if run.failures or short or not run.rows else 0)


if __name__ == "__main__":
    main()
