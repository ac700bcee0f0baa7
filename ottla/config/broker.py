"""The broker's settings: the keys that Ottla acts on, with Kafka's names, types and limits.

A field is Kafka's dotted name in snake_case, and its alias the dotted name itself. Defaults are
Kafka's, save `log.flush.interval.messages`, and save those that make a broker start with no
configuration at all (node.id, process.roles, listeners, log.dir). The rest of Kafka's keys stand
in `accepted.py`. A configuration is immutable; `with_dynamic` gives the one that holds after a
change at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from os import path
from types import MappingProxyType

from pydantic import ConfigDict, PrivateAttr, model_validator

from ottla.config.checks import check
from ottla.config.consumer_groups import ConsumerGroupConfig
from ottla.config.keys import (
    INT_MAX,
    Bool,
    CleanupPolicy,
    CompressionType,
    Double,
    Dynamic,
    GzipLevel,
    Int,
    Key,
    LogFormat,
    LogLevel,
    Long,
    OptionalInt,
    OptionalLong,
    OptionalText,
    OptionalTexts,
    Short,
    Text,
    Texts,
    TimestampType,
    Value,
    dotted,
    key,
    key_of,
    render,
)
from ottla.config.listeners import (
    parse_connections_of_host,
    parse_listeners,
    parse_protocol_map,
)
from ottla.config.share_groups import ShareGroupConfig
from ottla.config.transactions import TransactionConfig
from ottla.config.types import LONG_MAX, Listener, written

CLUSTER = Dynamic.CLUSTER
BROKER = Dynamic.BROKER
EVERY_DIR = ("*",)
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True, frozen=True)
class Layers:
    """The texts that a configuration was made of, weakest first; defaults are below them."""

    static: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    dynamic_default: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    dynamic_broker: Mapping[str, str] = field(default_factory=lambda: _NOTHING)

    def effective(self) -> dict[str, str]:
        return {**self.static, **self.dynamic_default, **self.dynamic_broker}


class BrokerConfig(ConsumerGroupConfig, ShareGroupConfig, TransactionConfig):
    """One broker's settings, checked. Built by `load`, or directly by field names in Python."""

    # Building pydantic's validators takes as long as the rest of a start, and `assemble` checks
    # texts by the same declarations: they are built when a configuration is made in Python.
    model_config = ConfigDict(
        alias_generator=dotted,
        validate_by_name=True,
        validate_by_alias=True,
        frozen=True,
        extra="forbid",
        defer_build=True,
    )
    _layers: Layers | None = PrivateAttr(default=None)

    node_id: Int = key(
        1,
        "Number of this node, its own in the cluster; Kafka itself has no default.",
        at_least=0,
    )
    broker_id: Int = key(1, "Old name of node.id; both must say the same.")
    broker_rack: OptionalText = key(None, "Rack or zone of this broker, shown to clients.")
    process_roles: Texts = key(
        ("broker", "controller"),
        "Roles of this process; a single node is broker,controller, and no other choice starts.",
        not_empty=True,
    )
    listeners: Texts = key(
        ("PLAINTEXT://localhost:9092",),
        "Addresses to listen on; localhost means 127.0.0.1 and ::1, an empty host every address.",
        dynamic=BROKER,
        not_empty=True,
    )
    advertised_listeners: OptionalTexts = key(
        None,
        "Addresses that clients are told; left out, each client is told the one by which it came.",
        not_empty=True,
    )
    listener_security_protocol_map: Text = key(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Security protocol of each listener name; only PLAINTEXT listeners can be served.",
        dynamic=BROKER,
    )
    inter_broker_listener_name: OptionalText = key(
        None, "Listener that brokers use among themselves; it must be one of the listeners."
    )
    controller_listener_names: Texts = key(
        ("CONTROLLER",),
        "Listeners that belong to the controller; clients are not served there.",
        not_empty=True,
    )
    controller_quorum_voters: Texts = key(
        (), "Controllers as id@host:port; on a single node only this node may stand here."
    )
    controller_quorum_bootstrap_servers: Texts = key(
        (), "Addresses to find the controllers by; a single node needs none."
    )
    controller_quorum_election_timeout_ms: Int = key(
        1_000, "Wait for votes before a new election is begun.", at_least=0, acts=False
    )
    controller_quorum_fetch_timeout_ms: Int = key(
        2_000,
        "Silence of the leader after which a controller stands for it.",
        at_least=0,
        acts=False,
    )

    socket_send_buffer_bytes: Int = key(
        102_400,
        "SO_SNDBUF of client connections; -1 leaves it to the operating system. So does 102400,"
        " with bounds on what is not sent yet; it is 100 KiB for who reads much from the disk, and"
        " 384 KiB for who reads files by BBR.",
    )
    socket_receive_buffer_bytes: Int = key(
        102_400,
        "SO_RCVBUF of client connections; -1, or the default where the operating system begins"
        " with more, leaves it to the operating system.",
    )
    socket_request_max_bytes: Int = key(
        104_857_600, "Largest request; a longer one closes the connection.", at_least=1
    )
    socket_listen_backlog_size: Int = key(
        50, "Connections that may wait to be accepted; 1,024 may in any case.", at_least=1
    )
    max_connections: Int = key(
        INT_MAX,
        "Most connections at once; Kafka's default means as many as open files allow.",
        at_least=0,
        dynamic=CLUSTER,
    )
    max_connections_per_ip: Int = key(
        INT_MAX, "Most connections from one address at once.", at_least=0, dynamic=CLUSTER
    )
    max_connections_per_ip_overrides: Text = key(
        "",
        "Exceptions to max.connections.per.ip, as host:number,...; a host may be an address.",
        dynamic=CLUSTER,
    )
    max_connection_creation_rate: Int = key(
        INT_MAX,
        "Most new connections a second, together and to each listener; those beyond it wait. A"
        " listener may have its own, as listener.name.x.max.connection.creation.rate.",
        at_least=0,
        dynamic=CLUSTER,
    )
    connections_max_idle_ms: Long = key(600_000, "Idle time after which a connection is closed.")
    queued_max_request_bytes: Long = key(
        -1,
        "Bytes of unfinished requests, all together; above it the connections with the largest are"
        " closed. -1 means no limit.",
    )
    quota_window_size_seconds: Int = key(
        1, "So many seconds' worth of its quota a client may use at once.", at_least=1
    )
    quota_window_num: Int = key(
        11,
        "An address may make connections for so many windows, less one, at once.",
        at_least=1,
    )
    controller_quota_window_size_seconds: Int = key(
        1, "Length of a window of the quota for topic changes.", at_least=1
    )
    controller_quota_window_num: Int = key(
        11, "So many windows' worth of that quota a client may use at once.", at_least=1
    )
    fetch_max_bytes: Int = key(57_671_680, "Most bytes in one fetch answer.", at_least=1024)
    max_incremental_fetch_session_cache_slots: Int = key(
        1_000, "Most incremental fetch sessions that are remembered.", at_least=0
    )
    max_request_partition_size_limit: Int = key(
        2_000, "Most partitions in one answer of DescribeTopicPartitions.", at_least=1
    )

    num_partitions: Int = key(1, "Partitions of a topic that asks for no number.", at_least=1)
    default_replication_factor: Int = key(1, "Replicas of a topic that asks for no number.")
    auto_create_topics_enable: Bool = key(True, "Whether asking for a topic creates it.")
    delete_topic_enable: Bool = key(True, "Whether topics can be deleted.")
    min_insync_replicas: Int = key(
        1,
        "In-sync replicas that an acks=all write needs.",
        at_least=1,
        dynamic=CLUSTER,
    )
    unclean_leader_election_enable: Bool = key(
        False,
        "Whether a replica that lags may lead when no other is left; records can be lost.",
        dynamic=CLUSTER,
        acts=False,
    )

    log_dir: Texts = key(
        ("./ottla-data",),
        "Where data lies if log.dirs says nothing; Kafka's is /tmp/kafka-logs.",
        not_empty=True,
    )
    log_dirs: OptionalTexts = key(
        None, "Directories for data; a new partition takes the emptiest.", not_empty=True
    )
    cordoned_log_dirs: Texts = key(
        (), "Those of log.dirs that get no new partitions; * for all of them.", dynamic=BROKER
    )
    metadata_log_dir: OptionalText = key(
        None, "Directory of the cluster's metadata; the first of log.dirs if left out."
    )
    num_recovery_threads_per_data_dir: Int = key(
        2, "Threads that load and recover the logs of a directory.", at_least=1, dynamic=CLUSTER
    )
    message_max_bytes: Int = key(
        1_048_588,
        "Largest record batch, as it comes; topics may set max.message.bytes.",
        at_least=0,
        dynamic=CLUSTER,
    )
    log_segment_bytes: Int = key(
        1_073_741_824,
        "Size at which a log begins a new segment file.",
        at_least=1_048_576,
        dynamic=CLUSTER,
    )
    log_roll_ms: OptionalLong = key(
        None,
        "Age at which a log begins a new segment; log.roll.hours if left out.",
        at_least=1,
        dynamic=CLUSTER,
    )
    log_roll_hours: Int = key(168, "Age in hours at which a log begins a new segment.", at_least=1)
    log_roll_jitter_ms: OptionalLong = key(
        None,
        "Most that is taken off that age by chance; log.roll.jitter.hours if left out.",
        at_least=0,
        dynamic=CLUSTER,
    )
    log_roll_jitter_hours: Int = key(
        0, "Most hours that are taken off that age by chance.", at_least=0
    )
    log_index_size_max_bytes: Int = key(
        10_485_760, "Size of an index file.", at_least=4, dynamic=CLUSTER
    )
    log_index_interval_bytes: Int = key(
        4_096, "Bytes of log between two index entries.", at_least=0, dynamic=CLUSTER
    )
    log_preallocate: Bool = key(
        False, "Whether a segment file is made at its full size.", dynamic=CLUSTER
    )
    log_flush_interval_messages: Long = key(
        1,
        "Records that may wait unsynced: with 1 every acknowledged record is on disk. Kafka's"
        " default is 9223372036854775807, which leaves syncing to the operating system.",
        at_least=1,
        dynamic=CLUSTER,
    )
    log_flush_interval_ms: OptionalLong = key(
        None,
        "Longest that records stay unsynced; log.flush.scheduler.interval.ms if left out.",
        at_least=0,
        dynamic=CLUSTER,
    )
    log_flush_scheduler_interval_ms: Long = key(
        LONG_MAX, "How often logs are looked over for one that is due to be synced.", at_least=1
    )
    log_flush_offset_checkpoint_interval_ms: Int = key(
        60_000, "How often the recovery points are written.", at_least=0
    )
    log_flush_start_offset_checkpoint_interval_ms: Int = key(
        60_000, "How often the log start offsets are written.", at_least=0
    )
    replica_high_watermark_checkpoint_interval_ms: Long = key(
        5_000, "How often the high watermarks are written."
    )
    log_retention_ms: OptionalLong = key(
        None,
        "Age at which records are deleted, -1 for never; log.retention.minutes if left out.",
        dynamic=CLUSTER,
    )
    log_retention_minutes: OptionalInt = key(
        None, "Age in minutes at which records are deleted; log.retention.hours if left out."
    )
    log_retention_hours: Int = key(168, "Age in hours at which records are deleted.")
    log_retention_bytes: Long = key(
        -1,
        "Size above which a partition's oldest segments are deleted; -1 means no limit.",
        dynamic=CLUSTER,
    )
    log_retention_check_interval_ms: Long = key(
        300_000, "How often logs are looked over for segments to delete.", at_least=1
    )
    log_initial_task_delay_ms: Long = key(
        30_000, "Wait after the start before the log's jobs begin.", at_least=0, internal=True
    )
    log_segment_delete_delay_ms: Long = key(
        60_000,
        "Wait between taking a segment out of service and unlinking its files.",
        at_least=0,
        dynamic=CLUSTER,
    )
    log_cleanup_policy: CleanupPolicy = key(
        ("delete",), "What becomes of old records: delete, compact, or both.", dynamic=CLUSTER
    )
    compression_type: CompressionType = key(
        "producer",
        "Codec in which batches are stored; producer keeps the one they come in.",
        dynamic=CLUSTER,
    )
    compression_gzip_level: GzipLevel = key(
        -1, "Level used when compression.type is gzip; -1 is the codec's own.", dynamic=CLUSTER
    )
    compression_lz4_level: Int = key(
        9,
        "Level used when compression.type is lz4; 9 is the codec's fast form.",
        at_least=1,
        at_most=17,
        dynamic=CLUSTER,
    )
    compression_zstd_level: Int = key(
        3,
        "Level used when compression.type is zstd.",
        at_least=-131_072,
        at_most=22,
        dynamic=CLUSTER,
    )
    log_message_timestamp_type: TimestampType = key(
        "CreateTime",
        "Whether a record keeps its producer's time or gets the time of its append.",
        dynamic=CLUSTER,
    )
    log_message_timestamp_before_max_ms: Long = key(
        LONG_MAX,
        "Most that a record's time may lie before the broker's clock.",
        at_least=0,
        dynamic=CLUSTER,
    )
    log_message_timestamp_after_max_ms: Long = key(
        3_600_000,
        "Most that a record's time may lie ahead of the broker's clock.",
        at_least=0,
        dynamic=CLUSTER,
    )
    log_cleaner_enable: Bool = key(True, "Whether logs are compacted.", acts=False)
    log_cleaner_threads: Int = key(
        1, "Compactions that run at once.", at_least=0, dynamic=CLUSTER, acts=False
    )
    log_cleaner_dedupe_buffer_size: Long = key(
        134_217_728,
        "Memory for the keys of the logs being compacted.",
        dynamic=CLUSTER,
        acts=False,
    )
    log_cleaner_io_buffer_size: Int = key(
        524_288,
        "Memory for reading and writing while compacting.",
        at_least=0,
        dynamic=CLUSTER,
        acts=False,
    )
    log_cleaner_io_buffer_load_factor: Double = key(
        0.9, "How full the table of keys may be.", dynamic=CLUSTER, acts=False
    )
    log_cleaner_io_max_bytes_per_second: Double = key(
        1.7976931348623157e308,
        "Most bytes a second that compaction reads and writes.",
        dynamic=CLUSTER,
        acts=False,
    )
    log_cleaner_backoff_ms: Long = key(
        15_000, "Wait when there is nothing to compact.", at_least=0, dynamic=CLUSTER, acts=False
    )
    log_cleaner_min_cleanable_ratio: Double = key(
        0.5,
        "Share of uncompacted bytes at which a log is compacted.",
        at_least=0,
        at_most=1,
        dynamic=CLUSTER,
        acts=False,
    )
    log_cleaner_delete_retention_ms: Long = key(
        86_400_000,
        "How long a compacted log keeps its tombstones.",
        at_least=0,
        dynamic=CLUSTER,
        acts=False,
    )
    log_cleaner_min_compaction_lag_ms: Long = key(
        0, "Age below which records are not compacted.", at_least=0, dynamic=CLUSTER, acts=False
    )
    log_cleaner_max_compaction_lag_ms: Long = key(
        LONG_MAX,
        "Age at which records must be compacted.",
        at_least=1,
        dynamic=CLUSTER,
        acts=False,
    )
    producer_id_expiration_ms: Int = key(
        86_400_000,
        "Silence after which an idempotent producer is forgotten.",
        at_least=1,
        dynamic=CLUSTER,
    )
    producer_id_expiration_check_interval_ms: Int = key(
        600_000, "How often silent producers are looked for.", at_least=1, internal=True
    )

    group_min_session_timeout_ms: Int = key(
        6_000, "Shortest session timeout that a classic member may ask for."
    )
    group_max_session_timeout_ms: Int = key(
        1_800_000, "Longest session timeout that a classic member may ask for."
    )
    group_initial_rebalance_delay_ms: Int = key(
        3_000, "Wait for more members before a new group is first assigned."
    )
    group_max_size: Int = key(INT_MAX, "Most members of a classic group.", at_least=1)
    offset_metadata_max_bytes: Int = key(4_096, "Longest text that may go with a committed offset.")
    offsets_commit_timeout_ms: Int = key(
        5_000, "Longest that an offset commit waits for its replicas.", at_least=1
    )
    offsets_retention_minutes: Int = key(
        10_080, "How long the offsets of an empty group are kept.", at_least=1
    )
    offsets_retention_check_interval_ms: Long = key(
        600_000, "How often expired offsets are looked for.", at_least=1
    )
    offsets_topic_num_partitions: Int = key(
        50, "Partitions of the offsets topic, when it is made.", at_least=1
    )
    offsets_topic_replication_factor: Short = key(
        3,
        "Replicas of the offsets topic, when it is made; fewer if there are fewer brokers.",
        at_least=1,
    )
    offsets_topic_segment_bytes: Int = key(
        104_857_600, "Segment size of the offsets topic, when it is made.", at_least=1
    )
    offsets_topic_compression_codec: Int = key(
        0, "Codec number of the offsets topic, when it is made; 0 is none.", at_least=0, at_most=4
    )

    metadata_log_segment_bytes: Int = key(
        1_073_741_824, "Size at which the metadata log begins a new segment.", at_least=8_388_608
    )
    metadata_log_segment_ms: Long = key(
        604_800_000, "Age at which the metadata log begins a new segment."
    )
    metadata_log_max_record_bytes_between_snapshots: Long = key(
        20_971_520, "Bytes of metadata records after which a snapshot is written.", at_least=1
    )
    metadata_log_max_snapshot_interval_ms: Long = key(
        3_600_000,
        "Longest time between two snapshots while metadata changes; 0 means no limit.",
        at_least=0,
    )
    metadata_max_retention_bytes: Long = key(
        104_857_600, "Size of the metadata log and its snapshots above which old ones go."
    )
    metadata_max_retention_ms: Long = key(
        604_800_000, "Age at which metadata segments and snapshots go."
    )

    replica_alter_log_dirs_io_max_bytes_per_second: Long = key(
        LONG_MAX,
        "Most bytes a second when replicas move between log dirs.",
        at_least=0,
        dynamic=CLUSTER,
    )

    ottla_cluster_id: OptionalText = key(
        None, "Cluster id for a new data directory (also CLUSTER_ID); a random one if left out."
    )
    ottla_telemetry_host: Text = key(
        "127.0.0.1", "Address of the /metrics, /livez, /readyz and /events pages."
    )
    ottla_telemetry_port: Int = key(
        9464, "Port of those pages, 0 for any free one, -1 for none.", at_least=-1, at_most=65535
    )
    ottla_scrub_interval_ms: Long = key(
        604_800_000,
        "How often each old segment is read again and held against its CRCs; -1 for never.",
        at_least=-1,
    )
    ottla_scrub_bytes_per_second: Long = key(
        10_485_760, "How fast that is; a batch counts for 4 KiB at least.", at_least=4096
    )
    ottla_log_level: LogLevel = key(
        "info", "Least event that is logged: debug, info, warning, error."
    )
    ottla_log_format: LogFormat = key(
        "auto", "Form of the log: console, json, or auto (console in a terminal, else json)."
    )

    @model_validator(mode="after")
    def _checked(self) -> BrokerConfig:
        check(self)
        return self

    @classmethod
    def assemble(cls, layers: Layers) -> BrokerConfig:
        """The configuration that these texts give; ConfigError names what cannot be."""
        keys = acting_keys()
        values = {
            name.replace(".", "_"): keys[name].parse(text)
            for name, text in layers.effective().items()
            if name in keys
        }
        config = cls.model_construct(_fields_set=set(values), **values)
        config._layers = layers
        check(config)
        return config

    @property
    def layers(self) -> Layers:
        """The texts behind the values, for DescribeConfigs."""
        if self._layers is None:
            given = {dotted(name): render(getattr(self, name)) for name in self.model_fields_set}
            static = {name: text for name, text in given.items() if text is not None}
            self._layers = Layers(static=with_both_ids(static))
        return self._layers

    def with_dynamic(
        self, *, default: Mapping[str, str] = _NOTHING, broker: Mapping[str, str] = _NOTHING
    ) -> BrokerConfig:
        """This configuration under the settings that the cluster's metadata holds now."""
        layers = replace(self.layers, dynamic_default=dict(default), dynamic_broker=dict(broker))
        return BrokerConfig.assemble(layers)

    def value(self, name: str) -> Value:
        """The value of an acting key by its dotted name."""
        value: Value = getattr(self, name.replace(".", "_"))
        return value

    def creation_rate_of(self, listener: str) -> int:
        """Most new connections a second of one listener: its own setting (listener.name.x.key) goes
        before that of all."""
        key = acting_keys()["max.connection.creation.rate"]
        text = self.layers.effective().get(f"listener.name.{listener.lower()}.{key.name}")
        rate = self.max_connection_creation_rate if text is None else key.parse(text)
        assert isinstance(rate, int), rate
        return rate

    @cached_property
    def connections_of_host(self) -> dict[str, int]:
        """The exceptions to max.connections.per.ip."""
        return parse_connections_of_host(self.max_connections_per_ip_overrides)

    @cached_property
    def all_listeners(self) -> tuple[Listener, ...]:
        return parse_listeners("listeners", self.listeners, self._protocols)

    @cached_property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """Those that serve clients."""
        names = self._controller_names
        return tuple(one for one in self.all_listeners if one.name not in names)

    @cached_property
    def controller_listeners(self) -> tuple[Listener, ...]:
        names = self._controller_names
        return tuple(one for one in self.all_listeners if one.name in names)

    @cached_property
    def advertised(self) -> dict[str, Listener]:
        """What to tell clients, by listener name; a listener may be missing (see the field)."""
        entries = self.advertised_listeners or ()
        parsed = parse_listeners("advertised.listeners", entries, self._protocols)
        return {one.name: one for one in parsed if one.name not in self._controller_names}

    @cached_property
    def data_dirs(self) -> tuple[str, ...]:
        """Absolute paths, each once: a message that names a file names it for whoever stands
        elsewhere, and `data,./data` is one directory."""
        given = self.log_dir if self.log_dirs is None else self.log_dirs
        return tuple(dict.fromkeys(map(path.abspath, given)))

    @property
    def cordoned_dirs(self) -> frozenset[str]:
        """Those of `data_dirs` that get no new partitions (KIP-1066)."""
        given = self.cordoned_log_dirs
        return frozenset(self.data_dirs if given == EVERY_DIR else map(path.abspath, given))

    @property
    def metadata_dir(self) -> str:
        given = self.metadata_log_dir
        return path.abspath(given) if given else self.data_dirs[0]

    @property
    def telemetry_address(self) -> str:
        """Where the telemetry is to be served, as it was set."""
        return written(self.ottla_telemetry_host, self.ottla_telemetry_port)

    @property
    def roll_ms(self) -> int:
        return self.log_roll_hours * HOUR_MS if self.log_roll_ms is None else self.log_roll_ms

    @property
    def roll_jitter_ms(self) -> int:
        hours = self.log_roll_jitter_hours
        return hours * HOUR_MS if self.log_roll_jitter_ms is None else self.log_roll_jitter_ms

    @property
    def flush_ms(self) -> int:
        scheduled = self.log_flush_scheduler_interval_ms
        return scheduled if self.log_flush_interval_ms is None else self.log_flush_interval_ms

    @property
    def retention_ms(self) -> int:
        """-1 for never."""
        if self.log_retention_ms is not None:
            retention = self.log_retention_ms
        elif self.log_retention_minutes is not None:
            retention = self.log_retention_minutes * MINUTE_MS
        else:
            retention = self.log_retention_hours * HOUR_MS
        return max(retention, -1)

    @property
    def _controller_names(self) -> tuple[str, ...]:
        return tuple(name.upper() for name in self.controller_listener_names)

    @property
    def _protocols(self) -> dict[str, str]:
        protocols = parse_protocol_map(self.listener_security_protocol_map)
        for name in self._controller_names:
            protocols.setdefault(name, "PLAINTEXT")
        return protocols


@cache
def acting_keys() -> dict[str, Key]:
    """The keys that are fields, by dotted name."""
    fields = BrokerConfig.model_fields
    return {dotted(name): key_of(name, field) for name, field in fields.items()}


def with_both_ids(static: Mapping[str, str]) -> dict[str, str]:
    """node.id and its old name broker.id: giving one gives both."""
    given = static.get("node.id", static.get("broker.id"))
    ids = {} if given is None else {"node.id": given, "broker.id": given}
    return {**ids, **static}
