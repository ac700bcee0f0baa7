"""The conversations with a broker over the wire, and the traces that come of them.

    make traces                        Apache Kafka 4.3.1 is started, and traces/ written anew
    make traces ARGS="--only stable"   one conversation
    make traces ARGS=--ottla           Ottla is started instead, and held against what is written

Nothing has changed if git sees no difference afterwards.
"""

from __future__ import annotations

import asyncio
import difflib
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from ottla.client.connection import Connection
from ottla.protocol.errors import ErrorCode
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
from tests.coordinator.scenario import GROUP, TOPIC, Script, StillWaiting
from tests.coordinator.setups import SETUPS, Setup
from tests.peers.servers import ApacheKafka, Ottla, Server

TRACES = Path(__file__).with_name("traces")
DEVIATIONS = Path(__file__).with_name("deviations")
"""What Ottla answers where it means to answer otherwise than Kafka."""
GROUP_RESOURCE = 32
METADATA_MS = 400
"""By then a change of the metadata is known everywhere."""
SETTLED_MS, BEHIND_MS = 80, 40
"""An answer that has not come after the first is parked, or late. The coordinator does all in turn:
so it is asked for something else, and what has not come a little after that is parked."""
TRIES_MAX = 4

Conversation = Callable[[Any], None]


class Wire:
    """A connection for each who speaks, and a group of its own for each conversation."""

    def __init__(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> None:
        self._loop = loop
        self._host = host
        self._port = port
        self._group = f"{GROUP}-{secrets.token_hex(4)}"
        self._connections: dict[str, Connection] = {}
        self._open: dict[str, asyncio.Future[Any]] = {}
        self._topics: dict[str, None] = {}

    def send(self, who: str, request: Message, version: int) -> None:
        self._loop.run_until_complete(self._send(who, _regrouped(request, self._group), version))

    def answers(self) -> list[tuple[str, Any]]:
        self.wait(SETTLED_MS)
        if not all(future.done() for future in self._open.values()):
            self.request(groups.HeartbeatRequest(self._group, 1, "nobody"), 4)
            self.wait(BEHIND_MS)
        done = [(who, future) for who, future in self._open.items() if future.done()]
        for who, _ in done:
            del self._open[who]
        return [(who, self._own(future.result())) for who, future in done]

    def wait(self, ms: int) -> None:
        self._loop.run_until_complete(asyncio.sleep(ms / 1000))

    def make_topic(self, name: str, partitions: int) -> None:
        self._topics[name] = None
        topic = CreateTopicsRequest.CreatableTopic(name, partitions, 1)
        (made,) = self.request(CreateTopicsRequest([topic]), 5).topics
        if made.error_code:
            more = CreatePartitionsRequest.CreatePartitionsTopic(name, partitions, None)
            self.request(CreatePartitionsRequest([more], 5_000), 3)
        self.wait(METADATA_MS)

    def remove_topic(self, name: str) -> None:
        gone = DeleteTopicsRequest.DeleteTopicState(name)
        self.request(DeleteTopicsRequest([gone], timeout_ms=5_000), 6)
        self._topics.pop(name, None)
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

    def close(self) -> None:
        for name in list(self._topics):
            self.remove_topic(name)
        self._loop.run_until_complete(self._close())

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

    async def _close(self) -> None:
        for connection in self._connections.values():
            await connection.close()
        await asyncio.gather(*self._open.values(), return_exceptions=True)

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
    for _ in range(50):
        (made,) = wire.request(CreateTopicsRequest([topic]), 5).topics
        found = wire.request(groups.FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        beat = wire.request(groups.HeartbeatRequest(GROUP, 1, "nobody"), 4)
        codes = (made.error_code, found.coordinators[0].error_code, beat.error_code)
        if codes == (ErrorCode.TOPIC_ALREADY_EXISTS, 0, ErrorCode.UNKNOWN_MEMBER_ID):
            return
        wire.wait(100)
    raise SystemExit(f"there is no coordinator: {codes}")


def recorded(name: str) -> list[str]:
    """The lines of a conversation with Apache Kafka; none if it is new."""
    path = TRACES / f"{name}.txt"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def meant(name: str) -> list[str]:
    """The same as Ottla means to hold it."""
    path = DEVIATIONS / f"{name}.txt"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else recorded(name)


def _believed(known: list[str], hold: Callable[[], list[str]]) -> list[str]:
    """The lines that were seen twice: now and when they were written down, or twice now. A broker
    that is slow for a moment, as a JVM is at first, answers on another line."""
    seen = [known]
    for _ in range(TRIES_MAX):
        try:
            lines = hold()
        except StillWaiting:
            continue
        if lines in seen:
            return lines
        seen.append(lines)
    raise SystemExit(f"it goes otherwise each of {TRIES_MAX} times: is the machine busy?")


def _hold(
    loop: asyncio.AbstractEventLoop, port: int, kind: type[Script], conversation: Conversation
) -> list[str]:
    wire = Wire(loop, "127.0.0.1", port)
    try:
        script = kind(wire)
        conversation(script)
    finally:
        wire.close()
    return script.lines


def _hold_all(broker: Server, setup: Setup, only: str) -> Iterator[tuple[str, list[str]]]:
    """The lines of each conversation of this setup."""
    chosen = [one for one in setup.conversations if only in ("", one.__name__)]
    if not chosen:
        return
    broker.start()
    loop = asyncio.new_event_loop()
    try:
        first = Wire(loop, "127.0.0.1", broker.port)
        _prepare(first)
        first.close()
        for conversation in chosen:
            name = conversation.__name__
            hold = partial(_hold, loop, broker.port, setup.kind, conversation)
            known = meant(name) if isinstance(broker, Ottla) else recorded(name)
            yield name, _believed(known, hold)
    finally:
        broker.close()
        loop.close()


@click.command()
@click.option("--ottla", is_flag=True, help="Hold them with Ottla, and write nothing.")
@click.option("--only", default="", help="The one conversation of this name.")
def main(ottla: bool, only: str) -> None:
    """Holds every conversation with a broker that is started for it."""
    differ = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, setup in enumerate(SETUPS):
            directory = Path(folder, str(number))
            make: type[Server] = Ottla if ottla else ApacheKafka
            for name, lines in _hold_all(make(directory, **setup.properties), setup, only):
                click.echo(name)
                if not ottla:
                    text = "\n".join(lines) + "\n"
                    (TRACES / f"{name}.txt").write_text(text, encoding="utf-8")
                    continue
                difference = list(difflib.unified_diff(meant(name), lines, lineterm="", n=1))
                differ += bool(difference)
                for line in difference:
                    click.echo(line)
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
