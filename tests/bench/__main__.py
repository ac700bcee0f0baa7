"""Ottla beside Apache Kafka: the same work in turns, medians, ratios, aims.

    make bench
    make bench ARGS="--only waiting,durable --rounds 3"
    make bench ARGS="--only silent --servers ottla --json /tmp/figures.json"

Both run on this machine beside the load generator, so absolute figures move with the machine; the
ratios of one run count. Each round runs a work on one server and then on the other, the order
changing with every turn, once both are idle (some works so several times, a round's figures being
means); round 0 warms up and does not count (a work of one round has none). CPU and memory are those
of a broker's whole process tree. Without Java and Maven, Ottla runs alone.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import click
from confluent_kafka import KafkaException
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tests.bench import host_pages, load, memory, report
from tests.bench.bad_neighbours import COLD, SILENT
from tests.bench.deleting import DELETING
from tests.bench.end_to_end import END_TO_END
from tests.bench.group_requests import (
    OFFSETS,
    SETTLING,
    SETTLING_848,
    SETTLING_848_BY_DEFAULT,
    SETTLING_BY_DEFAULT,
)
from tests.bench.loading import LOADING
from tests.bench.many import MANY
from tests.bench.quiet import await_quiet
from tests.bench.rebalances import REBALANCES
from tests.bench.report import Results
from tests.bench.requests import DURABLE, PIPELINED, WAITING
from tests.bench.start import START
from tests.bench.tailing import TAILING
from tests.bench.times import TIMES
from tests.bench.volume import BULK, FAN_OUT, IDEMPOTENT, SMALL
from tests.bench.wired import WIRED
from tests.bench.workload import Figures, Work
from tests.peers import jars
from tests.peers.raw import AnsweredError
from tests.peers.servers import ApacheKafka, Ottla, Server, ServerEnded

# The first eight come in the order of `../shared/peers/sidebyside.py`, by which the aims were set.
# A JVM is the quicker the more it has done: a record of 100 bytes costs Kafka 0.28 us behind five
# other works, and 0.55 to 0.80 behind one.
WORKS = (
    BULK,
    SMALL,
    IDEMPOTENT,
    PIPELINED,
    WAITING,
    END_TO_END,
    DURABLE,
    FAN_OUT,
    COLD,
    SILENT,
    WIRED,
    START,
    LOADING,
    MANY,
    DELETING,
    TIMES,
    OFFSETS,
    SETTLING,
    SETTLING_848,
    SETTLING_BY_DEFAULT,
    SETTLING_848_BY_DEFAULT,
    REBALANCES,
    TAILING,
)
# Works that say the same every time need fewer rounds than the rest.
ROUNDS_MAX = {
    COLD.name: 1,
    SILENT.name: 1,
    START.name: 3,
    LOADING.name: 1,
    MANY.name: 1,
    DELETING.name: 1,
    TIMES.name: 1,
    SETTLING.name: 1,
    SETTLING_848.name: 1,
    SETTLING_BY_DEFAULT.name: 1,
    SETTLING_848_BY_DEFAULT.name: 1,
    REBALANCES.name: 1,
}
# A minute by default, after which more lies in the page cache than a host leaves a guest.
DELETING_SOON = {"log_segment_delete_delay_ms": 200, "log_initial_task_delay_ms": 500}
DELETED_SECONDS_MAX = 10.0
FAILURES = (AnsweredError, AssertionError, KafkaException, OSError, RuntimeError)


def run_once(work: Work, server: Server, scale: float, results: Results) -> Figures | None:
    """One turn of one server; None if it failed, which is noted, and the run goes on."""
    try:
        return work.run(server, scale)
    except FAILURES as error:
        results.failures.append(f"{work.name} on {server.name}: {str(error) or repr(error)}")
        return None


def run_work(
    work: Work,
    servers: list[Server],
    results: Results,
    progress: Progress,
    *,
    rounds: int,
    scale: float,
) -> None:
    """All rounds of one work, servers in turns."""
    task = progress.add_task(work.name, total=None)
    # What has one round warms up by itself, or starts brokers that no round before it would warm.
    for number in range(1 if rounds == 1 else 0, rounds + 1):
        label = f"round {number} of {rounds}" if number else "warm-up"
        turns: dict[str, list[Figures]] = {server.name: [] for server in servers}
        for turn in range(work.turns if number else 1):
            for server in servers if (number + turn) % 2 else reversed(servers):
                progress.update(task, description=f"{work.name}: {server.name}, {label}")
                await_quiet(servers)
                if (figures := run_once(work, server, scale, results)) is not None:
                    turns[server.name].append(figures)
                await_deletions(server)
        for name, counted in turns.items():
            if number and counted:
                results.add_round(work, name, counted)
    progress.remove_task(task)


def await_deletions(server: Server) -> None:
    """Leaves nothing of one turn to the next: neither the work nor the page cache."""
    deadline = time.monotonic() + DELETED_SECONDS_MAX
    while left := [*server.data.glob(f"{load.TOPIC_PREFIX}*")]:
        if time.monotonic() > deadline:
            print(f"{server.name} has not deleted {len(left)} directories", file=sys.stderr)
            return
        time.sleep(0.05)


def start_servers(names: list[str], folder: Path, console: Console) -> list[Server]:
    servers: list[Server] = []
    if "kafka" in names:
        if jars.missing_tools():
            console.print(f"Apache Kafka is left out: this machine lacks {jars.missing_tools()}")
        else:
            jars.fetch()
            servers.append(ApacheKafka(folder / "kafka", **DELETING_SOON))
    if "ottla" in names:
        servers.append(Ottla(folder / "ottla", **DELETING_SOON))
    try:
        for server in servers:
            server.start()
    except RuntimeError:
        for server in servers:
            server.close()
        raise
    return servers


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Counted rounds of each work.")
@click.option("--scale", default=1.0, show_default=True, help="Share of each work's size.")
@click.option("--only", default="", help=f"With commas: {', '.join(w.name for w in WORKS)}.")
@click.option("--servers", "chosen", default="kafka,ottla", show_default=True)
@click.option("--strict", is_flag=True, help="A missed aim is a failure.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write figures there.")
def main(
    rounds: int, scale: float, only: str, chosen: str, strict: bool, json_path: Path | None
) -> None:
    """Run the works and print a table of each."""
    console = Console(width=110, highlight=False)
    works = [work for work in WORKS if not only or work.name in only.split(",")]
    if not works:
        raise click.UsageError(f"no work is named {only}")
    results = Results()
    folder = Path(tempfile.mkdtemp(prefix="ottla-bench-"))
    console.print(", ".join(f"{key} {value}" for key, value in report.machine().items()))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        if rounds > 1:
            with console.status("Touching memory for the page cache"):
                stack.enter_context(host_pages.kept())
        servers = start_servers(chosen.split(","), folder, console)
        for server in servers:
            stack.callback(server.close)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        try:
            with Progress(*columns, console=console, transient=True) as progress:
                for work in works:
                    limit = min(rounds, ROUNDS_MAX.get(work.name, rounds))
                    run_work(work, servers, results, progress, rounds=limit, scale=scale)
                    console.print(report.table(work, results))
            for server in servers:
                results.add(memory.NAME, memory.FIGURE, server.name, server.resident_mb())
            console.print(report.table(memory.memory_work(results, scale), results))
        except ServerEnded as error:  # what comes behind would be measured beside nobody
            results.failures.append(str(error))
    report.print_end(console, results)
    if json_path is not None:
        report.write_json(json_path, results, rounds, scale)
    raise SystemExit(1 if results.failures or (strict and results.missed) else 0)


if __name__ == "__main__":
    main()
