"""The answers that say nothing but an error: for what could not be written, or is not led here."""

from __future__ import annotations

from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group import ConsumerGroupDescribeResponse
from ottla.protocol.messages.groups import (
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    JoinGroupResponse,
    OffsetCommitResponse,
    OffsetFetchResponse,
)
from ottla.protocol.messages.share_group import ShareGroupDescribeResponse
from ottla.protocol.messages.transactions import TxnOffsetCommitResponse

# What an append may fail with is nothing that a member could understand.
_SHOWN: dict[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}

_NAMED = (
    ConsumerGroupDescribeResponse.DescribedGroup,
    DeleteGroupsResponse.DeletableGroupResult,
    DescribeGroupsResponse.DescribedGroup,
    OffsetFetchResponse.OffsetFetchResponseGroup,
    ShareGroupDescribeResponse.DescribedGroup,
)


def shown(code: ErrorCode) -> ErrorCode:
    """The error that a client is told when records could not be written for this one."""
    return _SHOWN.get(code, code)


def refused(response: Any, code: ErrorCode) -> Any:
    """The same answer without anything in it but the error."""
    number = int(code)
    if isinstance(response, ErrorCode):
        return code
    if isinstance(response, OffsetCommitResponse | TxnOffsetCommitResponse):
        for topic in response.topics:
            for part in topic.partitions:
                part.error_code = part.error_code or number
        return response
    if isinstance(response, JoinGroupResponse):
        return JoinGroupResponse(
            error_code=number, protocol_name=None, member_id=response.member_id
        )
    if isinstance(response, _NAMED):
        return type(response)(group_id=response.group_id, error_code=number)
    return type(response)(error_code=number)
