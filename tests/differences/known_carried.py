"""The differences that are accepted where both brokers open what one has left (`carried`)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ottla.protocol.api import ApiKey
from tests.differences.known import TOPIC_SOURCE, Known, share_parts
from tests.differences.known_upgrades import YET_TO_REBALANCE, yet_to_rebalance
from tests.differences.requests import Request
from tests.differences.settings import TOPIC

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


def deleted_settings(metadata: Path) -> dict[str, set[str]]:
    """What was set for topics when they were deleted, by their names, in a metadata log."""
    ottla = Path(sys.executable).with_name("ottla")
    logs = sorted(map(str, metadata.glob("*.log")))
    dump = [str(ottla), "log", "dump", "--deep", "--json", *logs]
    lines = subprocess.run(dump, check=True, capture_output=True, text=True).stdout.splitlines()
    names: dict[str, str] = {}
    own: defaultdict[str, set[str]] = defaultdict(set)
    deleted: defaultdict[str, set[str]] = defaultdict(set)
    for record in map(json.loads, lines):
        data = record.get("data", {})
        match record.get("type"):
            case "TopicRecord":
                names[data["topic_id"]] = data["name"]
            case "ConfigRecord" if data["resource_type"] == TOPIC:
                keys = own[data["resource_name"]]
                (keys.discard if data["value"] is None else keys.add)(data["name"])
            case "RemoveTopicRecord":
                name = names[data["topic_id"]]
                deleted[name] |= own.pop(name, set())
    return dict(deleted)


def come_back(deleted: Mapping[str, set[str]]) -> Known:
    """`deleted` has the names as answers are compared by them."""
    return Known(
        "What was set for a topic that was deleted is set again in Kafka with its start, for one "
        "of that name which was made since",
        frozenset((ApiKey.DESCRIBE_CONFIGS,)),
        partial(_set_again, deleted),
    )


def _set_again(deleted: Mapping[str, set[str]], request: Request, kafka: Tree, ottla: Tree) -> None:
    for theirs, ours in zip(kafka["results"], ottla["results"], strict=False):
        if theirs["resource_type"] != TOPIC:
            continue
        own = {one["name"] for one in ours["configs"] if one["config_source"] == TOPIC_SOURCE}
        keys = deleted.get(theirs["resource_name"], set()) - own
        for answer in (theirs, ours):
            answer["configs"] = [one for one in answer["configs"] if one["name"] not in keys]


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
