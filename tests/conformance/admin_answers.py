"""confluent-kafka's AdminClient, its calls counted, and its answers, which are futures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException, admin

from tests.conformance import scenes

ANSWER_SECONDS_MAX = 20.0
BECOMES_SECONDS_MAX = 5.0
# Its stubs leave out what its own documents import.
kinds: Any = admin


class AdminClient:
    """Every call of admin.AdminClient; those that wait for their answer wait only so long."""

    def __init__(self, bootstrap: str) -> None:
        self.calls = 0
        self._client: Any = kinds.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self._client, name)
        self.calls += 1
        return call

    def list_topics(self, topic: str | None = None) -> Any:
        self.calls += 1
        return self._client.list_topics(topic, timeout=ANSWER_SECONDS_MAX)

    def list_groups(self) -> Any:
        self.calls += 1
        return self._client.list_groups(timeout=ANSWER_SECONDS_MAX)


def only(futures: Mapping[Any, Future[Any]]) -> Future[Any]:
    """The future of the only thing that was asked for."""
    (future,) = futures.values()
    return future


def answer(future: Future[Any]) -> Any:
    """Raises AssertionError if it is an error."""
    error = future.exception(ANSWER_SECONDS_MAX)
    assert error is None, f"refused: {error}"
    return future.result()


def refused(future: Future[Any], code: int) -> None:
    """Raises AssertionError unless the answer is this error."""
    error = future.exception(ANSWER_SECONDS_MAX)
    assert isinstance(error, KafkaException), f"error {code} was expected, not {future.result()}"
    assert error.args[0].code() == code, f"error {code} was expected, not {error}"


def becomes(expected: object, found: Callable[[], object]) -> None:
    """Asks until it is so: Apache Kafka's brokers hear of changes after the one who made them."""
    scenes.wait(
        lambda: found() == expected,
        BECOMES_SECONDS_MAX,
        lambda: f"{expected} was expected, not {found()}",
    )
