"""The differences that are accepted of share groups (`shares`)."""

from __future__ import annotations

from typing import Any

from ottla.broker.share.window import THROTTLE_MIN
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from tests.differences.known import Known, share_parts, without
from tests.differences.requests import Acknowledged, Request

Tree = Any
SOON = ("member_epoch", "group_epoch", "assignment_epoch", "assignment")


def _assigned_later(request: Request, kafka: Tree, ottla: Tree) -> None:
    for tree in (kafka, ottla):
        without(tree, SOON)


def _behind_a_start_that_moved(request: Request, kafka: Tree, ottla: Tree) -> None:
    told = {part["partition_index"] for part in kafka["responses"]}
    more = [part for part in ottla["responses"] if part["partition_index"] not in told]
    begins = [part["acquired_records"][0] for part in more if part["acquired_records"]]
    if begins and all(first > 0 for first, _, _ in begins):
        ottla["responses"] = [part for part in ottla["responses"] if part not in more]


def _given_back(request: Request, kafka: Tree, ottla: Tree) -> None:
    for theirs, ours in zip(share_parts(kafka), share_parts(ottla), strict=False):
        if theirs["start_offset"] == -1 < ours["start_offset"]:
            theirs |= ours


def _refused_behind_what_was_given(request: Request, kafka: Tree, ottla: Tree) -> None:
    field = "error_code" if request.api is ApiKey.SHARE_ACKNOWLEDGE else "acknowledge_error_code"
    behind = {
        part["partition_index"]
        for topic in request.body["topics"]
        for part in topic["partitions"]
        if isinstance(given := part.get("acknowledgement_batches"), Acknowledged)
        and given.odd == "behind"
    }
    codes = ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST
    for theirs, ours in zip(kafka["responses"], ottla["responses"], strict=False):
        if theirs["partition_index"] in behind and (theirs[field], ours[field]) == codes:
            theirs[field] = ours[field]


def _counts(part: Tree) -> dict[int, int]:
    """How often each offset that was acquired has been delivered."""
    return {
        offset: count
        for first, last, count in part["acquired_records"]
        for offset in range(first, last + 1)
    }


def _fewer_at_a_time(request: Request, kafka: Tree, ottla: Tree) -> None:
    for theirs, ours in zip(kafka["responses"], ottla["responses"], strict=False):
        there, here = _counts(theirs), _counts(ours)
        is_less = here.items() < there.items() and min(there.values()) > THROTTLE_MIN
        if theirs["partition_index"] == ours["partition_index"] and here and is_less:
            theirs |= ours


SHARES: tuple[Known, ...] = (
    Known(
        "A member of a share group has its partitions with its first heartbeat, in Kafka with a "
        "later one",
        frozenset((ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_DESCRIBE)),
        _assigned_later,
    ),
    Known(
        "The first fetch from behind a log start that has moved finds nothing in Kafka",
        frozenset((ApiKey.SHARE_FETCH,)),
        _behind_a_start_that_moved,
        parts=True,
    ),
    Known(
        "The last request of a session gives back all that its member has; in Kafka not what it "
        "has of a session that was replaced by this one, and with it no state is written",
        frozenset((ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,)),
        _given_back,
        parts=True,
    ),
    Known(
        "An acknowledgement behind what was given out is INVALID_REQUEST, in Kafka "
        "INVALID_RECORD_STATE where a limit of records has cut the batch, which it keeps whole",
        frozenset((ApiKey.SHARE_ACKNOWLEDGE, ApiKey.SHARE_FETCH)),
        _refused_behind_what_was_given,
    ),
    Known(
        "Records that were delivered often come in ever smaller pieces: in Kafka of what it once "
        "gave out together, whatever of it is not to be had now; in Ottla of those side by side",
        frozenset((ApiKey.SHARE_FETCH,)),
        _fewer_at_a_time,
        parts=True,
    ),
)
