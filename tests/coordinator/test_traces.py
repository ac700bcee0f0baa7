"""Every conversation goes as it went with Apache Kafka 4.3.1, but where Ottla means otherwise.

What Ottla says there stands in deviations/, line by line as well; DECISIONS.md says why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.coordinator.setups import SETUPS, Setup
from tests.coordinator.shards import Lone
from tests.coordinator.wire import DEVIATIONS, TRACES, meant


@pytest.mark.parametrize(
    ("conversation", "setup"),
    [(one, setup) for setup in SETUPS for one in setup.conversations],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_shard_answers_as_apache_kafka_did(
    conversation: Callable[[Any], None], setup: Setup
) -> None:
    script = setup.kind(Lone(setup.settings))

    conversation(script)

    assert script.lines == meant(conversation.__name__)


def test_every_trace_is_held() -> None:
    names = {one.__name__ for setup in SETUPS for one in setup.conversations}

    assert {path.stem for path in TRACES.iterdir()} == names


def test_every_deviation_is_one() -> None:
    for path in DEVIATIONS.iterdir():
        assert path.read_bytes() != (TRACES / path.name).read_bytes(), path.name
