"""Topics by librdkafka's admin client, which is gone when the call returns."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import AdminClient
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
