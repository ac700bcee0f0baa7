"""The differences that are accepted of groups which change their protocol (`upgrades`).

Who has what in them is not the same on both brokers, for what a member is to give up first hangs on
the order of members, and a group that becomes a classic one hands on what its members have, where
Kafka hands on what they were to have. What is compared are states, errors, who waits, and epochs.
"""

from __future__ import annotations

from typing import Any

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from tests.differences.known import Known, without
from tests.differences.requests import Request
from tests.differences.settling import error_codes

Tree = Any
MEMBERS = ("p", "q")
ONLOOKER = "onlooker"
"""Who sends the requests of `upgrades`, by which those are known."""
BEHIND_MAX = 3
NEW_GROUP_EPOCH = 2
"""What the first member of a new group hears."""
EPOCHS = ("member_epoch", "generation_id", "group_epoch", "assignment_epoch")
ASSIGNMENTS = ("assignment", "target_assignment", "member_assignment", "metadata")
"""The last is that of JoinGroup, which says what a member has."""
HAVE_IT_OR_NOT = {"Stable", "Reconciling"}
"""Whether all members have what they are to have."""


def _is_of_an_upgrade(request: Request) -> bool:
    return request.who in MEMBERS or request.who == ONLOOKER


def _one_gives_up_first(request: Request, kafka: Tree, ottla: Tree) -> None:
    is_apart = kafka["assignment"] != ottla["assignment"]
    apart = abs(kafka["member_epoch"] - ottla["member_epoch"])
    if _is_of_an_upgrade(request) and is_apart and 0 < apart <= BEHIND_MAX:
        kafka["member_epoch"] = ottla["member_epoch"]


def _assignments(request: Request, kafka: Tree, ottla: Tree) -> None:
    if _is_of_an_upgrade(request):
        for theirs, ours in zip(kafka.get("groups", ()), ottla.get("groups", ()), strict=False):
            states = {theirs["group_state"], ours["group_state"]}
            if states == HAVE_IT_OR_NOT and theirs["members"] != ours["members"]:
                theirs["group_state"] = ours["group_state"]
        without(kafka, ASSIGNMENTS)
        without(ottla, ASSIGNMENTS)


def _epochs(request: Request, kafka: Tree, ottla: Tree) -> None:
    if not _is_of_an_upgrade(request):
        return
    if isinstance(kafka, dict) and isinstance(ottla, dict):
        for name in EPOCHS:
            if name in kafka and 0 < kafka[name] - ottla[name] <= BEHIND_MAX:
                kafka[name] = ottla[name]
        for name in kafka.keys() & ottla.keys():
            _epochs(request, kafka[name], ottla[name])
    elif isinstance(kafka, list) and isinstance(ottla, list):
        for theirs, ours in zip(kafka, ottla, strict=False):
            _epochs(request, theirs, ours)


def _told_to_join(request: Request, kafka: Tree, ottla: Tree) -> None:
    is_told = _is_of_an_upgrade(request) and ottla["error_code"] == ErrorCode.REBALANCE_IN_PROGRESS
    if is_told and kafka["error_code"] in (ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION):
        kafka["error_code"] = ottla["error_code"]


def _group_that_is_gone(request: Request, kafka: Tree, ottla: Tree) -> None:
    is_gone = ErrorCode.GROUP_ID_NOT_FOUND in error_codes(kafka) - error_codes(ottla)
    begins_anew = request.body.get("member_epoch") == 0 and (
        kafka["member_epoch"] == NEW_GROUP_EPOCH < ottla["member_epoch"]
    )
    if _is_of_an_upgrade(request) and (is_gone or begins_anew):
        kafka.clear()
        ottla.clear()


def _without_unlisted(one: Tree, other: Tree, state: str) -> None:
    """Takes the groups in that state out of one answer which the other lacks."""
    listed = {group["group_id"] for group in other["groups"]}
    one["groups"] = [
        group
        for group in one["groups"]
        if group["group_id"] in listed or group["group_state"] != state
    ]


def yet_to_rebalance(request: Request, kafka: Tree, ottla: Tree) -> None:
    """Of groups in an answer, by whomever it was asked for; of those in one state by one broker."""
    if request.body.get("states_filter"):
        _without_unlisted(kafka, ottla, "Stable")
        _without_unlisted(ottla, kafka, "PreparingRebalance")
    for theirs, ours in zip(kafka["groups"], ottla["groups"], strict=False):
        if (theirs["group_state"], ours["group_state"]) == ("Stable", "PreparingRebalance"):
            theirs.clear()
            ours.clear()


def _upgraded_yet_to_rebalance(request: Request, kafka: Tree, ottla: Tree) -> None:
    if _is_of_an_upgrade(request):
        yet_to_rebalance(request, kafka, ottla)


YET_TO_REBALANCE = (
    "A group that became a classic one, and has not rebalanced since, is about to; Kafka takes it "
    "for settled"
)
UPGRADES: tuple[Known, ...] = (
    Known(
        YET_TO_REBALANCE,
        frozenset((ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS)),
        _upgraded_yet_to_rebalance,
        parts=True,
    ),
    Known(
        "Of more than two members, of which some left without a word, one is to give something up "
        "and stays in its epoch until it has, or another is",
        frozenset((ApiKey.CONSUMER_GROUP_HEARTBEAT,)),
        _one_gives_up_first,
        parts=True,
    ),
    Known(
        "Who has what in a group that changes its protocol is not compared",
        frozenset(
            (
                ApiKey.CONSUMER_GROUP_HEARTBEAT,
                ApiKey.CONSUMER_GROUP_DESCRIBE,
                ApiKey.SYNC_GROUP,
                ApiKey.DESCRIBE_GROUPS,
                ApiKey.JOIN_GROUP,
            )
        ),
        _assignments,
    ),
    Known(
        "A consumer group becomes a classic one in the generation of its target; in Kafka in that "
        "of its epoch, which members have who are not up to date yet",
        frozenset(
            (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.JOIN_GROUP)
        ),
        _epochs,
    ),
    Known(
        "When a consumer group becomes a classic one, members are told to join again who are up to "
        "date, and all if one lacks something; Kafka fences the former and is silent to the latter",
        frozenset((ApiKey.HEARTBEAT, ApiKey.SYNC_GROUP)),
        _told_to_join,
        parts=True,
    ),
    Known(
        "An empty consumer group is gone from Kafka's memory, and not from its log, when a member "
        "that it does not know comes with JoinGroup",
        frozenset(
            (
                ApiKey.CONSUMER_GROUP_HEARTBEAT,
                ApiKey.CONSUMER_GROUP_DESCRIBE,
                ApiKey.DESCRIBE_GROUPS,
                ApiKey.DELETE_GROUPS,
                ApiKey.OFFSET_COMMIT,
                ApiKey.OFFSET_DELETE,
            )
        ),
        _group_that_is_gone,
        parts=True,
    ),
)
