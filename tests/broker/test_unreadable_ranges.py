"""A bad sector under a log file (DF9): its range is answered 56, all else is served."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from socket import socket

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.testing.embedded import Broker
from tests.broker.small_client import client_of, values_of

STORAGE = int(ErrorCode.KAFKA_STORAGE_ERROR)
SMALL, LARGE = b"s" * 100, b"l" * 100_000
"""A slice of one is read before it is sent, one of the other goes by sendfile."""


class BadSector:
    """Reads that touch the bytes of one batch fail, as the disk would make them fail."""

    def __init__(self, broker: Broker, topic: str, offset: int) -> None:
        partition = broker.running.replicas.get(topic, 0)
        assert partition is not None
        found = partition.log.read(offset, max_bytes=1, upper=1, at_least_one=True)
        assert found is not None
        self.descriptor = found.file.fileno()
        self.start, self.end = found.position, found.position + found.size

    def meets(self, descriptor: int, position: int, size: int) -> bool:
        meets = position < self.end and position + size > self.start
        return descriptor == self.descriptor and meets

    def check(self, descriptor: int, position: int, size: int) -> None:
        if self.meets(descriptor, position, size):
            raise OSError(errno.EIO, "Input/output error")


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as running:
        yield running


def _break(monkeypatch: pytest.MonkeyPatch, broker: Broker, sector: BadSector) -> None:
    cache = broker.running.server.page_cache
    read_cached, send_cold = cache.read_cached, cache.send_cold

    def read_cached_or_fail(descriptor: int, position: int, size: int) -> bytearray | None:
        sector.check(descriptor, position, size)
        return read_cached(descriptor, position, size)

    def send_cold_or_fail(
        sock: socket, descriptor: int, position: int, size: int, ahead: range
    ) -> tuple[int, bool]:
        sector.check(descriptor, position, size)
        return send_cold(sock, descriptor, position, size, ahead)

    monkeypatch.setattr(cache, "read_cached", read_cached_or_fail)
    monkeypatch.setattr(cache, "send_cold", send_cold_or_fail)
    # What cannot be read is not in the page cache.
    monkeypatch.setattr(
        cache,
        "holds",
        lambda descriptor, position, size=1: not sector.meets(descriptor, position, size),
    )


async def _fetch_until_answered(broker: Broker, topic: str, offset: int) -> int:
    """The error code of the fetch; the first one may only end its connection."""
    for _ in range(2):
        async with client_of(broker) as client:
            try:
                return (await client.fetch(topic, offset)).error_code
            except ConnectionError:
                continue
    raise AssertionError("the second fetch ended its connection, too")


@pytest.mark.parametrize("value", [SMALL, LARGE])
async def test_the_range_is_refused_and_the_rest_is_served(
    monkeypatch: pytest.MonkeyPatch, broker: Broker, value: bytes
) -> None:
    async with client_of(broker) as client:
        await client.create("sound", "bad")
        await client.produce("sound", value)
        for _ in range(4):
            await client.produce("bad", value)
        sector = BadSector(broker, "bad", 2)
        _break(monkeypatch, broker, sector)

        assert await _fetch_until_answered(broker, "bad", 2) == STORAGE

        assert values_of(await client.fetch("sound")) == [value]
        monkeypatch.undo()
        assert values_of(await client.fetch("bad", 0)) == [value, value]
        assert (await client.produce("bad", value)).error_code == 0


async def test_a_topic_made_anew_is_read_where_the_old_one_could_not_be(
    monkeypatch: pytest.MonkeyPatch, broker: Broker
) -> None:
    async with client_of(broker) as client:
        await client.create("again")
        await client.produce("again", SMALL)
        _break(monkeypatch, broker, BadSector(broker, "again", 0))
        assert await _fetch_until_answered(broker, "again", 0) == STORAGE
        monkeypatch.undo()
        await client.delete("again")
        await client.create("again")
        await client.produce("again", SMALL)

        assert values_of(await client.fetch("again")) == [SMALL]


async def test_a_read_that_works_is_never_refused(broker: Broker) -> None:
    async with client_of(broker) as client:
        await client.create("sound")
        for _ in range(3):
            await client.produce("sound", SMALL)
        assert not broker.running.rooms.unreadable
        assert len(values_of(await client.fetch("sound"))) == 3
