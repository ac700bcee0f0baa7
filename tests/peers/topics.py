"""Topics by librdkafka's admin client, which is gone when the call returns."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

ANSWER_SECONDS_MAX = 30


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create(
    bootstrap: str, partitions: Mapping[str, int], config: Mapping[str, str] | None = None
) -> None:
    """Makes topics of one replica, by name and number of partitions."""
    topics = [
        NewTopic(name, count, 1, config=dict(config or {})) for name, count in partitions.items()
    ]
    # The answers come only while somebody holds the client.
    admin = _admin(bootstrap)
    for answer in admin.create_topics(topics).values():
        answer.result(ANSWER_SECONDS_MAX)


def delete(bootstrap: str, name: str) -> None:
    admin = _admin(bootstrap)
    for answer in admin.delete_topics([name]).values():
        answer.result(ANSWER_SECONDS_MAX)


def alter(bootstrap: str, name: str, config: Mapping[str, str]) -> None:
    """Sets keys of a topic's configuration; the others stay."""
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    admin = _admin(bootstrap)
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(ANSWER_SECONDS_MAX)
