"""Names as long as a string may be, quoted in answers that are to be written all the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinator.group.share_heartbeat import initialized
from ottla.protocol.errors import MESSAGE_LENGTH_MAX, ErrorCode
from ottla.protocol.messages.consumer_group import ConsumerGroupDescribeRequest
from ottla.protocol.messages.groups import DescribeGroupsRequest, FindCoordinatorRequest
from ottla.protocol.messages.scram import DescribeUserScramCredentialsRequest
from ottla.protocol.messages.share_group import ShareGroupDescribeRequest
from ottla.protocol.schema import Message
from ottla.protocol.wire import STRING_SIZE_MAX
from tests.coordinator.asking import ask
from tests.handlers.rooms import House

NAME = "n" * STRING_SIZE_MAX
USER = DescribeUserScramCredentialsRequest.UserName(NAME)


@pytest.mark.parametrize(
    ("request_", "version", "field", "code"),
    [
        (DescribeGroupsRequest([NAME]), 6, "groups", ErrorCode.GROUP_ID_NOT_FOUND),
        (ConsumerGroupDescribeRequest([NAME]), 1, "groups", ErrorCode.GROUP_ID_NOT_FOUND),
        (ShareGroupDescribeRequest([NAME]), 1, "groups", ErrorCode.GROUP_ID_NOT_FOUND),
        (
            DescribeUserScramCredentialsRequest([USER]),
            0,
            "results",
            ErrorCode.RESOURCE_NOT_FOUND,
        ),
        (
            DescribeUserScramCredentialsRequest([USER, USER]),
            0,
            "results",
            ErrorCode.DUPLICATE_RESOURCE,
        ),
    ],
)
async def test_what_is_not_there_is_told(
    house: House, request_: Message, version: int, field: str, code: ErrorCode
) -> None:
    await ask(house, FindCoordinatorRequest(coordinator_keys=[NAME]), 6)
    answer = await ask(house, request_, version)
    (told,) = getattr(answer, field)

    assert told.error_code == code


def test_who_has_left_before_the_share_state_is_there_is_told() -> None:
    turn: Any = SimpleNamespace(shard=SimpleNamespace(groups={}))

    answer = initialized(turn, NAME, NAME, {}, ())

    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert answer.error_message is not None
    assert len(answer.error_message) <= MESSAGE_LENGTH_MAX + 3
