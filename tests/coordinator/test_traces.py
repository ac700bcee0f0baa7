"""Every conversation goes as it went with Apache Kafka 4.3.1, line by line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.broker.coordinator.group.settings import GroupSettings
from tests.coordinator.consumer_conversations import CONSUMER
from tests.coordinator.conversations import AT_ONCE, DELAY_MS, DELAYED
from tests.coordinator.scenario import Script
from tests.coordinator.shards import Lone
from tests.coordinator.wire import TRACES

Conversation = Callable[[Script], None]


@pytest.mark.parametrize(
    ("conversation", "delay_ms"),
    [(one, 0) for one in AT_ONCE] + [(one, DELAY_MS) for one in DELAYED],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_shard_answers_as_apache_kafka_did(conversation: Conversation, delay_ms: int) -> None:
    lone = Lone(GroupSettings(min_session_timeout_ms=1_000, initial_rebalance_delay_ms=delay_ms))
    script = Script(lone)

    conversation(script)

    expected = (TRACES / f"{conversation.__name__}.txt").read_text(encoding="utf-8").splitlines()
    assert script.lines == expected


def test_every_trace_is_held() -> None:
    names = {one.__name__ for one in (*AT_ONCE, *DELAYED, *CONSUMER)}

    assert {path.stem for path in TRACES.iterdir()} == names
