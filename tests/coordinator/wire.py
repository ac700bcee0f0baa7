"""The conversations with a broker over the wire, and the traces that come of them.

    python -m tests.coordinator.wire HOST:PORT             compares with traces/, prints differences
    python -m tests.coordinator.wire HOST:PORT --rewrite   the broker is Apache Kafka 4.3.1

The broker has a topic `t`, group.min.session.timeout.ms=1000, and
group.initial.rebalance.delay.ms=0 (with --delayed: 1500).
"""

from __future__ import annotations

import asyncio
import difflib
import secrets
import sys
from pathlib import Path
from typing import Any

import click

from ottla.client.connection import Connection
from ottla.protocol.messages import groups
from ottla.protocol.messages.topics import CreateTopicsRequest
from ottla.protocol.schema import Message
from tests.coordinator.conversations import AT_ONCE, DELAYED
from tests.coordinator.scenario import GROUP, TOPIC, Script

TRACES = Path(__file__).with_name("traces")
SETTLED_S = 0.08
"""An answer that has not come after this long is parked."""


class Wire:
    """A connection for each who speaks, and a group of its own for each conversation."""

    def __init__(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> None:
        self._loop = loop
        self._host = host
        self._port = port
        self._group = f"{GROUP}-{secrets.token_hex(4)}"
        self._connections: dict[str, Connection] = {}
        self._open: dict[str, asyncio.Future[Any]] = {}

    def send(self, who: str, request: Message, version: int) -> None:
        self._loop.run_until_complete(self._send(who, _regrouped(request, self._group), version))

    def answers(self) -> list[tuple[str, Any]]:
        self.wait(round(SETTLED_S * 1000))
        done = [(who, future) for who, future in self._open.items() if future.done()]
        for who, _ in done:
            del self._open[who]
        return [(who, self._own(future.result())) for who, future in done]

    def wait(self, ms: int) -> None:
        self._loop.run_until_complete(asyncio.sleep(ms / 1000))

    def request(self, request: Message, version: int) -> Any:
        return self._loop.run_until_complete(self._ask(request, version))

    async def _connection(self, who: str) -> Connection:
        if who not in self._connections:
            self._connections[who] = await Connection.open(self._host, self._port, client_id=who)
        return self._connections[who]

    async def _send(self, who: str, request: Message, version: int) -> None:
        connection = await self._connection(who)
        self._open[who] = asyncio.ensure_future(connection.request(request, version))

    async def _ask(self, request: Message, version: int) -> Any:
        return await (await self._connection("")).request(request, version)

    def _own(self, answer: Any) -> Any:
        if isinstance(answer, groups.DescribeGroupsResponse):
            for group in answer.groups:
                if group.error_message:
                    group.error_message = group.error_message.replace(self._group, GROUP)
        return answer


def _regrouped(request: Any, group: str) -> Message:
    def own(name: str) -> str:
        return group if name == GROUP else name

    match request:
        case groups.DescribeGroupsRequest():
            request.groups = [own(one) for one in request.groups]
        case groups.DeleteGroupsRequest():
            request.groups_names = [own(one) for one in request.groups_names]
        case groups.OffsetFetchRequest():
            for one in request.groups:
                one.group_id = own(one.group_id)
        case _:
            request.group_id = own(request.group_id)
    message: Message = request
    return message


def _prepare(wire: Wire) -> None:
    topic = CreateTopicsRequest.CreatableTopic(TOPIC, 2, 1)
    wire.request(CreateTopicsRequest([topic]), 5)
    for _ in range(50):
        found = wire.request(groups.FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        beat = wire.request(groups.HeartbeatRequest(GROUP, 1, "nobody"), 4)
        if not found.coordinators[0].error_code and beat.error_code == 25:
            return
        wire.wait(100)
    raise SystemExit("there is no coordinator")


@click.command()
@click.argument("bootstrap")
@click.option("--rewrite", is_flag=True, help="Write the traces anew.")
@click.option("--delayed", is_flag=True, help="The broker delays the first rebalance.")
def main(bootstrap: str, rewrite: bool, delayed: bool) -> None:
    """Holds every conversation with the broker at HOST:PORT."""
    host, _, port = bootstrap.partition(":")
    loop = asyncio.new_event_loop()
    _prepare(Wire(loop, host, int(port)))
    differ = 0
    for conversation in DELAYED if delayed else AT_ONCE:
        script = Script(Wire(loop, host, int(port)))
        conversation(script)
        path = TRACES / f"{conversation.__name__}.txt"
        if rewrite:
            path.write_text("\n".join(script.lines) + "\n", encoding="utf-8")
            continue
        expected = path.read_text(encoding="utf-8").splitlines()
        lines = list(difflib.unified_diff(expected, script.lines, path.name, bootstrap, n=1))
        differ += bool(lines)
        for line in lines:
            click.echo(line)
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
