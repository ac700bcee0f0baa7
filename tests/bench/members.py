"""Scripted members of many groups, in a process of their own: every word from them is by hand.

    python -m tests.bench.members PORT GROUPS MEMBERS

Each member has a connection. A line on stdin has all of them join again at once; when every group
has a new generation and every member its assignment, a line `seconds cpu` is printed, in seconds of
the clock and of this process. Between the lines all of them send heartbeats. The end of stdin ends
it. JoinGroup 5, SyncGroup 3 and Heartbeat 1 are spoken.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import sys
import time
import uuid
from enum import Enum, auto

from tests.bench.group_requests import frame, frames_of, text

JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 11, 12, 14
NONE, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 0, 27, 79
SESSION_MS, REBALANCE_MS = 30_000, 60_000
HEARTBEAT_SECONDS = 3.0


class Said(Enum):
    """What a member waits for an answer to."""

    NOTHING = auto()
    JOIN = auto()
    SYNC = auto()
    HEARTBEAT = auto()


class Member:
    """One member on its connection."""

    def __init__(self, port: int, group: str) -> None:
        self.connection = socket.create_connection(("127.0.0.1", port), 30)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.held = bytearray()
        self.said = Said.NOTHING
        self.wants_to_join = False
        self._joins = 0
        self._group = group
        self._member_id = ""
        self._generation = -1

    def join(self) -> None:
        if self.said is Said.HEARTBEAT:
            self.wants_to_join = True
            return
        self.wants_to_join = False
        self._joins += 1  # other metadata than before: it is not answered from the old generation
        body = text(self._group) + struct.pack(">ii", SESSION_MS, REBALANCE_MS)
        body += text(self._member_id) + struct.pack(">h", -1) + text("consumer")
        body += struct.pack(">i", 1) + text("range") + struct.pack(">ii", 4, self._joins)
        self._say(Said.JOIN, frame(JOIN_GROUP, 5, body))

    def beat(self) -> None:
        if self.said is Said.NOTHING:
            body = text(self._group) + struct.pack(">i", self._generation) + text(self._member_id)
            self._say(Said.HEARTBEAT, frame(HEARTBEAT, 1, body))

    def take(self, answer: bytes) -> bool:
        """Goes on after an answer; True when the member has its assignment."""
        said, self.said = self.said, Said.NOTHING
        if said is Said.JOIN:
            self._joined(answer)
            return False
        (error,) = struct.unpack_from(">h", answer, 8)
        if said is Said.HEARTBEAT:
            if self.wants_to_join:
                self.join()
            elif error not in (NONE, REBALANCE_IN_PROGRESS):
                raise RuntimeError(f"a heartbeat was answered with error {error}")
            return False
        if error == REBALANCE_IN_PROGRESS:
            self.join()
            return False
        if error:
            raise RuntimeError(f"SyncGroup was answered with error {error}")
        return True

    def _joined(self, answer: bytes) -> None:
        error, self._generation = struct.unpack_from(">hi", answer, 8)
        if error not in (NONE, MEMBER_ID_REQUIRED):
            raise RuntimeError(f"JoinGroup was answered with error {error}")
        position = 14
        words = []
        for _ in range(3):  # protocol, leader, member id
            (size,) = struct.unpack_from(">h", answer, position)
            words.append(answer[position + 2 : position + 2 + size].decode())
            position += 2 + size
        self._member_id = words[2]
        if error:
            self.join()
            return
        body = text(self._group) + struct.pack(">i", self._generation) + text(self._member_id)
        body += struct.pack(">h", -1)
        if words[1] == self._member_id:
            (count,) = struct.unpack_from(">i", answer, position)
            position += 4
            body += struct.pack(">i", count)
            for _ in range(count):
                (size,) = struct.unpack_from(">h", answer, position)
                body += answer[position : position + 2 + size] + struct.pack(">i", 4) + b"mine"
                position += 2 + size + 2 + 4 + 4  # a null instance id, four bytes of metadata
        else:
            body += struct.pack(">i", 0)
        self._say(Said.SYNC, frame(SYNC_GROUP, 3, body))

    def _say(self, said: Said, data: bytes) -> None:
        self.said = said
        self.connection.sendall(data)


class Members:
    """All of them, driven by one thread."""

    def __init__(self, port: int, groups: int, members: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._members = []
        for _ in range(groups):
            group = f"storm-{uuid.uuid4().hex}"
            for _ in range(members):
                member = Member(port, group)
                self._members.append(member)
                self._selector.register(member.connection, selectors.EVENT_READ, member)
        self._beats_at = time.monotonic() + HEARTBEAT_SECONDS
        os.set_blocking(sys.stdin.fileno(), False)
        self._selector.register(sys.stdin, selectors.EVENT_READ)

    def rebalance(self) -> tuple[float, float]:
        """All join at once; the seconds until all have their assignment, and their CPU."""
        started, cpu = time.perf_counter(), time.process_time()
        for member in self._members:
            member.join()
        waiting = len(self._members)
        while waiting:
            for key, _ in self._selector.select(30):
                if key.data is not None:
                    waiting -= self._hear(key.data)
        return time.perf_counter() - started, time.process_time() - cpu

    def rest(self) -> bool:
        """Until there is a line on stdin; False at its end."""
        while True:
            for key, _ in self._selector.select(max(self._beats_at - time.monotonic(), 0)):
                if key.data is not None:
                    self._hear(key.data)
                else:
                    return bool(os.read(sys.stdin.fileno(), 100))
            if time.monotonic() >= self._beats_at:
                self._beats_at += HEARTBEAT_SECONDS
                for member in self._members:
                    member.beat()

    def _hear(self, member: Member) -> int:
        return sum(member.take(answer) for answer in frames_of(member.connection, member.held))


def main() -> None:
    port, groups, members = (int(argument) for argument in sys.argv[1:])
    everybody = Members(port, groups, members)
    while everybody.rest():
        seconds, cpu = everybody.rebalance()
        print(seconds, cpu, flush=True)


if __name__ == "__main__":
    main()
