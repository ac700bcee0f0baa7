"""Who leads a partition, and what its in-sync replicas become with it.

One function decides every change, as Kafka's PartitionChangeBuilder does. A replica is *acceptable*
if its broker is active and its directory online, and *valid* if it is acceptable and has all that
was acknowledged: it is in sync, or nobody is and it is an eligible leader replica (KIP-966).

    ONLINE      keep the leader if valid, else the first valid replica, else nobody
    PREFERRED   the first replica if valid, else as ONLINE
    UNCLEAN     as ONLINE, and in the end any acceptable replica: records may be lost

Without ELR the last in-sync replica never leaves the set, so that it is known who has the data.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from ottla.broker.metadata.delta import LEADER_UNCHANGED
from ottla.broker.metadata.image import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    NO_LEADER,
    RECOVERING,
    TOPIC_RESOURCE,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from ottla.config.keys import Value
from ottla.config.topic import topic_keys
from ottla.protocol.messages.metadata_records import PartitionChangeRecord

Acceptable = Callable[[int], bool]


class Election(Enum):
    ONLINE = "online"
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


class Rules(NamedTuple):
    """What the cluster's features and settings say for one topic."""

    elr: bool
    min_insync_replicas: int
    unclean_election: bool


class _Outcome(NamedTuple):
    leader: int
    isr: list[int]
    elr: list[int]
    unclean: bool = False


def rules_of(image: MetadataImage, topic: TopicImage) -> Rules:
    """The rules of a topic, from what was set at run time; Kafka's defaults otherwise."""
    own = image.configs.get(TOPIC_RESOURCE, topic.name)
    cluster = image.configs.get(BROKER_RESOURCE, ALL_BROKERS)

    def said(name: str, default: str) -> Value:
        return topic_keys()[name].parse(own.get(name, cluster.get(name, default)))

    least = said("min.insync.replicas", "1")
    assert isinstance(least, int), least
    is_unclean = said("unclean.leader.election.enable", "false") is True
    return Rules(image.elr_enabled, least, is_unclean)


def acceptable_in(image: MetadataImage, partition: PartitionImage, *, starting: int) -> Acceptable:
    """Whether a replica may lead; `starting` is a broker that counts as active (-1: none)."""

    def acceptable(broker_id: int) -> bool:
        broker = image.cluster.brokers.get(broker_id)
        if broker is None or not (broker.active or broker_id == starting):
            return False
        return broker.has_online_directory(partition.directory_of(broker_id))

    return acceptable


def change_partition(
    topic_id: bytes,
    index: int,
    partition: PartitionImage,
    *,
    isr: list[int],
    rules: Rules,
    election: Election,
    acceptable: Acceptable,
    new_epoch: bool = False,
) -> PartitionChangeRecord | None:
    """The record that brings a partition to this target ISR and elects; None if nothing changes.

    `new_epoch` moves the leader epoch though the leader may stay.
    """
    outcome = _elect(partition, isr, rules, election, acceptable)
    elr, last_known = _eligible(partition, outcome, rules)
    record = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
    changed = False
    if outcome.isr != partition.isr and (outcome.isr or rules.elr):
        record.isr = outcome.isr
        changed = True
    if outcome.leader != partition.leader or (new_epoch and outcome.leader != NO_LEADER):
        assert outcome.leader != LEADER_UNCHANGED
        record.leader = outcome.leader
        changed = True
    if outcome.unclean and partition.leader_recovery_state != RECOVERING:
        record.leader_recovery_state = RECOVERING
    if elr != partition.elr:
        record.eligible_leader_replicas = elr
        changed = True
    if last_known != partition.last_known_elr:
        record.last_known_elr = last_known
        changed = True
    return record if changed else None


def _elect(
    partition: PartitionImage,
    isr: list[int],
    rules: Rules,
    election: Election,
    acceptable: Acceptable,
) -> _Outcome:
    elr = partition.elr if rules.elr else []
    candidates = isr or elr

    def valid(broker_id: int) -> bool:
        return broker_id in candidates and acceptable(broker_id)

    order = list(partition.replicas)
    if election is not Election.PREFERRED and partition.leader in order:
        order.remove(partition.leader)
        order.insert(0, partition.leader)
    elif election is Election.PREFERRED and partition.leader in order[1:]:
        order.remove(partition.leader)
        order.insert(1, partition.leader)
    for broker_id in order:
        if valid(broker_id):
            if isr:
                return _Outcome(broker_id, isr, elr)
            return _Outcome(broker_id, [broker_id], [one for one in elr if one != broker_id])
    last_resort = _unclean_leader(partition, candidates, rules, election, acceptable)
    if last_resort is not None:
        return _Outcome(last_resort, [last_resort], elr, unclean=True)
    return _Outcome(NO_LEADER, isr, elr)


def _unclean_leader(
    partition: PartitionImage,
    candidates: list[int],
    rules: Rules,
    election: Election,
    acceptable: Acceptable,
) -> int | None:
    last_known = partition.last_known_elr
    if rules.elr and not candidates and len(last_known) == 1 and acceptable(last_known[0]):
        return last_known[0]
    if election is Election.UNCLEAN:
        return next((one for one in partition.replicas if acceptable(one)), None)
    return None


def _eligible(
    partition: PartitionImage, outcome: _Outcome, rules: Rules
) -> tuple[list[int], list[int]]:
    """The eligible and the last known leader replicas that go with an outcome."""
    if not rules.elr:
        return partition.elr, partition.last_known_elr
    if len(outcome.isr) >= min(rules.min_insync_replicas, len(partition.replicas)):
        return [], []
    known = dict.fromkeys([*outcome.elr, *partition.isr])
    elr = [one for one in known if one not in outcome.isr and one in partition.replicas]
    last_known = partition.last_known_elr
    if outcome.leader == NO_LEADER and not last_known and partition.leader != NO_LEADER:
        last_known = [partition.leader]
    return elr, last_known
