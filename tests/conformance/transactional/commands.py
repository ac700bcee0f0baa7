"""What a transactional client is told and what it answers.

    CLIENT BOOTSTRAP TRANSACTIONAL_ID

It makes a producer of that id, initializes its transactions, and answers; then it does what comes
on its standard input, a command a line, and answers each. Its end is the end of the input.

    begin
    send TOPIC PARTITION VALUE ...      the values, as the one batch or several; waits for the acks
    commit
    abort
    read committed|uncommitted TOPIC PARTITIONS
        The values of each partition from its first to END, which is one of them.
    transform SOURCE SINK GROUP PARTITIONS
        Members of GROUP read SOURCE, TAKE records at a time, and write each value x as x + "'" to
        partition 0 of SINK, in one transaction with the offsets of GROUP. The first transaction is
        aborted and what it had read is read again. It ends when END of each partition is written.

An answer is a line of JSON, {"error": "", "values": [[partition, value], ...]}; an error is the
name of what the client has raised, and its text. Every driver implements this page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Protocol

END = "end"
TAKE = 20
"""Records in a transaction of `transform`, at most."""
ANSWER_SECONDS_MAX = 40
"""So long a client waits for a broker that was killed, before it calls that an error."""

Values = list[tuple[int, str]]


class Transactional(Protocol):
    """A client library, by the verbs of this page."""

    def begin(self) -> None: ...
    def send(self, topic: str, partition: int, values: list[str]) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def read(self, topic: str, partitions: int, *, committed: bool) -> Values: ...
    def transform(self, source: str, sink: str, group: str, partitions: int) -> None: ...


def _do(client: Transactional, verb: str, arguments: list[str]) -> Values:
    match verb, arguments:
        case "begin", []:
            client.begin()
        case "send", [topic, partition, *values]:
            client.send(topic, int(partition), values)
        case "commit", []:
            client.commit()
        case "abort", []:
            client.abort()
        case "read", [isolation, topic, partitions]:
            return client.read(topic, int(partitions), committed=isolation == "committed")
        case "transform", [source, sink, group, partitions]:
            client.transform(source, sink, group, int(partitions))
        case _:
            raise ValueError(f"no such command: {verb} {arguments}")
    return []


def _is_done(action: Callable[[], Values], errors: tuple[type[Exception], ...]) -> bool:
    """Does one thing and answers; tells whether it went well."""
    values: Values = []
    said = ""
    try:
        values = action()
    except errors as error:
        said = f"{type(error).__name__}: {error}"
    print(json.dumps({"error": said, "values": values}), flush=True)
    return not said


def run(connect: Callable[[str, str], Transactional], *errors: type[Exception]) -> None:
    """Connects and does what is told; errors of these types are answers."""
    clients: list[Transactional] = []

    def connected() -> Values:
        clients.append(connect(*sys.argv[1:]))
        return []

    if _is_done(connected, errors):
        for line in sys.stdin:
            verb, *arguments = line.split()
            _is_done(partial(_do, clients[0], verb, arguments), errors)
