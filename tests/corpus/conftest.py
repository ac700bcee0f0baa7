"""One broker for the rows of a module, and what every row asserts beside its own outcome."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing.embedded import BrokerThread
from tests.corpus.house import House, opened


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as running:
        yield running


@pytest.fixture
def house(broker: BrokerThread) -> Iterator[House]:
    with opened(broker) as house:
        yield house
