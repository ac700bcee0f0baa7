"""Every conversation of a consumer group goes as it went with Apache Kafka 4.3.1, line by line."""

from __future__ import annotations

import pytest

from ottla.broker.coordinator.group.settings import GroupSettings, Intervals, ModernSettings
from tests.coordinator.consumer_conversations import CONSUMER, Conversation
from tests.coordinator.consumer_scenario import ConsumerScript
from tests.coordinator.shards import Lone
from tests.coordinator.wire import TRACES

SETTINGS = GroupSettings(
    min_session_timeout_ms=1_000,
    initial_rebalance_delay_ms=0,
    consumer=ModernSettings(Intervals(2_000, 100, 0), Intervals(1_000, 100, 0)),
)


@pytest.mark.parametrize("conversation", CONSUMER, ids=lambda one: one.__name__)
def test_a_shard_answers_as_apache_kafka_did(conversation: Conversation) -> None:
    script = ConsumerScript(Lone(SETTINGS))

    conversation(script)

    expected = (TRACES / f"{conversation.__name__}.txt").read_text(encoding="utf-8").splitlines()
    assert script.lines == expected
