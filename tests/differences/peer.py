"""One broker in one sequence: its connections, and what waits on them."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from ottla.protocol.api import ApiKey
from ottla.protocol.connection import ClientConnection
from ottla.protocol.errors import ProtocolError
from ottla.protocol.messages.offsets import ListOffsetsRequest
from ottla.protocol.schema import Message
from tests.differences.meanings import Meanings
from tests.differences.requests import Body, Request, message, resolved, tree

ANSWER_SECONDS_MAX = 8.0
ASIDE = "aside"
"""The connection for what is asked beside a sequence."""
CLOSED, SILENT = "the connection is closed", "there is no answer"
START, END = -2, -1

Answer = Body | str
"""The tree of an answer, or what came in its place."""


class Line:
    """One connection, and the requests that it has not answered."""

    def __init__(self, port: int, client_id: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client = ClientConnection(client_id)
        self.waiting: deque[Request] = deque()
        self.ended = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def write(self, requests: Sequence[tuple[Request, Message]]) -> None:
        """Writes requests at once. One that asks for no acknowledgement is not waited for."""
        out = b""
        for request, asked in requests:
            heard = request.api != ApiKey.PRODUCE or request.body["acks"] != 0
            out += self._client.send(asked, request.version, expects_response=heard)
            if heard:
                self.waiting.append(request)
        try:
            self._socket.sendall(out)
        except OSError:
            self.ended = True

    def heard(self) -> list[tuple[Request, Answer]]:
        """What has come, in the order of the requests; the end of the connection ends them all."""
        self._receive()
        out: list[tuple[Request, Answer]] = []
        while self.waiting:
            try:
                response = self._client.next_response()
            except ProtocolError as error:
                self.ended = True
                response = None
                out.append((self.waiting.popleft(), f"the answer is none: {error}"))
            if response is None:
                break
            request = self.waiting.popleft()
            out.append((request, tree(response.message, request.version)))
        if self.ended:
            out += [(request, CLOSED) for request in self.waiting]
            self.waiting.clear()
        return out

    def _receive(self) -> None:
        while not self.ended and select.select([self], [], [], 0)[0]:
            try:
                data = self._socket.recv(1 << 20)
            except OSError:
                data = b""
            self.ended = not data
            self._client.receive(data)

    def close(self) -> None:
        self._socket.close()


class Peer:
    """A broker, by its port. `name` is what reports call it."""

    def __init__(self, name: str, port: int, log_dir: str) -> None:
        self.name = name
        self.port = port
        self.log_dir = log_dir
        self.lines: dict[str, Line] = {}
        self.meanings = Meanings("", 0, log_dir, self.bounds)

    def begin(self, prefix: str, began_ms: int) -> None:
        """A new replay: nothing is known of what there was before."""
        self.close()
        self.meanings = Meanings(prefix, began_ms, self.log_dir, self.bounds)

    def write(self, requests: Sequence[Request]) -> None:
        """Sends requests of one connection, which is opened if need be."""
        who = requests[0].who
        line = self.lines.get(who)
        if line is None or line.ended:
            line = self.lines[who] = Line(self.port, who)
        line.write([(request, self._message(request)) for request in requests])

    def _message(self, request: Request) -> Message:
        return message(request, resolved(request.body, self.meanings.of, self.meanings.prefix))

    def hear(self, who: str) -> list[tuple[Request, Answer]]:
        """The answers that have come on a connection; what they tell is learned."""
        heard = self.lines[who].heard() if who in self.lines else []
        for request, answer in heard:
            if not isinstance(answer, str):
                self.meanings.learn(request, answer)
        return heard

    def answer(self, request: Request) -> Answer:
        """Asks, and waits for the answer."""
        self.write([request])
        until = time.monotonic() + ANSWER_SECONDS_MAX
        while (left := until - time.monotonic()) > 0:
            select.select([self.lines[request.who]], [], [], left)
            heard = self.hear(request.who)
            if heard:
                return heard[-1][1]
        self.hang_up(request.who)
        return SILENT

    def ask(self, asked: Message, version: int) -> Any:
        """Asks aside of the sequence, by a message; returns the answer's tree, which must come."""
        key = asked.__schema__.key
        assert key is not None
        request = Request(ApiKey(key), version, tree(asked, version), who=ASIDE)
        answer = self.answer(request)
        if isinstance(answer, str):
            raise ConnectionError(f"{self.name}: {request.api.name}: {answer}")
        return answer

    def waits(self, who: str) -> bool:
        return who in self.lines and bool(self.lines[who].waiting)

    def hang_up(self, who: str) -> None:
        if who in self.lines:
            self.lines.pop(who).close()

    def close(self) -> None:
        for who in list(self.lines):
            self.hang_up(who)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The start and the end of a log; zeros where there is none."""
        asking = ListOffsetsRequest
        found = []
        for special in (START, END):
            part = asking.ListOffsetsPartition(partition, -1, special)
            asked = asking(-1, 0, [asking.ListOffsetsTopic(topic, [part])])
            ((answer,),) = [one["partitions"] for one in self.ask(asked, 4)["topics"]]
            found.append(max(answer["offset"], 0))
        return found[0], found[1]
