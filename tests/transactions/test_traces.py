"""Every conversation goes as it went with Apache Kafka 4.3.1, but where Ottla means otherwise.

    python -m tests.transactions.wire HOST:PORT --deviation --rewrite --only NAME

writes down what Ottla says there; DECISIONS.md says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ottla.testing.embedded import BrokerThread
from tests.transactions.conversations import CONVERSATIONS, LONG, SHOWN_ONLY, Conversation
from tests.transactions.wire import DEVIATIONS, TRACES, hold

SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "group.min.session.timeout.ms": 1000,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(config=SETTINGS) as running:
        yield running


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda one: one.__name__)
def test_a_broker_answers_as_apache_kafka_did(
    conversation: Conversation, broker: BrokerThread
) -> None:
    host, _, port = broker.bootstrap_servers.partition(":")
    loop = asyncio.new_event_loop()
    try:
        lines = hold(loop, host, int(port), conversation)
    finally:
        loop.close()

    name = f"{conversation.__name__}.txt"
    kafkas = (TRACES / name).read_text(encoding="utf-8").splitlines()
    meant = kafkas
    if (DEVIATIONS / name).exists():
        meant = (DEVIATIONS / name).read_text(encoding="utf-8").splitlines()
        assert meant != kafkas, "it deviates no more"
    assert lines == meant


def test_every_trace_is_held() -> None:
    names = {one.__name__ for one in (*CONVERSATIONS, *LONG, *SHOWN_ONLY)}

    assert {path.stem for path in TRACES.iterdir()} == names
    assert {path.stem for path in DEVIATIONS.iterdir()} <= names
