"""Shrinking keeps what a difference needs, and nothing else; a predicate stands for the brokers."""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from tests.differences.requests import HangUp, Request, Sequence, requests_of
from tests.differences.shrinking import shortened

TRIES = 10_000


def _step(*names: str) -> tuple[Request, ...]:
    return (Request(ApiKey.DELETE_TOPICS, 5, {"topic_names": list(names), "timeout_ms": 1}),)


def _names(sequence: Sequence) -> list[str]:
    return [name for request in requests_of(sequence) for name in request.body["topic_names"]]


def test_only_the_steps_and_elements_that_matter_are_left() -> None:
    noise = [_step(f"noise {number}", "more") for number in range(20)]
    whole: Sequence = (*noise[:7], _step("a", "x"), *noise[7:], HangUp("m"), _step("y", "b"))

    short = shortened(whole, lambda one: {"a", "b"} <= set(_names(one)), TRIES)

    assert short == (_step("a"), _step("b"))


def test_one_of_several_requests_that_are_written_at_once_is_left_out() -> None:
    (first,), (second,), (third,) = _step("a"), _step("b"), _step("c")

    short = shortened(((first, second, third),), lambda one: "b" in _names(one), TRIES)

    assert short == ((second,),)


def test_elements_inside_of_elements_are_left_out() -> None:
    topic = {"name": "~a", "partitions": [{"index": 0}, {"index": 1}]}
    request = Request(ApiKey.FETCH, 4, {"topics": [{"name": "~b"}, topic]})

    def differs(sequence: Sequence) -> bool:
        return any("{'index': 1}" in str(one.body) for one in requests_of(sequence))

    (left,) = requests_of(shortened(((request,),), differs, TRIES))

    assert left.body == {"topics": [{"name": "~a", "partitions": [{"index": 1}]}]}


def test_nothing_is_tried_above_the_limit() -> None:
    tried: list[Sequence] = []

    def never(sequence: Sequence) -> bool:
        tried.append(sequence)
        return False

    whole: Sequence = tuple(_step(str(number)) for number in range(30))

    assert shortened(whole, never, 11) == whole
    assert len(tried) == 11


def test_a_sequence_of_one_plain_request_stays() -> None:
    alone: Sequence = ((Request(ApiKey.LIST_GROUPS, 0, {}),),)

    assert shortened(alone, lambda one: True, TRIES) == alone
