"""What Kafka does after it has answered, and is waited for, so that the next answer shows what is
and not what was a moment ago.

A topic is made by the controller, and known to the broker, and led by it, some milliseconds later;
markers are written after EndTxn is answered; a coordinator's first partition takes its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from ottla.broker.coordinator.share.state import SharePartitionKey
from ottla.broker.share.sessions import LAST_EPOCH
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.groups import FindCoordinatorRequest, HeartbeatRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.offsets import ListOffsetsRequest
from ottla.protocol.messages.producer_ids import InitProducerIdRequest
from ottla.protocol.messages.quorum import DescribeQuorumRequest
from ottla.protocol.messages.transactions import DescribeTransactionsRequest
from tests.differences.peer import Peer
from tests.differences.requests import OWN, Request

SETTLED_SECONDS_MAX = 10.0
MADE_SECONDS_MAX = 0.3
AGAIN_SECONDS = 0.004
APPLIED_SECONDS = 0.006
"""What the broker has applied is seen by all its threads by then."""
RELEASED_SECONDS = 0.02
"""What a share session held is free by then."""
METADATA_LOG = "__cluster_metadata"
RETRIABLE = frozenset((14, 15, 16, 51))
"""COORDINATOR_LOAD_IN_PROGRESS, ..._NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS."""
CREATES_IF_ASKED_SINCE = 4
YET_TO_BE = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE))
GROUP_TYPE, TRANSACTION_TYPE, SHARE_TYPE = 0, 1, 2
CHANGES_METADATA = frozenset(
    (
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.METADATA,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ELECT_LEADERS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.UNREGISTER_BROKER,
    )
)
CHANGES_TOPICS = frozenset(
    (
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.METADATA,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    )
)
CHANGES_TRANSACTIONS = frozenset(
    (
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.END_TXN,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.PRODUCE,
    )
)
PREPARED = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")


def error_codes(answer: Any) -> set[int]:
    """Every error code in an answer."""
    if isinstance(answer, list):
        return {code for one in answer for code in error_codes(one)}
    if not isinstance(answer, dict):
        return set()
    codes = {answer[name] for name in ("error_code", "partition_error_code") if name in answer}
    return codes.union(*(error_codes(one) for one in answer.values()))


def _until(done: Callable[[], bool], what: str) -> None:
    """Asks again until it is so, or for a time that no broker needs."""
    until = time.monotonic() + SETTLED_SECONDS_MAX
    while not done():
        if time.monotonic() > until:
            raise TimeoutError(what)
        time.sleep(AGAIN_SECONDS)


def names_of(value: Any) -> set[str]:
    """The names of topics in a body that are the replay's own."""
    if isinstance(value, list):
        return {name for one in value for name in names_of(one)}
    if not isinstance(value, dict):
        return set()
    found = set()
    for field, inner in value.items():
        if field in ("name", "topic", "topic_name") and isinstance(inner, str) and OWN in inner:
            found.add(inner)
        elif field == "topic_names":
            found.update(name for name in inner if OWN in name)
        else:
            found |= names_of(inner)
    return found


def transactions_of(body: dict[str, Any]) -> set[str]:
    named = [body.get("transactional_id"), body.get("v3_and_below_transactional_id")]
    named += [one["transactional_id"] for one in body.get("transactions", [])]
    return {name for name in named if name}


def settle(peer: Peer, request: Request, topics: Iterable[str], transactions: set[str]) -> None:
    """Waits until all shows what this request has changed."""
    if request.api is ApiKey.METADATA and _may_create(request):
        made(peer, names_of(request.body))
    if request.api in CHANGES_METADATA:
        applied(peer)
    if request.api in CHANGES_TOPICS:
        led(peer, topics)
    if request.api in CHANGES_TRANSACTIONS and transactions:
        ended(peer, transactions)
    if request.body.get("share_session_epoch") == LAST_EPOCH:
        time.sleep(RELEASED_SECONDS)


def _may_create(request: Request) -> bool:
    asked: bool = request.body.get("allow_auto_topic_creation", True)
    return asked or request.version < CREATES_IF_ASKED_SINCE


def applied(peer: Peer) -> None:
    """The broker has applied what its controller has written."""
    asking = DescribeQuorumRequest
    asked = asking([asking.TopicData(METADATA_LOG, [asking.PartitionData(0)])])
    ((found,),) = [topic["partitions"] for topic in peer.ask(asked, 1)["topics"]]
    written = found["high_watermark"]

    def reached() -> bool:
        known = peer.ask(ApiVersionsRequest("settling", "1"), 3)
        return bool(known["finalized_features_epoch"] >= written - 1)

    _until(reached, f"{peer.name} applies its metadata")
    time.sleep(APPLIED_SECONDS)


def made(peer: Peer, topics: Iterable[str]) -> None:
    """The topics are there, which are made behind the answer; or they are not to be made."""
    asked = MetadataRequest(
        [
            MetadataRequest.MetadataRequestTopic(name=name.replace(OWN, peer.meanings.prefix))
            for name in topics
        ],
        False,
    )
    until = time.monotonic() + MADE_SECONDS_MAX
    while error_codes(peer.ask(asked, 12)) & YET_TO_BE and time.monotonic() < until:
        time.sleep(AGAIN_SECONDS)


def led(peer: Peer, topics: Iterable[str]) -> None:
    """Each partition of the topics that there are has its leader."""
    names = [name.replace(OWN, peer.meanings.prefix) for name in topics]
    asking = ListOffsetsRequest

    def reached() -> bool:
        asked = MetadataRequest(
            [MetadataRequest.MetadataRequestTopic(name=name) for name in names], False
        )
        # As a request of the sequence would, it tells of ids.
        found = peer.ask(asked, 12)["topics"]
        parts = [
            asking.ListOffsetsTopic(
                topic["name"],
                [
                    asking.ListOffsetsPartition(part["partition_index"], -1, -1)
                    for part in topic["partitions"]
                ],
            )
            for topic in found
            if not topic["error_code"]
        ]
        return not parts or error_codes(peer.ask(asking(-1, 0, parts), 5)) <= {0}

    if names:
        _until(reached, f"{peer.name} leads {names}")


def ended(peer: Peer, transactions: set[str]) -> None:
    """No transaction is between its end and its last marker."""
    names = [name.replace(OWN, peer.meanings.prefix) for name in sorted(transactions)]

    def reached() -> bool:
        found = peer.ask(DescribeTransactionsRequest(names), 0)["transaction_states"]
        states = {one["transaction_state"] for one in found}
        return not states & set(PREPARED) and not error_codes(found) & RETRIABLE

    _until(reached, f"{peer.name} ends {names}")


def warm(peer: Peer) -> None:
    """The coordinators are there, and the broker has ids for producers."""
    warm_partition = SharePartitionKey("warm", bytes(range(16)), 0).placed_by

    def reached() -> bool:
        codes = set()
        for kind in (GROUP_TYPE, TRANSACTION_TYPE):
            codes |= error_codes(peer.ask(FindCoordinatorRequest(key="warm", key_type=kind), 2))
        asked = FindCoordinatorRequest(key_type=SHARE_TYPE, coordinator_keys=[warm_partition])
        codes |= error_codes(peer.ask(asked, 6))
        codes |= error_codes(peer.ask(HeartbeatRequest("warm", 1, "nobody"), 3)) - {25}
        codes |= error_codes(peer.ask(InitProducerIdRequest(None, 60_000), 1))
        codes |= error_codes(peer.ask(InitProducerIdRequest("warm", 60_000), 1))
        return codes == {0}

    _until(reached, f"{peer.name} has its coordinators")
