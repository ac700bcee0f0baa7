"""kcat: `kcat -G`, what it prints retold in the lines of lines.py.

kcat has this process; the one that retells is its child, so that who ends the member ends kcat.
It commits by itself, every five seconds and when it ends, so that `read` is told before that. Its
lines have no time: they get the one at which they came, which may be a bit after they were printed.
"""

from __future__ import annotations

import os
import re
import signal
import sys

from tests.conformance.members import lines

RECORD = re.compile(r"^(\d+) (\d+)$")
REBALANCE = re.compile(r"rebalanced .*: (assigned|revoked): (.*)$")
PARTITION = re.compile(r" \[(\d+)\]")


def main() -> None:
    told = lines.arguments()
    command = ["kcat", "-E", "-u", "-b", told.bootstrap, "-f", "%p %o\\n"]
    settings: dict[str, object] = {
        "auto.offset.reset": "earliest",
        "session.timeout.ms": lines.SESSION_MS,
        "heartbeat.interval.ms": lines.HEARTBEAT_MS,
    }
    if told.instance is not None:
        settings["group.instance.id"] = told.instance
    for key, value in settings.items():
        command += ["-X", f"{key}={value}"]
    source, sink = os.pipe()
    if os.fork() == 0:
        os.close(sink)
        _retell(source)
        return
    os.dup2(sink, sys.stdout.fileno())
    os.dup2(sink, sys.stderr.fileno())
    os.execvp("kcat", [*command, "-G", told.group, told.topic])


def _retell(source: int) -> None:
    """Until kcat is gone; what is neither a record nor a rebalance is a complaint."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(source, encoding="utf-8") as printed:
        for line in printed:
            if found := RECORD.match(line):
                lines.read([(int(found[1]), int(found[2]))])
            elif found := REBALANCE.search(line):
                partitions = [int(one) for one in PARTITION.findall(found[2])]
                tell = lines.assigned if found[1] == "assigned" else lines.revoked
                tell(partitions)
            else:
                print(line, end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
