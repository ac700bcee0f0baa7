"""The conversations with a broker over the wire, and the traces that come of them.

    python -m tests.coordinator.wire HOST:PORT             compares with traces/, prints differences
    python -m tests.coordinator.wire HOST:PORT --rewrite   the broker is Apache Kafka 4.3.1

The broker has a topic `t`, group.min.session.timeout.ms=1000, and
group.initial.rebalance.delay.ms=0 (with --delayed: 1500). With --consumer it is a new one and has,
all of them group.consumer.*: assignment.interval.ms=0, min.session.timeout.ms=1000,
session.timeout.ms=2000, min.heartbeat.interval.ms=100, heartbeat.interval.ms=100.
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
from ottla.protocol.messages.configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.consumer_group import ConsumerGroupDescribeRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from ottla.protocol.schema import Message
from tests.coordinator.consumer_conversations import CONSUMER
from tests.coordinator.consumer_scenario import ConsumerScript
from tests.coordinator.conversations import AT_ONCE, DELAYED
from tests.coordinator.scenario import GROUP, TOPIC, Script

TRACES = Path(__file__).with_name("traces")
GROUP_RESOURCE = 32
METADATA_MS = 400
"""By then a change of the metadata is known everywhere."""
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

    def make_topic(self, name: str, partitions: int) -> None:
        topic = CreateTopicsRequest.CreatableTopic(name, partitions, 1)
        (made,) = self.request(CreateTopicsRequest([topic]), 5).topics
        if made.error_code:
            more = CreatePartitionsRequest.CreatePartitionsTopic(name, partitions, None)
            self.request(CreatePartitionsRequest([more], 5_000), 3)
        self.wait(METADATA_MS)

    def remove_topic(self, name: str) -> None:
        gone = DeleteTopicsRequest.DeleteTopicState(name)
        self.request(DeleteTopicsRequest([gone], timeout_ms=5_000), 6)
        self.wait(METADATA_MS)

    def topic_id(self, name: str) -> bytes:
        asked = MetadataRequest([MetadataRequest.MetadataRequestTopic(name=name)])
        (found,) = self.request(asked, 12).topics
        topic_id: bytes = found.topic_id
        return topic_id

    def set_group(self, key: str, value: str) -> None:
        change = IncrementalAlterConfigsRequest.AlterableConfig(key, 0, value)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            GROUP_RESOURCE, self._group, [change]
        )
        self.request(IncrementalAlterConfigsRequest([resource]), 1)
        self.wait(METADATA_MS)

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
        found = [answer, *getattr(answer, "groups", ())]
        for one in found:
            if getattr(one, "error_message", None):
                one.error_message = one.error_message.replace(self._group, GROUP)
        if isinstance(answer, groups.ListGroupsResponse):
            for group in answer.groups:
                group.group_id = group.group_id.replace(self._group, GROUP)
        return answer


def _regrouped(request: Any, group: str) -> Message:
    def own(name: str) -> str:
        return group if name == GROUP else name

    match request:
        case groups.DescribeGroupsRequest():
            request.groups = [own(one) for one in request.groups]
        case ConsumerGroupDescribeRequest():
            request.group_ids = [own(one) for one in request.group_ids]
        case groups.ListGroupsRequest():
            pass
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
@click.option("--consumer", is_flag=True, help="The conversations of consumer groups.")
@click.option("--only", default="", help="The one conversation of this name.")
def main(bootstrap: str, rewrite: bool, delayed: bool, consumer: bool, only: str) -> None:
    """Holds every conversation with the broker at HOST:PORT."""
    host, _, port = bootstrap.partition(":")
    loop = asyncio.new_event_loop()
    _prepare(Wire(loop, host, int(port)))
    differ = 0
    chosen: list[tuple[Any, type[Script]]] = [
        (one, Script) for one in (DELAYED if delayed else AT_ONCE)
    ]
    if consumer:
        chosen = [(one, ConsumerScript) for one in CONSUMER]
    for conversation, kind in chosen:
        if only and conversation.__name__ != only:
            continue
        script = kind(Wire(loop, host, int(port)))
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
