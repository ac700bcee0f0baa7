"""pytest's `ottla` fixture: a broker of its own for a test that asks for it.

def test_mine(ottla):
    producer = confluent_kafka.Producer({"bootstrap.servers": ottla.bootstrap_servers})
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing.embedded import BrokerThread


@pytest.fixture
def ottla() -> Iterator[BrokerThread]:
    """A running broker with an empty data directory, gone after the test."""
    from ottla.testing.embedded import BrokerThread  # not in every pytest run that has us installed

    with BrokerThread() as broker:
        yield broker
