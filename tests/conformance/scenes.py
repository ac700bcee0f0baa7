"""What scenes of groups and of share groups have in common: members that are processes of their own
and tell lines of JSON, waits that come to an end, and a run of every client that is there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from tests.conformance import clients
from tests.peers import jars

BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Flags of a JVM that lives for seconds."""


@dataclass(frozen=True)
class Kind:
    """A client whose members are run by `command` and arguments (see members/)."""

    client: clients.Client
    command: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.client.name


def python(module: str, folder: str = "members") -> tuple[str, ...]:
    """The command of a member in Python."""
    return sys.executable, "-m", f"tests.conformance.{folder}.{module}"


def java(source: str) -> tuple[str, ...]:
    """The command of a member in Java, by the name of its file."""
    program, *arguments = clients.JAVA.driver[:-1]
    return program, *BRIEF, *arguments, str(clients.HERE / "java" / source)


class MemberProcess:
    """One member; each line that it tells goes to `tell`, on a thread."""

    def __init__(self, command: Sequence[str], tell: Callable[[dict[str, Any]], None]) -> None:
        self._tell = tell
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the member
        self._process = subprocess.Popen(
            command,
            cwd=jars.ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def say(self, line: str) -> None:
        """Writes a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(number)
        self._process.wait(20)
        self._reader.join(5)

    def tail(self) -> str:
        """What it complained about."""
        self._errors.seek(0)
        return self._errors.read()[-1500:].decode(errors="replace")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            self._tell(json.loads(text))


def wait(is_so: Callable[[], bool], seconds_max: float, complain: Callable[[], str]) -> str:
    """The seconds until it is so. Raises AssertionError with a complaint if that takes too long."""
    started = time.perf_counter()
    while not is_so():
        if time.perf_counter() - started > seconds_max:
            raise AssertionError(complain())
        time.sleep(0.02)
    return f"{time.perf_counter() - started:.1f}"


class Ran(NamedTuple):
    """What each client's steps took, failures, and the clients that cannot run here."""

    done: dict[str, str]
    failures: list[str]
    skipped: list[str]


K = TypeVar("K", bound=Kind)


def run(
    kinds: Sequence[K],
    names: list[str],
    act: Callable[[K, Path], list[str]],
    *,
    at_once: int,
    what: str,
) -> Ran:
    """Has `act` play the scene with each client that is named, or with all, and return its steps;
    so many at a time. It may use the folder."""
    present = [kind for kind in kinds if not names or kind.client.name in names]
    ran = Ran({}, [], [kind.name for kind in present if kind.client.missing()])
    present = [kind for kind in present if not kind.client.missing()]
    for client in {kind.client.name: kind.client for kind in present}.values():
        client.prepare()
    folder = Path(tempfile.mkdtemp(prefix=f"ottla-{what.replace(' ', '-')}-"))

    def play(kind: K) -> None:
        try:
            ran.done[kind.name] = " ".join(act(kind, folder))
        except (AssertionError, OSError, RuntimeError, subprocess.SubprocessError) as error:
            ran.failures.append(f"{what} of {kind.name}: {error}")

    try:
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(play, present))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return ran


def report(what: str, play: Callable[[], Ran]) -> None:
    """Plays, tells what came of it and ends the process."""
    started = time.perf_counter()
    done, failures, skipped = play()
    for name, steps in done.items():
        click.echo(f"a {what} of {name}: seconds of each wait: {steps}")
    for line in failures:
        click.echo(f"FAILED {line}")
    for name in skipped:
        click.echo(f"skipped: {name}")
    seconds = time.perf_counter() - started
    click.echo(f"{len(done)} clients, {len(failures)} failures, {seconds:.0f} s")
    short = os.environ.get("CI") == "true" and skipped
    sys.exit(1 if failures or short or not done else 0)
