"""A metadata log and snapshots that Apache Kafka 4.3.1 wrote, read here.

It made and deleted topics, added partitions, changed settings of topics and a broker, made a SCRAM
user and quotas, gave out producer ids, took snapshots every 6,000 bytes, and was stopped cleanly.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.controller.features import levels_above_ours
from ottla.broker.log.checkpoints import parse_meta_properties
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.metadata.publish import MetadataMachine
from ottla.broker.metadata.records import decode_batch, encode_record
from ottla.broker.quorum.snapshot import parse_snapshot, snapshot_batches
from ottla.broker.quorum.vote_file import VoteState, format_vote_state, parse_vote_state
from ottla.broker.quorum.voters import VoterSet
from ottla.protocol.messages.control_records import VotersRecord
from ottla.protocol.records.batch import iterate_headers
from ottla.protocol.records.control import build_control_batch, read_control_batch
from ottla.protocol.records.record import iterate_records

FIXTURE = Path(__file__).parent / "fixtures" / "kafka-4.3.1"
METADATA = FIXTURE / "__cluster_metadata-0"
LOG = METADATA / "00000000000000000000.log"
SNAPSHOT = METADATA / "00000000000000000275-0000000001.checkpoint"
FORMATTED = METADATA / "00000000000000000000-0000000000.checkpoint"

MACHINE = MetadataMachine()


def read_log(*, below: int = 1 << 62, base: MetadataImage = MACHINE.empty) -> MetadataImage:
    data = memoryview(LOG.read_bytes())
    replay = MACHINE.replay(base)
    for position, header in iterate_headers(data):
        view = data[position : position + header.size]
        place = {
            "last_offset": header.last_offset,
            "epoch": header.partition_leader_epoch,
            "timestamp": header.max_timestamp,
        }
        if not base.offset < header.base_offset < below:
            continue
        if header.is_control:
            replay.add_control(kraft_version=1, **place)
        else:
            replay.add(MACHINE.decode(view), **place)
    return replay.finish()[1]


def read_snapshot_image() -> MetadataImage:
    snapshot = parse_snapshot(memoryview(SNAPSHOT.read_bytes()))
    replay = MACHINE.replay(MACHINE.empty)
    place = {"last_offset": 274, "epoch": 1, "timestamp": snapshot.last_contained_timestamp}
    for _, view in snapshot.batches:
        replay.add(MACHINE.decode(view), **place)
    replay.add_control(kraft_version=snapshot.kraft_version, **place)
    return replay.finish()[1]


def test_the_log_says_what_kafka_was_told() -> None:
    image = read_log()

    assert image.features["metadata.version"] == 30
    assert image.kraft_version == 1
    assert {name: len(topic.partitions) for name, topic in image.topics.by_name.items()} == {
        "orders": 3,
        "a.b": 4,
        "many": 20,
    }
    assert image.configs.get(2, "orders") == {
        "cleanup.policy": "compact",
        "retention.ms": "1234567",
        "segment.ms": "777777",
    }
    assert image.configs.get(4, "1") == {"log.cleaner.threads": "2"}
    assert image.client_quotas == {
        (("user", "bob"),): {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0}
    }
    assert list(image.scram) == [(1, "alice")]
    assert image.next_producer_id == 1000
    # a clean stop leaves every partition without a leader, eligible to lead again
    partition = image.topics.by_name["orders"].partitions[0]
    assert (partition.isr, partition.leader, partition.elr) == ([], -1, [1])
    assert image.cluster.brokers[1].fenced


def test_levels_of_kafka_are_seen_and_kept() -> None:
    image = read_log()

    assert sorted(levels_above_ours(image)) == [
        "eligible.leader.replicas.version",
        "streams.version",
    ]


def test_a_snapshot_of_kafka_is_the_log_below_it() -> None:
    snapshot = read_snapshot_image()
    log = read_log(below=275)

    assert snapshot.topics == log.topics
    assert snapshot.configs == log.configs
    assert snapshot.features == log.features
    assert snapshot.cluster == log.cluster


def test_the_log_goes_on_behind_a_snapshot() -> None:
    assert read_log(base=read_snapshot_image()) == read_log()


@pytest.mark.parametrize("path", [LOG, SNAPSHOT], ids=["log", "snapshot"])
def test_every_record_is_encoded_as_kafka_did(path: Path) -> None:
    data = memoryview(path.read_bytes())
    count = 0
    for position, header in iterate_headers(data):
        view = data[position : position + header.size]
        if header.is_control:
            continue
        for kafka, record in zip(iterate_records(view), decode_batch(view), strict=True):
            assert kafka.value == encode_record(record, 30), record
            count += 1

    assert count > 40


def test_control_batches_are_built_as_kafka_did() -> None:
    data = memoryview(LOG.read_bytes())
    _, header = next(iterate_headers(data))
    bodies = [record.body for record in read_control_batch(data[: header.size])]

    ours = build_control_batch(
        [body for body in bodies if body is not None],
        timestamp=header.max_timestamp,
        leader_epoch=header.partition_leader_epoch,
    )

    assert bytes(ours) == bytes(data[: header.size])


def test_a_formatted_snapshot_is_rebuilt_to_the_byte() -> None:
    kafka = FORMATTED.read_bytes()
    snapshot = parse_snapshot(memoryview(kafka))
    headers = [header for _, header in iterate_headers(kafka)]

    batches = list(
        snapshot_batches(
            (),
            lambda records, offset: bytearray(),
            epoch=0,
            now_ms=headers[0].max_timestamp,
            last_contained_timestamp=snapshot.last_contained_timestamp,
            kraft_version=snapshot.kraft_version,
            voters=snapshot.voters,
        )
    )

    # The footer's own time is some milliseconds later in Kafka's file.
    assert bytes(batches[0]) == kafka[: headers[0].size]
    assert [len(batch) for batch in batches] == [header.size for header in headers]


def test_the_voter_is_the_directory() -> None:
    snapshot = parse_snapshot(memoryview(FORMATTED.read_bytes()))
    meta = parse_meta_properties((FIXTURE / "meta.properties").read_bytes())
    assert snapshot.voters is not None
    voter = snapshot.voters.voters[1]

    assert voter.key == (1, meta.directory_id)
    assert voter.endpoints == (("CONTROLLER", "127.0.0.1", 19393),)
    assert VoterSet.from_record(snapshot.voters.to_record()) == snapshot.voters
    assert isinstance(snapshot.voters.to_record(), VotersRecord)


def test_quorum_state_is_kafkas_to_the_byte() -> None:
    kafka = (METADATA / "quorum-state").read_bytes()

    assert parse_vote_state(kafka) == VoteState(epoch=1, leader_id=1, voted=None)
    assert format_vote_state(parse_vote_state(kafka)) == kafka
