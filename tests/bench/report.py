"""The tables, and the same as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.workload import Aim, Figures, Limit, Work
from tests.peers.jars import ROOT
from tests.peers.servers import ApacheKafka, Ottla


@dataclass
class Results:
    """Figures by work, figure and server, in the order of the rounds; and what went wrong."""

    figures: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    met: int = 0

    def add(self, work: str, figure: str, server: str, value: float) -> None:
        self.figures.setdefault((work, figure, server), []).append(value)

    def add_round(self, work: Work, server: str, turns: Sequence[Figures]) -> None:
        for figure, value in work.means(turns).items():
            self.add(work.name, figure, server, value)

    def of(self, work: str, figure: str, server: str) -> list[float]:
        return self.figures.get((work, figure, server), [])


def _shown(values: Sequence[float]) -> str:
    if not values:
        return "-"
    median = statistics.median(values)
    spread = f"  [dim]{min(values):.4g}..{max(values):.4g}[/dim]" if len(values) > 1 else ""
    return f"{median:.4g}{spread}"


def _verdict(aim: Aim | Limit | None, ours: list[float], theirs: list[float]) -> str:
    if aim is None or not ours or (isinstance(aim, Aim) and len(theirs) != len(ours)):
        return ""
    return "[green]met[/green]" if aim.met(ours, theirs) else "[red]missed[/red]"


def table(work: Work, results: Results) -> Table:
    """The rows of one work; notes the aims that were missed."""
    shown = Table(title=f"{work.name}: {work.title}", title_justify="left", width=108)
    shown.add_column("figure", width=22)
    for heading, width in (("Kafka", 23), ("Ottla", 23), ("ratio", 8), ("aim", 9), ("", 7)):
        shown.add_column(heading, width=width, justify="right", no_wrap=True)
    for figure, aim in work.figures.items():
        theirs = results.of(work.name, figure, ApacheKafka.name)
        ours = results.of(work.name, figure, Ottla.name)
        ratio = "-"
        if ours and theirs and statistics.median(theirs):
            ratio = f"{statistics.median(ours) / statistics.median(theirs):.2f}x"
        verdict = _verdict(aim, ours, theirs)
        if "missed" in verdict:
            results.missed.append(f"{work.name}: {figure}")
        results.met += "met" in verdict
        shown.add_row(figure, _shown(theirs), _shown(ours), ratio, str(aim or ""), verdict)
    return shown


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    model = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    return {
        "commit": commit.stdout.strip(),
        "processors": os.cpu_count(),
        "processor": model[0] if model else platform.machine(),
        "python": f"{platform.python_version()} of {sys.base_prefix}",
        "system": platform.release(),
    }


def write_json(path: Path, results: Results, rounds: int, scale: float) -> None:
    rows = [
        {"work": work, "figure": figure, "server": server, "rounds": values}
        for (work, figure, server), values in results.figures.items()
    ]
    document = {"machine": machine(), "rounds": rounds, "scale": scale, "figures": rows}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def print_end(console: Console, results: Results) -> None:
    """The last lines: what failed and which aims were missed."""
    for failure in results.failures:
        console.print(f"failed: {failure}", markup=False)
    for missed in results.missed:
        console.print(f"missed: {missed}", markup=False)
    judged = results.met + len(results.missed)
    console.print(f"{results.met} of {judged} aims of this run are met")
