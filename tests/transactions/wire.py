"""The conversations with a broker over the wire, and the traces that come of them.

    python -m tests.transactions.wire HOST:PORT             compares with traces/
    python -m tests.transactions.wire HOST:PORT --rewrite   the broker is Apache Kafka 4.3.1

The broker has transaction.abort.timed.out.transaction.cleanup.interval.ms=200.
"""

from __future__ import annotations

import asyncio
import difflib
import secrets
import sys
import time
from pathlib import Path
from typing import Any

import click

from ottla.client.connection import Connection
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.groups import FindCoordinatorRequest, HeartbeatRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.offsets import ListOffsetsRequest
from ottla.protocol.messages.producer_ids import InitProducerIdRequest
from ottla.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from ottla.protocol.messages.transactions import DescribeTransactionsRequest
from ottla.protocol.schema import Message
from tests.transactions.conversations import CONVERSATIONS, LONG, SHOWN_ONLY, Conversation
from tests.transactions.log_scenario import LogScript
from tests.transactions.names import Names
from tests.transactions.shown import Silence, codes_of

TRACES = Path(__file__).with_name("traces")
DEVIATIONS = Path(__file__).with_name("deviations")
"""What Ottla answers where it means to answer otherwise than Kafka."""
RETRIABLE = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
)
"""What is answered while a coordinator loads, or markers are being written."""
RETRY_S = 0.01
SETTLED_SECONDS_MAX = 15.0
ANSWER_SECONDS_MAX = 5.0


class Wire:
    """A connection for each who speaks, and names of its own for each conversation."""

    def __init__(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> None:
        self._loop = loop
        self._host = host
        self._port = port
        self._connections: dict[str, Connection] = {}
        self.names = Names(secrets.token_hex(4))
        while not self.names.has_homes_apart:
            self.names = Names(secrets.token_hex(4))

    def ask(self, who: str, request: Message, version: int) -> Any:
        until = time.monotonic() + SETTLED_SECONDS_MAX
        while time.monotonic() < until:
            answer = self.ask_once(who, request, version)
            if RETRIABLE.isdisjoint(codes_of(answer)):
                break
            self._wait()
        return answer

    def ask_once(self, who: str, request: Message, version: int) -> Any:
        return self._loop.run_until_complete(self._ask(who, request, version))

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def make_topic(self, name: str, partitions: int) -> None:
        topic = CreateTopicsRequest.CreatableTopic(name, partitions, 1)
        self.ask("", CreateTopicsRequest([topic]), 5)
        ends = [ListOffsetsRequest.ListOffsetsPartition(one, -1, -1) for one in range(partitions)]
        asked = ListOffsetsRequest.ListOffsetsTopic(name, ends)
        self._until_no_error(ListOffsetsRequest(-1, topics=[asked]), 7)

    def remove_topic(self, name: str) -> None:
        gone = DeleteTopicsRequest.DeleteTopicState(name)
        self.ask("", DeleteTopicsRequest([gone], timeout_ms=5_000), 6)
        asked = MetadataRequest([MetadataRequest.MetadataRequestTopic(name=name)])
        asked.allow_auto_topic_creation = False
        until = time.monotonic() + SETTLED_SECONDS_MAX
        while not any(codes_of(self.ask("", asked, 12))) and time.monotonic() < until:
            self._wait()

    def topic_id(self, name: str) -> bytes:
        asked = MetadataRequest([MetadataRequest.MetadataRequestTopic(name=name)])
        (found,) = self.ask("", asked, 12).topics
        topic_id: bytes = found.topic_id
        return topic_id

    def settle(self, txn: str) -> None:
        self._until_not(txn, "PrepareCommit", "PrepareAbort")

    def expire(self, txn: str) -> None:
        self._until_not(txn, "Ongoing", "PrepareEpochFence", "PrepareAbort")

    def prepare(self) -> None:
        """The coordinators are there, and have ids to give."""
        probe = self.names.on_wire("probe")
        for key_type in (0, 1):
            found = FindCoordinatorRequest(coordinator_keys=[probe], key_type=key_type)
            self._until_no_error(found, 4)
        self._until_no_error(InitProducerIdRequest(probe, 60_000), 4)
        self.ask("", HeartbeatRequest(probe, 1, "nobody"), 4)

    def close(self) -> None:
        for connection in self._connections.values():
            self._loop.run_until_complete(connection.close())
        self._connections.clear()

    # inside

    def _until_not(self, txn: str, *states: str) -> None:
        until = time.monotonic() + SETTLED_SECONDS_MAX
        while time.monotonic() < until:
            answer = self.ask("", DescribeTransactionsRequest([txn]), 0)
            if answer.transaction_states[0].transaction_state not in states:
                return
            self._wait()
        raise SystemExit(f"{txn} stays in {states}")

    def _until_no_error(self, request: Message, version: int) -> None:
        until = time.monotonic() + SETTLED_SECONDS_MAX
        while any(codes_of(self.ask("", request, version))):
            if time.monotonic() > until:
                raise SystemExit(f"the broker does not answer {request!r}")
            self._wait()

    def _wait(self) -> None:
        self._loop.run_until_complete(asyncio.sleep(RETRY_S))

    async def _ask(self, who: str, request: Message, version: int) -> Any:
        if who not in self._connections:
            self._connections[who] = await Connection.open(self._host, self._port, client_id=who)
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                return await self._connections[who].request(request, version)
        except ConnectionError:
            del self._connections[who]
            return None
        except TimeoutError:
            del self._connections[who]
            return Silence()


def hold(
    loop: asyncio.AbstractEventLoop, host: str, port: int, conversation: Conversation
) -> list[str]:
    """The lines of one conversation."""
    wire = Wire(loop, host, port)
    try:
        wire.prepare()
        script = LogScript(wire)
        conversation(script)
    finally:
        wire.close()
    return script.lines


@click.command()
@click.argument("bootstrap")
@click.option("--rewrite", is_flag=True, help="Write the traces anew.")
@click.option("--deviation", is_flag=True, help="The broker is Ottla, and means it.")
@click.option("--long", is_flag=True, help="Those that take minutes.")
@click.option("--only", default="", help="The one conversation of this name.")
def main(bootstrap: str, rewrite: bool, deviation: bool, long: bool, only: str) -> None:
    """Holds every conversation with the broker at HOST:PORT."""
    host, _, port = bootstrap.partition(":")
    loop = asyncio.new_event_loop()
    differ = 0
    chosen = LONG if long else CONVERSATIONS
    for conversation in (*chosen, *SHOWN_ONLY) if rewrite and not long else chosen:
        if only and conversation.__name__ != only:
            continue
        held = hold(loop, host, int(port), conversation)
        folder = DEVIATIONS if deviation else TRACES
        path = folder / f"{conversation.__name__}.txt"
        if rewrite:
            path.write_text("\n".join(held) + "\n", encoding="utf-8")
            continue
        expected = path.read_text(encoding="utf-8").splitlines()
        lines = list(difflib.unified_diff(expected, held, path.name, bootstrap, "", "", n=1))
        differ += bool(lines)
        for line in lines:
            click.echo(line)
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
