"""The admin clients of librdkafka and of kafkajs against a broker of one node: what each of their
calls does, and the values that it answers.

    python -m tests.conformance.admin_clients [--bootstrap HOST:PORT]

librdkafka's is confluent-kafka's AdminClient: here its calls for topics, configs, records and
elections; those for groups are in admin_of_groups.py. Left out are ACLs and the change of SCRAM
credentials, which Ottla does not serve. kafkajs's is node/admin.js. Both say what Apache Kafka
4.3.1 answers, and leave no topic and no group behind.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import click
from confluent_kafka import (
    OFFSET_END,
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)

from tests.conformance import admin_of_groups, clients
from tests.conformance.admin_answers import AdminClient, answer, becomes, kinds, only, refused
from tests.peers import jars
from tests.peers.servers import Ottla

TOPIC = "made-by-admin-clients"
MISSING = "not-made-by-admin-clients"
TOPIC_OPERATIONS = "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS"
CLUSTER_OPERATIONS = (
    "CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE"
)
WEEK_MS = "604800000"
SCRIPT_SECONDS_MAX = 60.0


def confluent(bootstrap: str) -> str:
    """Raises AssertionError, or says how many calls were made."""
    client = AdminClient(bootstrap)
    try:
        _act(client, bootstrap)
    except KafkaException as error:
        raise AssertionError(f"after {client.calls} calls: {error}") from error
    return f"{client.calls} calls"


def _act(client: AdminClient, bootstrap: str) -> None:
    node = _cluster(client, bootstrap)
    _topics_made(client, node)
    _partitions_added(client)
    _topic_configs(client)
    _other_configs(client, node)
    _offsets_and_records(client, bootstrap)
    _elections(client)
    _credentials(client)
    admin_of_groups.act(client, bootstrap, TOPIC)
    _topics_deleted(client)


def kafkajs(bootstrap: str) -> str:
    """The same by kafkajs; raises AssertionError, or says how many calls were made."""
    done = subprocess.run(
        ["node", str(clients.HERE / "node" / "admin.js"), bootstrap],
        cwd=jars.ROOT,
        capture_output=True,
        text=True,
        timeout=SCRIPT_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-1500:]
    return done.stdout.strip()


ACTS = {"confluent-kafka": confluent, "kafkajs": kafkajs}
"""By the name of the client."""


def _operations(found: Any) -> set[str]:
    return {one.name for one in found}


def _cluster(client: AdminClient, bootstrap: str) -> int:
    """Returns the id of the only node."""
    described = answer(client.describe_cluster(include_authorized_operations=True))
    (node,) = described.nodes
    host, _, port = bootstrap.partition(":")
    assert (node.host, node.port) == (host, int(port))
    assert described.controller.id == node.id
    assert _operations(described.authorized_operations) == set(CLUSTER_OPERATIONS.split())
    listed = client.list_topics()
    assert listed.cluster_id == described.cluster_id == client.cluster_id()
    assert listed.controller_id == node.id
    brokers = [(one.id, one.host, one.port) for one in listed.brokers.values()]
    assert brokers == [(node.id, host, int(port))]
    return int(node.id)


def _topics_made(client: AdminClient, node: int) -> None:
    new = kinds.NewTopic(TOPIC, 2, 1, config={"retention.ms": "3600000"})
    answer(only(client.create_topics([new], validate_only=True)))
    assert TOPIC not in client.list_topics().topics
    assert answer(only(client.create_topics([new]))) is None
    refused(only(client.create_topics([new])), KafkaError.TOPIC_ALREADY_EXISTS)
    twice = kinds.NewTopic(MISSING, 1, 2)
    refused(only(client.create_topics([twice])), KafkaError.INVALID_REPLICATION_FACTOR)

    asked = client.describe_topics(
        TopicCollection([TOPIC, MISSING]), include_authorized_operations=True
    )
    refused(asked[MISSING], KafkaError.UNKNOWN_TOPIC_OR_PART)
    described = answer(asked[TOPIC])
    assert (described.name, described.is_internal) == (TOPIC, False)
    assert described.topic_id.get_most_significant_bits() != 0
    assert _operations(described.authorized_operations) == set(TOPIC_OPERATIONS.split())
    for partition_id, partition in enumerate(described.partitions):
        assert (partition.id, partition.leader.id) == (partition_id, node)
        assert [one.id for one in partition.replicas] == [node]
        assert [one.id for one in partition.isr] == [node]
    assert len(described.partitions) == 2


def _partitions_added(client: AdminClient) -> None:
    more, fewer = kinds.NewPartitions(TOPIC, 3), kinds.NewPartitions(TOPIC, 2)
    answer(only(client.create_partitions([more], validate_only=True)))
    assert sorted(client.list_topics(TOPIC).topics[TOPIC].partitions) == [0, 1]
    answer(only(client.create_partitions([more])))
    refused(only(client.create_partitions([fewer])), KafkaError.INVALID_PARTITIONS)
    partitions = client.list_topics(TOPIC).topics[TOPIC].partitions
    assert sorted(partitions) == [0, 1, 2]
    assert all(one.leader >= 0 and one.isrs == one.replicas for one in partitions.values())


def _configs(client: AdminClient, kind: str, name: str) -> Any:
    asked = kinds.ConfigResource(kinds.ResourceType[kind], name)
    return answer(only(client.describe_configs([asked])))


def _change(client: AdminClient, kind: str, name: str, *changes: str, **options: Any) -> Any:
    """The answer to changes that are written as `SET key=value` or `DELETE key`."""
    entries = []
    for change in changes:
        operation, _, assigned = change.partition(" ")
        key, _, value = assigned.partition("=")
        kind_of = kinds.AlterConfigOpType[operation]
        entries.append(kinds.ConfigEntry(key, value, incremental_operation=kind_of))
    resource = kinds.ConfigResource(kinds.ResourceType[kind], name, incremental_configs=entries)
    return only(client.incremental_alter_configs([resource], **options))


def _shown(entry: Any) -> tuple[str, str, bool]:
    source = kinds.ConfigSource(entry.source).name
    return entry.value, source.removesuffix("_CONFIG"), entry.is_default


def _topic_configs(client: AdminClient) -> None:
    found = _configs(client, "TOPIC", TOPIC)
    assert _shown(found["retention.ms"]) == ("3600000", "DYNAMIC_TOPIC", False)
    assert _shown(found["cleanup.policy"]) == ("delete", "DEFAULT", True)

    only_tried = _change(client, "TOPIC", TOPIC, "SET retention.ms=1", validate_only=True)
    answer(only_tried)
    changes = ("DELETE retention.ms", "SET segment.ms=7200000", "APPEND cleanup.policy=compact")
    answer(_change(client, "TOPIC", TOPIC, *changes))
    found = _configs(client, "TOPIC", TOPIC)
    assert _shown(found["retention.ms"]) == (WEEK_MS, "DEFAULT", True)
    assert _shown(found["segment.ms"]) == ("7200000", "DYNAMIC_TOPIC", False)
    assert _shown(found["cleanup.policy"]) == ("delete,compact", "DYNAMIC_TOPIC", False)
    answer(_change(client, "TOPIC", TOPIC, "SUBTRACT cleanup.policy=compact"))
    assert _configs(client, "TOPIC", TOPIC)["cleanup.policy"].value == "delete"
    for wrong in ("SET retention.ms=soon", "SET no.such.key=1"):
        refused(_change(client, "TOPIC", TOPIC, wrong), KafkaError.INVALID_CONFIG)
    missing = _change(client, "TOPIC", MISSING, "SET retention.ms=1")
    refused(missing, KafkaError.UNKNOWN_TOPIC_OR_PART)

    whole = kinds.ConfigResource(kinds.ResourceType.TOPIC, TOPIC, {"max.message.bytes": "2000000"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        answer(only(client.alter_configs([whole])))
    found = _configs(client, "TOPIC", TOPIC)
    assert found["max.message.bytes"].value == "2000000"
    assert _shown(found["segment.ms"]) == (WEEK_MS, "DEFAULT", True)


def _other_configs(client: AdminClient, node: int) -> None:
    """Of the broker and of a group, both left as they were."""
    found = _configs(client, "BROKER", str(node))
    default = ("1048588", "DEFAULT", True)
    assert _shown(found["message.max.bytes"]) == default
    assert found["log.dirs"].is_read_only
    assert not found["message.max.bytes"].is_read_only
    answer(_change(client, "BROKER", str(node), "SET message.max.bytes=1100000"))
    dynamic = ("1100000", "DYNAMIC_BROKER", False)
    becomes(dynamic, lambda: _shown(_configs(client, "BROKER", str(node))["message.max.bytes"]))
    answer(_change(client, "BROKER", str(node), "DELETE message.max.bytes"))
    becomes(default, lambda: _shown(_configs(client, "BROKER", str(node))["message.max.bytes"]))
    fixed = _change(client, "BROKER", str(node), "SET log.dirs=/elsewhere")
    refused(fixed, KafkaError.INVALID_REQUEST)

    answer(_change(client, "GROUP", TOPIC, "SET consumer.session.timeout.ms=50000"))
    found = _configs(client, "GROUP", TOPIC)["consumer.session.timeout.ms"]
    assert _shown(found) == ("50000", "GROUP", False)
    answer(_change(client, "GROUP", TOPIC, "DELETE consumer.session.timeout.ms"))
    assert _configs(client, "GROUP", TOPIC)["consumer.session.timeout.ms"].value == "45000"


def _offset(client: AdminClient, spec: Any, **options: Any) -> tuple[int, int]:
    """Offset and timestamp of a place in the partition 0."""
    found = answer(only(client.list_offsets({TopicPartition(TOPIC, 0): spec}, **options)))
    return found.offset, found.timestamp


def _offsets_and_records(client: AdminClient, bootstrap: str) -> None:
    now = round(time.time() * 1000)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for late in (10, 30, 20):
        producer.produce(TOPIC, b"%d" % late, partition=0, timestamp=now + late)
    assert producer.flush(20) == 0
    at = kinds.OffsetSpec
    assert _offset(client, at.earliest()) == (0, -1)
    assert _offset(client, at.latest()) == (3, -1)
    committed = IsolationLevel.READ_COMMITTED
    assert _offset(client, at.latest(), isolation_level=committed) == (3, -1)
    assert _offset(client, at.max_timestamp()) == (1, now + 30)
    assert _offset(client, at.for_timestamp(now + 10)) == (0, now + 10)
    assert _offset(client, at.for_timestamp(now + 11)) == (1, now + 30)
    assert _offset(client, at.for_timestamp(now + 31)) == (-1, -1)

    beyond = client.delete_records([TopicPartition(TOPIC, 0, 4)])
    refused(only(beyond), KafkaError.OFFSET_OUT_OF_RANGE)
    two = client.delete_records([TopicPartition(TOPIC, 0, 2)])
    assert answer(only(two)).low_watermark == 2
    assert _offset(client, at.earliest()) == (2, -1)
    rest = client.delete_records([TopicPartition(TOPIC, 0, OFFSET_END)])
    assert answer(only(rest)).low_watermark == 3
    assert _offset(client, at.earliest()) == _offset(client, at.latest()) == (3, -1)


def _elections(client: AdminClient) -> None:
    """One node has elected whom it could: every answer says so, or that there is nothing."""
    asked = [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 7)]
    for kind in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        found = answer(client.elect_leaders(kind, asked))
        codes = {one.partition: error.code() for one, error in found.items()}
        assert codes == {
            0: KafkaError.ELECTION_NOT_NEEDED,
            7: KafkaError.UNKNOWN_TOPIC_OR_PART,
        }
    assert answer(client.elect_leaders(ElectionType.PREFERRED, None)) == {}


def _credentials(client: AdminClient) -> None:
    """Nobody has any."""
    assert answer(client.describe_user_scram_credentials()) == {}
    nobody = client.describe_user_scram_credentials(["nobody"])["nobody"]
    refused(nobody, KafkaError.RESOURCE_NOT_FOUND)


def _topics_deleted(client: AdminClient) -> None:
    assert answer(only(client.delete_topics([TOPIC]))) is None
    assert TOPIC not in client.list_topics().topics
    refused(only(client.delete_topics([TOPIC])), KafkaError.UNKNOWN_TOPIC_OR_PART)


def _act_by_all(bootstrap: str) -> None:
    for name, act in ACTS.items():
        started = time.perf_counter()
        click.echo(f"{name}: {act(bootstrap)}, {time.perf_counter() - started:.1f} s")


@click.command()
@click.option("--bootstrap", default="", help="A running broker; without it Ottla is started.")
def main(bootstrap: str) -> None:
    """Runs both against a broker."""
    if bootstrap:
        _act_by_all(bootstrap)
        return
    with tempfile.TemporaryDirectory(prefix="ottla-admin-clients-") as folder:
        server = Ottla(Path(folder), group_initial_rebalance_delay_ms=500)
        try:
            server.start()
            _act_by_all(server.bootstrap)
        finally:
            server.close()


if __name__ == "__main__":
    main()
