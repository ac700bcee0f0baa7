"""The differences that are accepted where both brokers open what one has left (`carried`)."""

from __future__ import annotations

import time
from typing import Any

from ottla.protocol.api import ApiKey
from tests.differences.known import Known, share_parts
from tests.differences.known_upgrades import YET_TO_REBALANCE, yet_to_rebalance
from tests.differences.requests import Request

Tree = Any
DAY_MS = 86_400_000


def _leader_epochs(request: Request, kafka: Tree, ottla: Tree) -> None:
    for answer in (kafka, ottla):
        for topic in answer["topics"]:
            for part in [topic, *topic.get("partitions", [])]:
                part.pop("leader_epoch", None)


def _forgotten_producers(request: Request, kafka: Tree, ottla: Tree) -> None:
    for theirs, ours in zip(kafka["topics"], ottla["topics"], strict=False):
        known = theirs["active_producers"]
        for one in ours["active_producers"]:
            # A marker behind its batches brings one back that was forgotten, but no sequence.
            if {**one, "last_sequence": -1} in known:
                one["last_sequence"] = -1
        ours["active_producers"] = [
            one
            for one in ours["active_producers"]
            if one in known or (known and not _is_old(one["last_timestamp"]))
        ]


def _altered(request: Request, kafka: Tree, ottla: Tree) -> None:
    for theirs, ours in zip(share_parts(kafka), share_parts(ottla), strict=False):
        if theirs["leader_epoch"] == -1 < ours["leader_epoch"]:
            theirs["leader_epoch"] = ours["leader_epoch"]


def _is_old(timestamp: Any) -> bool:
    return isinstance(timestamp, int) and timestamp < time.time() * 1_000 - DAY_MS


CARRIED: tuple[Known, ...] = (
    Known(
        "Kafka begins a leader epoch with each start, Ottla where somebody else led before",
        frozenset((ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.LIST_OFFSETS)),
        _leader_epochs,
    ),
    Known(
        "At its start Kafka forgets producers whose last record is a day old by its own time, and "
        "all of a log of which nothing is left",
        frozenset((ApiKey.DESCRIBE_PRODUCERS,)),
        _forgotten_producers,
    ),
    Known(
        YET_TO_REBALANCE,
        frozenset((ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS)),
        yet_to_rebalance,
    ),
    Known(
        "A start offset that was set for a share group names no leader epoch on Ottla's disk, so "
        "that none is cut off for it",
        frozenset((ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,)),
        _altered,
    ),
)
