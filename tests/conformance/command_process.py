"""Apache Kafka's own commands, run one after another in one JVM (java/Commands.java).

A JVM for each would spend most of its time with starting. What a command prints to either stream is
one text; that it ends its process is caught, so its status is known, too.
"""

from __future__ import annotations

import json
import queue
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.conformance.scenes import MemberProcess, java

COMMAND_SECONDS_MAX = 60.0
WAIT_SECONDS_MAX = 20.0
PAUSE_S = 0.2
TOOLS = "org.apache.kafka.tools"
CONFIGS = "kafka.admin.ConfigCommand"
TOPICS = f"{TOOLS}.TopicCommand"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"


class CommandError(RuntimeError):
    """A command failed, or said something else than was asked for."""


@dataclass(frozen=True)
class Said:
    """What a command has said, and its status."""

    status: int
    output: str

    @property
    def lines(self) -> list[str]:
        """Those that are not empty, with single blanks."""
        stripped = [" ".join(line.split()) for line in self.output.splitlines()]
        return [line for line in stripped if line]


@dataclass(frozen=True)
class Row:
    """A command, and what becomes of it.

    It says `lines`, in any order, with single blanks; "..." in one stands for anything. It says
    nothing else if it `is_whole`, and nothing that holds one of `lacks`.
    """

    command: tuple[str, ...]
    lines: tuple[str, ...]
    is_whole: bool = True
    lacks: tuple[str, ...] = ()
    status: int = 0

    def complaint(self, said: Said) -> str:
        """What is wrong with what it has said, or nothing."""
        if said.status != self.status:
            return f"its status is {said.status}"
        rest = said.lines
        for line in self.lines:
            pattern = ".*".join(re.escape(part) for part in line.split("..."))
            found = next((one for one in rest if re.fullmatch(pattern, one)), None)
            if found is None:
                return f"it does not say {line!r}"
            rest.remove(found)
        if self.is_whole and rest:
            return f"it also says {rest[0]!r}"
        wrong = [words for words in self.lacks if words in said.output]
        return f"it says {wrong}" if wrong else ""


def whole(command: tuple[str, ...], *lines: str) -> Row:
    """These lines and no others."""
    return Row(command, lines)


def among(command: tuple[str, ...], *lines: str, lacks: str = "") -> Row:
    """These lines, among others, none of which has `lacks` in it."""
    return Row(command, lines, is_whole=False, lacks=(lacks,) if lacks else ())


def refused(command: tuple[str, ...], *lines: str) -> Row:
    """It fails and says why, among much else."""
    return Row(command, lines, is_whole=False, status=1)


class Commands:
    """Commands to one broker; see `opened`."""

    def __init__(self, bootstrap: str, *, is_late: bool) -> None:
        self._is_late = is_late
        self._server = ("--bootstrap-server", bootstrap)
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._process = MemberProcess(java("Commands.java"), self._answers.put)
        self.count = 0

    def said(self, tool: str, *arguments: str) -> Said:
        """Runs one command, whatever comes of it."""
        # Of several commands in one program the first argument names the one.
        at = 1 if tool.endswith("ClusterTool") else 0
        words = [tool, *arguments[:at], *self._server, *arguments[at:]]
        self._process.say(json.dumps(words))
        try:
            answer = self._answers.get(timeout=COMMAND_SECONDS_MAX)
        except queue.Empty:
            raise CommandError(f"{' '.join(words)}: no end of it; {self._process.tail()}") from None
        self.count += 1
        return Said(answer["status"], answer["output"])

    def check(self, *rows: Row) -> None:
        """Runs rows in their order. Raises CommandError if something else comes of one."""
        for row in rows:
            if self._is_late:
                self.wait(row)
            else:
                self._check(row)

    def wait(self, row: Row) -> None:
        """Runs a row until that comes of it which should. Raises CommandError if it never does."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            try:
                return self._check(row)
            except CommandError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE_S)

    def _check(self, row: Row) -> None:
        said = self.said(*row.command)
        complaint = row.complaint(said)
        if complaint:
            words = " ".join(row.command)
            raise CommandError(f"{words}: {complaint}:\n{said.output[-2000:]}")

    def close(self) -> None:
        self._process.end(signal.SIGKILL)


@contextmanager
def opened(bootstrap: str, *, is_late: bool = False) -> Iterator[Commands]:
    """A process that runs commands to the broker, gone in the end. A broker that `is_late` may show
    a change a moment after it was answered, as Apache Kafka does."""
    commands = Commands(bootstrap, is_late=is_late)
    try:
        yield commands
    finally:
        commands.close()
