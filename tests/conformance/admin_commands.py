"""Apache Kafka's own administrative commands against a broker that is one node.

    python -m tests.conformance.admin_commands [--kafka]

Each row is a command and what it prints when it talks to Apache Kafka 4.3.1; with --kafka that is
who they talk to. `make conformance` runs it, too; see also group_commands.py.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
from confluent_kafka import Producer

from tests.conformance import (
    command_process,
    files,
    group_commands,
    quota_commands,
    share_group_commands,
    topic_commands,
)
from tests.conformance.command_process import (
    CONFIGS,
    TOOLS,
    TOPICS,
    CommandError,
    Commands,
    Row,
    among,
    refused,
    whole,
)
from tests.peers import topics
from tests.peers.servers import ApacheKafka, Ottla

TOPIC = "made-by-admin-commands"
RECORDS = 10
"""In partition 0: each an hour later than the one before, the last an hour ago."""
HOUR_MS = 3_600_000
KEPT_FROM = 2
METRICS = f"{TOOLS}.ClientMetricsCommand"
OFFSETS = f"{TOOLS}.GetOffsetShell"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"
ELECT = f"{TOOLS}.LeaderElectionCommand"
FEATURES = f"{TOOLS}.FeatureCommand"
QUORUM = f"{TOOLS}.MetadataQuorumCommand"
CLUSTER = f"{TOOLS}.ClusterTool"
LOG_DIRS = f"{TOOLS}.LogDirsCommand"
DELETE_RECORDS = f"{TOOLS}.DeleteRecordsCommand"
# Times as short as a test needs them.
SETTINGS = {
    "group_initial_rebalance_delay_ms": 0,
    "group_consumer_min_heartbeat_interval_ms": 500,
    "group_consumer_heartbeat_interval_ms": 500,
    # Apache Kafka makes no share group otherwise.
    "share_coordinator_state_topic_replication_factor": 1,
    "share_coordinator_state_topic_min_isr": 1,
}


def _configs(kind: str, name: str, *arguments: str) -> tuple[str, ...]:
    return (CONFIGS, "--entity-type", kind, "--entity-name", name, *arguments)


def _set(key: str, value: object, *synonyms: str) -> str:
    """The line that describes a setting; the first synonym is the one that acts."""
    return f"{key}={value} sensitive=false synonyms={{{', '.join(synonyms)}}}"


def _topic_configs() -> list[Row]:
    named = ("topics", TOPIC)
    done = f"Completed updating config for topic {TOPIC}."
    dynamic = f"Dynamic configs for topic {TOPIC} are:"
    retention = _set(
        "retention.ms", 70_000_000_000, "DYNAMIC_TOPIC_CONFIG:retention.ms=70000000000"
    )
    segment = _set(
        "segment.bytes",
        2_000_000,
        "DYNAMIC_TOPIC_CONFIG:segment.bytes=2000000",
        "DEFAULT_CONFIG:log.segment.bytes=1073741824",
    )
    cleanup = _set("cleanup.policy", "delete", "DEFAULT_CONFIG:log.cleanup.policy=delete")
    both = "retention.ms=70000000000,segment.bytes=2000000"
    return [
        whole(_configs(*named, "--describe"), dynamic),
        whole(_configs(*named, "--alter", "--add-config", both), done),
        whole(_configs(*named, "--describe"), dynamic, retention, segment),
        among(
            _configs(*named, "--describe", "--all"),
            f"All configs for topic {TOPIC} are:",
            retention,
            segment,
            cleanup,
        ),
        whole(_configs(*named, "--alter", "--delete-config", "retention.ms"), done),
        whole(_configs(*named, "--describe"), dynamic, segment),
        whole(_configs(*named, "--alter", "--delete-config", "segment.bytes"), done),
        whole(_configs(*named, "--describe"), dynamic),
        refused(
            _configs(*named, "--alter", "--add-config", "nope=1"),
            "Caused by: org.apache.kafka.common.errors.InvalidConfigurationException: "
            "Unknown topic config name: nope",
        ),
        refused(
            _configs("topics", "unknown", "--alter", "--add-config", "retention.ms=1"),
            "Caused by: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: "
            "The topic 'unknown' does not exist.",
        ),
    ]


def _broker_configs() -> list[Row]:
    """Of one broker, and of all by default; what is said of brokers holds for topics."""
    brokers = (CONFIGS, "--entity-type", "brokers")
    default = (*brokers, "--entity-default")
    dynamic = "Dynamic configs for broker 1 are:"
    done = "Completed updating config for broker 1."
    all_done = "Completed updating default config for brokers in the cluster."
    all_dynamic = "Default configs for brokers in the cluster are:"
    threads = _set(
        "log.cleaner.threads",
        2,
        "DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2",
        "DEFAULT_CONFIG:log.cleaner.threads=1",
    )
    connections = _set(
        "max.connections.per.ip",
        77,
        "DYNAMIC_BROKER_CONFIG:max.connections.per.ip=77",
        "DEFAULT_CONFIG:max.connections.per.ip=2147483647",
    )
    by_default = "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=9000000000"
    retention = _set("log.retention.ms", 9_000_000_000, by_default)
    hours = "DEFAULT_CONFIG:log.retention.hours=168"
    both = "log.cleaner.threads=2,max.connections.per.ip=77"
    return [
        whole(_configs("brokers", "1", "--describe"), dynamic),
        whole(_configs("brokers", "1", "--alter", "--add-config", both), done),
        whole((*default, "--alter", "--add-config", "log.retention.ms=9000000000"), all_done),
        whole(_configs("brokers", "1", "--describe"), dynamic, threads, connections),
        among((*default, "--describe"), all_dynamic, retention),
        among((*brokers, "--describe"), dynamic, threads, connections, all_dynamic, retention),
        among(
            _configs("brokers", "1", "--describe", "--all"),
            "All configs for broker 1 are:",
            threads,
            connections,
            _set("log.retention.ms", 9_000_000_000, by_default, hours),
            _set("log.retention.hours", 168, hours),
            _set("num.io.threads", 8, "DEFAULT_CONFIG:num.io.threads=8"),
        ),
        among(
            _configs("topics", TOPIC, "--describe", "--all"),
            _set("retention.ms", 9_000_000_000, by_default, hours),
        ),
        refused(
            _configs("brokers", "1", "--alter", "--add-config", "node.id=7"),
            "Caused by: org.apache.kafka.common.errors.InvalidRequestException: "
            "Cannot update these configs dynamically: [node.id]",
        ),
        whole(
            _configs(
                "brokers",
                "1",
                "--alter",
                "--delete-config",
                "log.cleaner.threads,max.connections.per.ip",
            ),
            done,
        ),
        whole((*default, "--alter", "--delete-config", "log.retention.ms"), all_done),
        whole(_configs("brokers", "1", "--describe"), dynamic),
        among((*default, "--describe"), all_dynamic, lacks="log.retention.ms"),
        whole(
            _configs("brokers", "9", "--describe"),
            "The broker '9' doesn't exist and doesn't have dynamic config.",
        ),
    ]


def _broker_loggers() -> list[Row]:
    return [
        among(
            _configs("broker-loggers", "1", "--describe"),
            "Dynamic configs for broker-logger 1 are:",
            # Which ones there are is the broker's own affair.
            "... sensitive=false synonyms={}",
        ),
        refused(
            _configs("broker-loggers", "1", "--alter", "--add-config", "nope.nope=DEBUG"),
            "Invalid broker logger(s): nope.nope",
        ),
    ]


def _group_configs() -> list[Row]:
    named, key = ("groups", TOPIC), "consumer.session.timeout.ms"
    done, dynamic = (
        f"Completed updating config for group {TOPIC}.",
        f"Dynamic configs for group {TOPIC} are:",
    )
    timeout = _set(
        key, 50_000, f"DYNAMIC_GROUP_CONFIG:{key}=50000", f"DEFAULT_CONFIG:group.{key}=45000"
    )
    limit = "group.consumer.min.session.timeout.ms"
    return [
        whole(_configs(*named, "--alter", "--add-config", f"{key}=50000"), done),
        whole(_configs(*named, "--describe"), dynamic, timeout),
        among(
            _configs(*named, "--describe", "--all"),
            timeout,
            _set(
                "share.auto.offset.reset", "latest", "DEFAULT_CONFIG:share.auto.offset.reset=latest"
            ),
        ),
        refused(
            _configs(*named, "--alter", "--add-config", f"{key}=5"),
            "Caused by: org.apache.kafka.common.errors.InvalidConfigurationException: "
            f"{key} must be greater than or equal to {limit}",
        ),
        whole(_configs(*named, "--alter", "--delete-config", key), done),
        among((CONFIGS, "--entity-type", "groups", "--describe"), lacks=TOPIC),
    ]


def _client_metrics() -> list[Row]:
    """By kafka-configs, and by kafka-client-metrics."""
    named = ("client-metrics", TOPIC)
    entries = {
        "interval.ms": "5000",
        "match": "client_id=x",
        "metrics": "org.apache.kafka.a,org.apache.kafka.b",
    }
    done = f"Completed updating config for client-metric {TOPIC}."
    by_command = (METRICS, "--name", TOPIC)
    return [
        whole(
            _configs(
                *named,
                "--alter",
                "--add-config",
                ",".join(f"{key}=[{value}]" for key, value in entries.items()),
            ),
            done,
        ),
        whole(
            _configs(*named, "--describe"),
            f"Dynamic configs for client-metric {TOPIC} are:",
            *(
                _set(key, value, f"DYNAMIC_CLIENT_METRICS_CONFIG:{key}={value}")
                for key, value in entries.items()
            ),
        ),
        refused(
            _configs(*named, "--alter", "--add-config", "interval.ms=7"),
            "Caused by: org.apache.kafka.common.errors.InvalidRequestException: Invalid value 7 "
            "for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        whole(_configs(*named, "--alter", "--delete-config", ",".join(entries)), done),
        among((CONFIGS, "--entity-type", "client-metrics", "--describe"), lacks=TOPIC),
        whole(
            (*by_command, "--alter", "--interval", "6000", "--metrics", "org.apache.kafka."),
            f"Altered client metrics config for {TOPIC}.",
        ),
        among((METRICS, "--list"), TOPIC),
        whole(
            (*by_command, "--describe"),
            f"Client metrics configs for {TOPIC} are:",
            "interval.ms=6000",
            "match=",
            "metrics=org.apache.kafka.",
        ),
        whole((*by_command, "--delete"), f"Deleted client metrics config for {TOPIC}."),
        among((METRICS, "--list"), lacks=TOPIC),
    ]


def _found(*offsets: tuple[int, int]) -> list[str]:
    return [f"{TOPIC}:{partition}:{offset}" for partition, offset in offsets]


def _offsets(folder: Path, now_ms: int) -> list[Row]:
    """Of records, by time and by their place; the first of them are deleted."""
    last, start = _found((0, RECORDS), (1, 0)), _found((0, 0), (1, 0))
    asked = (OFFSETS, "--topic", TOPIC)
    times = {
        "-1": last,
        "-2": start,
        "-3": _found((0, RECORDS - 1)),
        "-4": start,
        "-5": [],
        "-6": [],
        "latest": last,
        "earliest": start,
        str(now_ms - 5 * HOUR_MS - HOUR_MS // 2): _found((0, RECORDS - 5)),
        str(now_ms): [],
    }

    def deleting(offset: int) -> tuple[str, ...]:
        path = folder / f"delete-to-{offset}.json"
        place = {"topic": TOPIC, "partition": 0, "offset": offset}
        path.write_text(json.dumps({"version": 1, "partitions": [place]}))
        return (DELETE_RECORDS, "--offset-json-file", str(path))

    kept = f"partition: {TOPIC}-0 low_watermark: {KEPT_FROM}"
    return [
        *(whole((*asked, "--time", when), *found) for when, found in times.items()),
        whole((OFFSETS, "--topic-partitions", f"{TOPIC}:0"), *_found((0, RECORDS))),
        refused(
            (OFFSETS, "--topic", "unknown"),
            "Error occurred: Could not match any topic-partitions with the specified filters",
        ),
        among(deleting(KEPT_FROM), kept),
        whole((*asked, "--time", "-2"), *_found((0, KEPT_FROM), (1, 0))),
        among(deleting(1), kept),
        among(
            deleting(99),
            f"partition: {TOPIC}-0 error: org.apache.kafka.common.errors.OffsetOutOfRangeException:"
            " The requested offset is not within the range of offsets maintained by the server.",
        ),
    ]


def _features() -> list[Row]:
    """A real change is one of transactions, which goes back and forth."""
    name = "transaction.version"

    def describing(level: int) -> Row:
        limits = "SupportedMinVersion: 0 SupportedMaxVersion: 2"
        return among(
            (FEATURES, "describe"),
            f"Feature: {name} {limits} FinalizedVersionLevel: {level} Epoch: ...",
            "Feature: metadata.version SupportedMinVersion: 3.3-IV3 SupportedMaxVersion: 4.3-IV0 "
            "FinalizedVersionLevel: 4.3-IV0 Epoch: ...",
        )

    def changing(how: str, feature: str, *arguments: str) -> tuple[str, ...]:
        return (FEATURES, how, "--feature", feature, *arguments)

    reason = "The update failed for all features since the following feature had an error"
    return [
        describing(2),
        whole(changing("upgrade", f"{name}=2", "--dry-run"), f"{name} can be upgraded to 2."),
        whole(changing("downgrade", f"{name}=1", "--dry-run"), f"{name} can be downgraded to 1."),
        whole(changing("disable", "share.version", "--dry-run"), "share.version can be disabled."),
        refused(
            changing("upgrade", f"{name}=3", "--dry-run"),
            f"Can not upgrade {name} to 3. {reason}: Invalid update version 3 for feature {name}. "
            "Local controller 1 only supports versions 0-2",
            "1 out of 1 operation(s) failed.",
        ),
        refused(
            changing("downgrade", "metadata.version=29", "--dry-run"),
            f"Can not downgrade metadata.version to 29. {reason}: Unsupported metadata.version "
            "downgrade from 30 to 29. Refusing to perform the requested downgrade because it might "
            "delete metadata information.",
        ),
        describing(2),
        whole(changing("downgrade", f"{name}=1"), f"{name} was downgraded to 1."),
        describing(1),
        whole(changing("upgrade", f"{name}=2"), f"{name} was upgraded to 2."),
        describing(2),
    ]


def _cluster(bootstrap: str) -> list[Row]:
    host, _, port = bootstrap.partition(":")
    columns = "NodeId DirectoryId LogEndOffset Lag LastFetchTimestamp LastCaughtUpTimestamp Status"
    return [
        among(
            (QUORUM, "describe", "--status"),
            "ClusterId: ...",
            "LeaderId: 1",
            "HighWatermark: ...",
            "MaxFollowerLag: 0",
            "MaxFollowerLagTimeMs: 0",
            'CurrentVoters: [{"id": 1, "directoryId": "..."...}]',
            "CurrentObservers: []",
        ),
        whole((QUORUM, "describe", "--replication"), columns, "1 ... 0 ... Leader"),
        whole(
            (QUORUM, "describe", "--replication", "--human-readable"),
            columns,
            "1 ... 0 ... ms ago ... ms ago Leader",
        ),
        whole((CLUSTER, "cluster-id"), "Cluster ID: ..."),
        whole(
            (CLUSTER, "list-endpoints"),
            "ID HOST PORT RACK STATE ENDPOINT_TYPE",
            f"1 {host} {port} null unfenced broker",
        ),
        refused(
            (CLUSTER, "unregister", "--id", "7"),
            "Caused by: org.apache.kafka.common.errors.BrokerIdNotRegisteredException: "
            "Broker ID 7 is not currently registered",
        ),
        among(
            (f"{TOOLS}.BrokerApiVersionsCommand",),
            f"{bootstrap} (id: 1 rack: null isFenced: false) -> (",
            "Produce(0): 0 to 13 [usable: 13],",
            "ShareAcknowledge(79): 1 to 2 [usable: 2],",
        ),
    ]


def _elections(folder: Path) -> list[Row]:
    path = folder / "elect.json"
    path.write_text(
        json.dumps({"partitions": [{"topic": TOPIC, "partition": index} for index in (0, 1)]})
    )

    def electing(how: str, *arguments: str) -> tuple[str, ...]:
        return (ELECT, "--election-type", how, *arguments)

    already = "Valid replica already elected for partitions"
    named = ("--topic", TOPIC, "--partition")
    return [
        whole(electing("PREFERRED", "--all-topic-partitions")),
        whole(electing("UNCLEAN", "--all-topic-partitions")),
        whole(electing("PREFERRED", *named, "0"), f"{already} {TOPIC}-0"),
        whole(electing("UNCLEAN", *named, "1"), f"{already} {TOPIC}-1"),
        whole(
            electing("PREFERRED", "--path-to-json-file", str(path)), f"{already} ...-..., ...-..."
        ),
        refused(
            electing("PREFERRED", *named, "9"),
            f"Error completing leader election (PREFERRED) for partition: {TOPIC}-9: "
            "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: "
            f"No such partition as {TOPIC}-9",
            "1 replica(s) could not be elected",
        ),
    ]


def _moving(folder: Path, *arguments: str, **place: object) -> tuple[str, ...]:
    """A reassignment of partition 0."""
    path = folder / "moves.json"
    moved = {"topic": TOPIC, "partition": 0, "replicas": [1], **place}
    path.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    return (REASSIGN, "--reassignment-json-file", str(path), *arguments)


def _moves(folder: Path) -> list[Row]:
    move = _moving(folder)
    movable = folder / "topics.json"
    movable.write_text(json.dumps({"version": 1, "topics": [{"topic": TOPIC}]}))
    brokers = _configs("brokers", "1", "--describe")
    rates = [f"{side}.replication.throttled.rate" for side in ("follower", "leader")]
    replicas = {
        "follower.replication.throttled.replicas": "",
        "leader.replication.throttled.replicas": "0:1",
    }
    cleared = (
        "Clearing broker-level throttles on broker 1",
        f"Clearing topic-level throttles on topic {TOPIC}",
    )
    started = f"Successfully started partition reassignment for {TOPIC}-0"
    proposed = [
        f'{{"topic":"{TOPIC}","partition":{index},"replicas":[1],"log_dirs":["any"]}}'
        for index in (0, 1)
    ]
    return [
        among(
            (
                REASSIGN,
                "--topics-to-move-json-file",
                str(movable),
                "--broker-list",
                "1",
                "--generate",
            ),
            "Proposed partition reassignment configuration",
            f'{{"version":1,"partitions":[{",".join(proposed)}]}}',
        ),
        among((*move, "--execute", "--throttle", "5000"), started),
        whole(
            brokers,
            "Dynamic configs for broker 1 are:",
            *(_set(rate, 5000, f"DYNAMIC_BROKER_CONFIG:{rate}=5000") for rate in rates),
        ),
        whole(
            _configs("topics", TOPIC, "--describe"),
            f"Dynamic configs for topic {TOPIC} are:",
            *(
                _set(key, value, f"DYNAMIC_TOPIC_CONFIG:{key}={value}")
                for key, value in replicas.items()
            ),
        ),
        whole(
            (*move, "--verify"),
            "Status of partition reassignment:",
            f"Reassignment of partition {TOPIC}-0 is completed.",
            *cleared,
        ),
        whole(brokers, "Dynamic configs for broker 1 are:"),
        whole((REASSIGN, "--list"), "No partition reassignments found."),
        among((*move, "--cancel"), "None of the specified partition reassignments are active."),
    ]


def _over_dirs(commands: Commands, folder: Path, dirs: Sequence[Path]) -> None:
    """Partition 0 goes through all log dirs, and is where it was sent."""
    for target in dirs:
        move = _moving(folder, log_dirs=[str(target)])
        commands.check(
            among(
                (*move, "--execute"),
                f"Successfully started moving log directory to {target} for replica {TOPIC}-0 "
                "with broker 1",
            )
        )
        done = f"Reassignment of replica {TOPIC}-0-1 completed successfully."
        commands.wait(among((*move, "--verify"), done))
        said = commands.said(LOG_DIRS, "--describe", "--topic-list", TOPIC)
        (broker,) = json.loads(said.lines[-1])["brokers"]
        found = {one["logDir"]: one for one in broker["logDirs"]}
        places = {
            part["partition"]: (where, part["size"] > 0, part["offsetLag"], part["isFuture"])
            for where, one in found.items()
            for part in one["partitions"]
        }
        is_known = found.keys() == {str(one) for one in dirs} and not any(
            one["error"] for one in found.values()
        )
        if not is_known or places.get(f"{TOPIC}-0") != (str(target), True, 0, False):
            raise CommandError(f"moved to {target}: {said.output}")


def _write(bootstrap: str, now_ms: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(RECORDS):
        age_ms = (RECORDS - number) * HOUR_MS
        producer.produce(TOPIC, b"%d" % number, partition=0, timestamp=now_ms - age_ms)
    assert producer.flush(30) == 0


def run(bootstrap: str, dirs: Sequence[Path] = (), *, is_late: bool = True) -> str:
    """Raises CommandError, or says how many commands were run. `dirs` are the broker's log dirs, if
    they are known."""
    now_ms = round(time.time() * 1000)
    topics.create(bootstrap, {TOPIC: 2})
    _write(bootstrap, now_ms)
    with (
        tempfile.TemporaryDirectory(prefix="ottla-admin-") as name,
        command_process.opened(bootstrap, is_late=is_late) as commands,
    ):
        folder = Path(name)
        commands.check(*_topic_configs(), *_broker_configs(), *_broker_loggers())
        commands.check(*_group_configs())
        commands.check(*_client_metrics(), *quota_commands.rows(TOPIC))
        commands.check(*_offsets(folder, now_ms))
        _over_dirs(commands, folder, dirs)
        commands.check(*_moves(folder), *_elections(folder))
        commands.check(*_features(), *_cluster(bootstrap))
        # Half an hour before the sixth record.
        topic = group_commands.Topic(TOPIC, KEPT_FROM, RECORDS, (5.5, RECORDS - 5))
        group_commands.run(commands, bootstrap, topic, folder)
        share_group_commands.run(commands, bootstrap, topic)
        made = f"{TOPIC}-too"
        commands.check(*topic_commands.rows(made))
        commands.wait(among((TOPICS, "--list"), lacks=made))
        commands.check(whole((TOPICS, "--delete", "--topic", TOPIC)))
        return f"{commands.count} commands"


def run_apart(*, is_kafka: bool) -> str:
    """The same with a broker of its own, of two log dirs; Apache Kafka's dump tool then reads
    what it has written of groups and metadata."""
    with tempfile.TemporaryDirectory(prefix="ottla-admin-") as name:
        dirs = [Path(name) / "data", Path(name) / "data2"]
        make = ApacheKafka if is_kafka else Ottla
        server = make(Path(name), log_dirs=",".join(map(str, dirs)), **SETTINGS)
        try:
            server.start()
            said = run(server.bootstrap, dirs, is_late=is_kafka)
            server.stop()
            files.dump_internal(dirs)
            return said
        finally:
            server.close()


@click.command()
@click.option("--kafka", is_flag=True, help="The commands talk to Apache Kafka.")
def main(kafka: bool) -> None:
    """Runs every row; the first that is answered otherwise ends it."""
    started = time.perf_counter()
    click.echo(f"{run_apart(is_kafka=kafka)}, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
