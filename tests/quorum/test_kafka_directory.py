"""A directory that Apache Kafka 4.3.1 stopped cleanly goes on here; see tests/metadata."""

from __future__ import annotations

from ottla.broker.log.checkpoints import parse_meta_properties
from ottla.broker.quorum.snapshot import BOOTSTRAP_ID, list_snapshots
from ottla.broker.quorum.store import METADATA_DIRECTORY
from ottla.broker.quorum.voters import Endpoint
from ottla.testing.disk import SimDisk
from tests.metadata.test_kafka_files import FIXTURE, METADATA, SNAPSHOT
from tests.quorum.nodes import LOG_DIR, Node

KAFKA_CONTROLLER = Endpoint("CONTROLLER", "127.0.0.1", 19393)
META = parse_meta_properties((FIXTURE / "meta.properties").read_bytes())


def kafka_disk(*, without: frozenset[str] = frozenset()) -> SimDisk:
    disk = SimDisk()
    disk.make_dir(LOG_DIR)
    disk.make_dir(f"{LOG_DIR}/{METADATA_DIRECTORY}")
    for path in (FIXTURE / "bootstrap.checkpoint", *sorted(METADATA.iterdir())):
        if path.name not in without:
            name = path.relative_to(FIXTURE)
            file = disk.open(f"{LOG_DIR}/{name}", create=True)
            file.pwrite(path.read_bytes(), 0)
            file.close()
    return disk


def kafka_node(disk: SimDisk, endpoint: Endpoint = KAFKA_CONTROLLER) -> Node:
    return Node(disk, directory_id=META.directory_id, endpoint=endpoint)


async def test_it_goes_on_where_kafka_stopped() -> None:
    node = kafka_node(kafka_disk())
    registered = await node.start(previous_epoch=14)

    image = node.image
    assert not node.format()
    assert registered.clean
    assert node.quorum.epoch == 2
    # Kafka's clean stop leaves every partition without a leader, eligible to lead again
    partitions = [one for topic in image.topics.by_id.values() for one in topic.partitions.values()]
    assert len(partitions) == 27
    assert all((one.leader, one.isr, one.elr) == (1, [1], []) for one in partitions)
    # levels above ours are kept
    assert image.features["transaction.version"] == 2
    assert "features_above_ours" in node.events.names
    assert image.configs.get(4, "") == {"min.insync.replicas": "1"}
    await node.create("ours")
    await node.stop()


async def test_log_alone_and_snapshot_alone_say_the_same() -> None:
    both = kafka_node(kafka_disk())
    log_alone = kafka_node(kafka_disk(without=frozenset({SNAPSHOT.name})))
    await both.start()
    await log_alone.start()

    assert both.image.topics == log_alone.image.topics
    assert both.image.configs == log_alone.image.configs
    assert both.image.client_quotas == log_alone.image.client_quotas
    await both.stop()
    await log_alone.stop()


async def test_a_log_that_ends_below_its_snapshot_begins_anew_behind_it() -> None:
    without = frozenset({"00000000000000000000.log", "leader-epoch-checkpoint"})
    node = kafka_node(kafka_disk(without=without))

    await node.start()

    assert node.quorum._store.log.log_start_offset == 275
    assert "metadata_log_behind_snapshot" in node.events.names
    assert "gone" in node.image.topics.by_name
    await node.create("ours")
    await node.stop()
    again = kafka_node(node.disk)
    await again.start()
    assert "ours" in again.image.topics.by_name
    await again.stop()


async def test_what_was_formatted_and_never_started_begins_with_kafkas_levels() -> None:
    without = frozenset(path.name for path in METADATA.iterdir()) - {BOOTSTRAP_ID.name}
    node = kafka_node(kafka_disk(without=without))

    await node.start()

    assert list_snapshots(node.disk, f"{LOG_DIR}/{METADATA_DIRECTORY}") == [BOOTSTRAP_ID]
    assert node.image.features["group.version"] == 1
    assert node.image.elr_enabled
    # with eligible leader replicas the minimum in sync is one value that all nodes know
    assert node.image.configs.get(4, "") == {"min.insync.replicas": "1"}
    await node.stop()


async def test_a_controller_that_moved_says_so_in_the_log() -> None:
    moved = kafka_node(kafka_disk(), Endpoint("CONTROLLER", "elsewhere", 9093))

    await moved.start()

    assert moved.quorum._raft.voters.voters[1].endpoints == (("CONTROLLER", "elsewhere", 9093),)
    await moved.stop()
    again = kafka_node(moved.disk, Endpoint("CONTROLLER", "elsewhere", 9093))
    await again.start()
    assert again.quorum._store._voters_in_log
    await again.stop()
