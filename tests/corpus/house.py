"""A broker under test, and what every row asserts: nobody else noticed.

Around each row: a connection that was open before is still answered, no handler failed, the broker
goes on, and the process grew by no more than the row was allowed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.broker.broker import Broker
from ottla.protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.testing.embedded import BrokerThread
from tests.corpus.memory import MIB, growth_at_most
from tests.corpus.peer import Peer

GROWTH_MAX = 24 * MIB
"""For a row of a few bytes. Generous against the noise of one process, and nothing beside the
gigabytes that the rows declare."""

_numbers = itertools.count()


class House:
    def __init__(self, broker: BrokerThread) -> None:
        self.broker = broker
        self.port = int(broker.bootstrap_servers.rpartition(":")[2])
        self.bystander = Peer(self.port)

    @property
    def running(self) -> Broker:
        return self.broker.running

    def peer(self) -> Peer:
        return Peer(self.port)

    def fresh_name(self, start: str = "corpus-") -> str:
        return f"{start}{next(_numbers)}"

    def create_topic(
        self, name: str, configs: dict[str, str] | None = None, *, partitions: int = 1
    ) -> bytes:
        """Creates it; returns its id."""
        settings = [
            CreateTopicsRequest.CreatableTopicConfig(*item) for item in (configs or {}).items()
        ]
        topic = CreateTopicsRequest.CreatableTopic(name, partitions, 1, configs=settings)
        with self.peer() as peer:
            answer: CreateTopicsResponse = peer.request(CreateTopicsRequest([topic]), 7)
        assert answer.topics[0].error_code == 0, answer.topics[0]
        return bytes(answer.topics[0].topic_id)

    def sweep(self) -> None:
        """Runs the server's periodic job now."""

        async def sweep() -> None:
            self.running.server.sweep()

        self.broker.call(sweep())

    def check(self) -> None:
        """Nobody else noticed anything."""
        assert self.bystander.works()
        assert self.running.server.metrics.handler_errors == 0
        assert not self.running.failed.done()

    def close(self) -> None:
        self.bystander.close()


@contextmanager
def opened(broker: BrokerThread, *, growth_max: int = GROWTH_MAX) -> Iterator[House]:
    house = House(broker)
    try:
        with growth_at_most(growth_max):
            yield house
            house.check()
    finally:
        house.close()
