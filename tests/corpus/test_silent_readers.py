"""Clients that ask for 10 GB together and never read cost the broker next to nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.topics import CreateTopicsRequest
from tests.corpus.peer import Peer
from tests.peers.raw import Connection, batch
from tests.peers.servers import Ottla
from tests.peers.silent import ASKED_BYTES, RECEIVE_BUFFER, silent_clients

GROWTH_MB_MAX = 64
TOPIC = "silent"
BATCH_BYTES = 15_000
SLICE_BYTES = 30_000
MANY_CLIENTS = 40
PIECE_BYTES = 500
"""What a slice that waits to be sent may cost, with the header of its partition."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ottla]:
    """A process of its own, so that its memory is its own, with more bytes than anyone asks for."""
    directory: Path = tmp_path_factory.mktemp("silent")
    broker = Ottla(directory, log_flush_interval_messages=2**63 - 1)
    broker.start()
    try:
        with Peer(broker.port) as peer:
            peer.request(CreateTopicsRequest([CreateTopicsRequest.CreatableTopic(TOPIC, 1, 1)]), 7)
        producer = Connection(broker.port)
        records = batch([os.urandom(BATCH_BYTES)], timestamp=1_700_000_000_000)
        count = ASKED_BYTES * 5 // 4 // BATCH_BYTES
        for _ in range(count):
            producer.send_produce(TOPIC, 0, records)
        for _ in range(count):
            assert producer.receive_produced().error == 0
        producer.close()
        yield broker
    finally:
        broker.close()


@pytest.mark.parametrize("fetch_bytes", [ASKED_BYTES, 25_000])
def test_silent_clients_cost_little(server: Ottla, fetch_bytes: int) -> None:
    before = server.resident_mb()
    with silent_clients(server.port, TOPIC, fetch_bytes=fetch_bytes):
        with Peer(server.port) as other:
            assert other.works()
        grown = server.resident_mb() - before

    assert grown <= GROWTH_MB_MAX


def test_silent_clients_that_ask_for_many_partitions_cost_little(server: Ottla) -> None:
    """50 MB in one answer of slices that are each small enough to be read into memory."""
    before = server.resident_mb()
    partition = FetchRequest.FetchPartition(0, partition_max_bytes=SLICE_BYTES)
    partitions = [partition] * (ASKED_BYTES // SLICE_BYTES)
    topic = FetchRequest.FetchTopic(TOPIC, partitions=partitions)
    peers = [Peer(server.port, receive_buffer=RECEIVE_BUFFER) for _ in range(MANY_CLIENTS)]
    for peer in peers:
        peer.send(FetchRequest(max_wait_ms=0, max_bytes=ASKED_BYTES, topics=[topic]), 12)
    for peer in peers:
        peer.wait_for_answer()
    grown = server.resident_mb() - before
    for peer in peers:
        peer.close()

    assert grown <= GROWTH_MB_MAX + MANY_CLIENTS * len(partitions) * PIECE_BYTES / 1e6
