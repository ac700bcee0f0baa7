"""Again 64 connections that send one record each and wait, all driven by one thread.

In `waiting` each has a librdkafka of its own in one Python process, whose threads wait for each
other behind the broker's answer (`RUNS.md`). Here nobody waits for anybody but the broker. The aims
were set for `waiting`, so this has none.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time
from dataclasses import dataclass

from tests.bench import load
from tests.bench.workload import Figures, Work
from tests.peers import raw
from tests.peers.servers import Server

CONNECTIONS, PARTITIONS, EACH, SIZE = 64, 8, 1000, 200
ANSWER_BYTES_MAX = 4096
ERROR = struct.Struct(">h")


@dataclass(slots=True)
class _Client:
    """One connection; it sends the same request again and again."""

    socket: socket.socket
    request: bytes
    left: int
    sent_s: float = 0.0

    def send(self) -> None:
        self.left -= 1
        self.sent_s = time.perf_counter()
        self.socket.sendall(self.request)

    def receive(self, error_at: int) -> float:
        """Reads the answer; the seconds that it took."""
        answer = self.socket.recv(ANSWER_BYTES_MAX)
        seconds = time.perf_counter() - self.sent_s
        if not answer:
            raise ConnectionResetError("the broker closed the connection")
        (error,) = ERROR.unpack_from(answer, error_at)
        if error:
            raise raw.AnsweredError("Produce", error)
        return seconds


def _connect(server: Server, name: str, number: int, each: int) -> _Client:
    records = raw.batch([os.urandom(SIZE)], timestamp=int(time.time() * 1000))
    body = raw.produce_body(name, number % PARTITIONS, records)
    connection = socket.create_connection(("127.0.0.1", server.port), raw.ANSWER_SECONDS_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return _Client(connection, raw.request(raw.PRODUCE, raw.PRODUCE_VERSION, number, body), each)


def _drive(clients: list[_Client], error_at: int) -> list[float]:
    """The seconds of every request."""
    latencies: list[float] = []
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
            client.send()
        waiting = len(clients)
        while waiting:
            ready = selector.select(raw.ANSWER_SECONDS_MAX)
            assert ready, f"{waiting} requests were not answered"
            for key, _ in ready:
                client = key.data
                latencies.append(client.receive(error_at))
                if client.left:
                    client.send()
                else:
                    waiting -= 1
    return latencies


def _wired(server: Server, scale: float) -> Figures:
    with load.topic(server, PARTITIONS) as name:
        clients = [_connect(server, name, k, max(int(EACH * scale), 1)) for k in range(CONNECTIONS)]
        # The size of the answer, its correlation id, one topic's name, one partition's number.
        error_at = 4 + 4 + 4 + 2 + len(name) + 4 + 4
        try:
            with load.measured(server) as spent:
                latencies = sorted(_drive(clients, error_at))
        finally:
            for client in clients:
                client.socket.close()
    return {
        "requests/s": len(latencies) / spent[0].seconds,
        "p99 ms": load.percentile(latencies, 0.99) * 1e3,
        "CPU us/request": spent[0].cpu / len(latencies) * 1e6,
        "load's thread busy %": spent[0].busy_percent,
    }


WIRED = Work(
    "wired",
    "64 connections, one record each and wait, from one thread of bare sockets",
    _wired,
    {"requests/s": None, "p99 ms": None, "CPU us/request": None, "load's thread busy %": None},
)
