"""The errors that an answer tells, counted by its compiled function and by a walk over it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.protocol.codec import message_classes
from ottla.protocol.error_codes import ErrorCounts, error_counter
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.groups import OffsetFetchResponse
from ottla.protocol.messages.metadata import MetadataResponse
from ottla.protocol.schema import Message, Struct
from tests.protocol.filling import filled

RESPONSES = [cls for cls in message_classes() if cls.__name__.endswith("Response")]


def told(value: Any, name: str = "") -> Iterator[int]:
    """Every error code in a message, wherever it stands."""
    if isinstance(value, Struct):
        for field in value.__schema__.declared:
            yield from told(getattr(value, field), field)
    elif isinstance(value, list):
        for one in value:
            yield from told(one)
    elif name.endswith("error_code") and value:
        yield value


def counted(message: Message) -> ErrorCounts:
    counts: ErrorCounts = defaultdict(int)
    error_counter(type(message))(message, counts)
    return counts


@pytest.mark.parametrize("cls", RESPONSES, ids=lambda cls: cls.__name__)
def test_what_is_compiled_counts_what_is_there(cls: type[Message]) -> None:
    for version in cls.__schema__.versions:
        message = filled(cls, version)
        expected = Counter(told(message))
        assert counted(message) == expected
        assert counted(cls()) == {}
    assert expected, "an answer without a place for an error"


def test_an_answer_that_says_an_error_often_is_counted_as_often() -> None:
    topic = MetadataResponse.MetadataResponseTopic
    answer = MetadataResponse(topics=[topic(error_code=3), topic(), topic(error_code=3)])
    answer.topics[1].partitions = [MetadataResponse.MetadataResponsePartition(error_code=5)]
    assert counted(answer) == {3: 2, 5: 1}


def test_what_is_null_or_empty_tells_nothing() -> None:
    assert counted(FetchResponse(error_code=71)) == {71: 1}
    group = OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g", topics=[], error_code=16)
    assert counted(OffsetFetchResponse(topics=[], groups=[group])) == {16: 1}
