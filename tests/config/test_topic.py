"""Topic settings: what is refused, what they fall back to, and how they are described."""

from __future__ import annotations

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.describe import TopicDescriber, describe_broker, describe_broker_defaults
from ottla.config.dynamic import validate_broker_overrides
from ottla.config.load import load
from ottla.config.topic import check_topic_overrides, effective_log_config, topic_defaults
from ottla.config.types import ConfigEntry, ConfigError, ConfigSource, ConfigType, LogConfig

PLAIN = load(environ={}).config


def configured(*overrides: str) -> BrokerConfig:
    return load(overrides=overrides, environ={}).config


def topic_entry(config: BrokerConfig, name: str, **overrides: str) -> ConfigEntry:
    named = {key.replace("_", "."): value for key, value in overrides.items()}
    return next(entry for entry in TopicDescriber(config).describe(named) if entry.name == name)


def broker_entry(config: BrokerConfig, name: str) -> ConfigEntry:
    return next(entry for entry in describe_broker(config) if entry.name == name)


def sources(entry: ConfigEntry) -> list[tuple[str, str | None, int]]:
    return [(one.name, one.value, int(one.source)) for one in entry.synonyms]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"nope": "1", "segment.bytes": "1"}, "Unknown topic config name: nope"),
        ({"segment.bytes": None}, "Null value not supported for topic configs: segment.bytes"),
        (
            {"retention.ms": "x", "segment.bytes": "1"},
            "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            {"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "50"},
            "conflict topic config setting min.compaction.lag.ms (100)"
            " > max.compaction.lag.ms (50)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker."
            " Topic cannot be configured with remote log storage.",
        ),
    ],
)
def test_refused_in_kafkas_words(overrides: dict[str, str | None], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_topic_overrides(overrides, topic_defaults(PLAIN))

    assert caught.value.message == sentence


def test_a_setting_is_compared_with_what_the_broker_gives() -> None:
    broker = configured("log.cleaner.max.compaction.lag.ms=10")

    check_topic_overrides({"min.compaction.lag.ms": "100"}, topic_defaults(PLAIN))
    with pytest.raises(ConfigError, match=r"conflict topic config setting"):
        check_topic_overrides({"min.compaction.lag.ms": "100"}, topic_defaults(broker))


def test_a_log_without_settings_of_its_own_has_the_defaults() -> None:
    assert effective_log_config(PLAIN, {}) == LogConfig()


def test_a_log_takes_its_own_settings_before_the_brokers() -> None:
    broker = configured(
        "log.roll.hours=1",
        "log.retention.minutes=2",
        "log.flush.scheduler.interval.ms=3",
        "message.max.bytes=4",
        "compression.type=zstd",
    )

    config = effective_log_config(
        broker, {"max.message.bytes": "5", "cleanup.policy": "compact,delete"}
    )

    assert (config.segment_ms, config.retention_ms, config.flush_ms) == (3_600_000, 120_000, 3)
    assert config.max_message_bytes == 5
    assert config.cleanup_policy == {"compact", "delete"}
    assert (config.compression_type, config.compression_level) == ("zstd", 3)


@pytest.mark.parametrize(
    ("codec", "level", "expected"),
    [("gzip", "-1", None), ("gzip", "9", 9), ("lz4", "9", None), ("lz4", "3", 3)],
)
def test_kafkas_default_levels_leave_the_choice_to_the_codec(
    codec: str, level: str, expected: int | None
) -> None:
    overrides = {"compression.type": codec, f"compression.{codec}.level": level}

    assert effective_log_config(PLAIN, overrides).compression_level == expected


def test_small_segments_for_tests() -> None:
    check_topic_overrides({"internal.segment.bytes": "100"}, topic_defaults(PLAIN))

    assert effective_log_config(PLAIN, {"internal.segment.bytes": "100"}).segment_bytes == 100
    assert len(TopicDescriber(PLAIN).describe({})) == 33


@pytest.mark.parametrize("text", ["0", "-5", "-2147483648"])
def test_no_segment_is_smaller_than_a_byte(text: str) -> None:
    """Nor is that of a topic that was set so before it was refused."""
    with pytest.raises(ConfigError, match=rf"{text} for .*internal.segment.bytes.* at least 1"):
        check_topic_overrides({"internal.segment.bytes": text}, topic_defaults(PLAIN))

    assert effective_log_config(PLAIN, {"internal.segment.bytes": text}).segment_bytes == 1


def test_described_sorted_with_kafkas_sources() -> None:
    config = PLAIN.with_dynamic(default={"min.insync.replicas": "1"})

    entries = TopicDescriber(config).describe({"retention.ms": " 5000"})
    by_source: dict[int, list[str]] = {}
    for entry in entries:
        by_source.setdefault(int(entry.source), []).append(entry.name)

    assert [entry.name for entry in entries] == sorted(entry.name for entry in entries)
    assert by_source[1] == ["retention.ms"]
    assert by_source[3] == ["min.insync.replicas"]
    assert len(by_source[5]) == 31
    assert topic_entry(config, "retention.ms", retention_ms=" 5000").value == "5000"


def test_synonyms_begin_with_the_first_place_of_the_same_name() -> None:
    """Without log.retention.ms the hours are no synonym, though they decide."""
    hours = configured("log.retention.hours=1")
    dynamic = hours.with_dynamic(
        default={"log.retention.ms": "5000"}, broker={"log.retention.ms": "6000"}
    )

    assert sources(topic_entry(hours, "retention.ms")) == []
    assert topic_entry(hours, "retention.ms").value == "3600000"
    assert sources(topic_entry(dynamic, "retention.ms")) == [
        ("log.retention.ms", "6000", 2),
        ("log.retention.ms", "5000", 3),
        ("log.retention.hours", "1", 4),
        ("log.retention.hours", "168", 5),
    ]
    assert topic_entry(dynamic, "retention.ms").value == "6000"


def test_the_broker_describes_kafkas_340_keys() -> None:
    entries = describe_broker(PLAIN)

    assert len(entries) == 340
    assert sum(not entry.read_only for entry in entries) == 99
    assert broker_entry(PLAIN, "node.id").read_only
    assert broker_entry(PLAIN, "log.flush.interval.messages").value == "1"
    password = broker_entry(PLAIN, "ssl.key.password")
    assert (password.value, password.sensitive) == (None, True)


def test_own_and_unknown_settings_are_described_where_they_are_set() -> None:
    config = configured("ottla.telemetry.port=0").with_dynamic(default={"zzz": "5"})

    assert len(describe_broker(config)) == 342
    assert broker_entry(config, "ottla.telemetry.port").source is ConfigSource.STATIC_BROKER
    unknown = broker_entry(config, "zzz")
    assert (unknown.value, unknown.type, unknown.sensitive) == (None, ConfigType.UNKNOWN, True)
    assert [entry.name for entry in describe_broker_defaults(config)] == ["zzz"]


@pytest.mark.parametrize(
    "name", ["leader.replication.throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second"]
)
def test_what_exists_at_run_time_only_has_no_default_to_fall_back_to(name: str) -> None:
    config = PLAIN.with_dynamic(broker={name: "5000"})

    assert sources(broker_entry(config, name)) == [(name, "5000", 2)]


def test_a_broker_setting_without_a_name_is_nobodys_default() -> None:
    overrides = {"": ""}
    validate_broker_overrides(PLAIN, overrides, one_broker=False)

    assert effective_log_config(PLAIN.with_dynamic(default=overrides), {}) == (
        effective_log_config(PLAIN, {})
    )


def test_a_listeners_own_setting_is_described_as_the_key_that_it_is_of() -> None:
    base = "max.connection.creation.rate"
    name = f"listener.name.plaintext.{base}"
    config = PLAIN.with_dynamic(default={name: "6", base: "1000"}, broker={name: "5"})

    entry = broker_entry(config, name)
    assert (entry.value, entry.type) == ("5", ConfigType.INT)
    assert (entry.sensitive, entry.read_only) == (False, True)
    made = [(name, "5", 2), (name, "6", 3), (base, "1000", 3)]
    assert sources(entry) == [*made, (base, "2147483647", 5)]
    by_default = {entry.name: entry for entry in describe_broker_defaults(config)}
    assert sources(by_default[name]) == [(name, "6", 3), (base, "1000", 3)]
    assert sources(by_default[base]) == [(base, "1000", 3)]


def test_settings_made_at_run_time_take_effect_and_can_be_taken_back() -> None:
    config = configured("log.segment.bytes=2000000")

    changed = config.with_dynamic(default={"log.segment.bytes": "3000000"})

    assert changed.log_segment_bytes == 3_000_000
    assert changed.with_dynamic().log_segment_bytes == 2_000_000


@pytest.mark.parametrize(
    ("overrides", "one_broker", "sentence"),
    [
        ({"node.id": "5"}, True, "Cannot update these configs dynamically: [node.id]"),
        (
            {"num.partitions": "5", "log.dirs": "/x"},
            False,
            "Cannot update these configs dynamically: [log.dirs, num.partitions]",
        ),
        (
            {"cordoned.log.dirs": "/x"},
            False,
            "Cannot update these configs at default cluster level, broker id must be specified:"
            " [cordoned.log.dirs]",
        ),
        (
            {"log.segment.bytes": "1"},
            True,
            "Invalid value 1 for configuration log.segment.bytes: Value must be at least 1048576",
        ),
        (
            {"num.io.threads": "x"},
            False,
            "Invalid value x for configuration num.io.threads: Not a number of type INT",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN"},
            True,
            "sasl.enabled.mechanisms asks for a protection that this version does not have.",
        ),
        (
            {"listeners": "PLAINTEXT://:1"},
            True,
            "listeners cannot be changed while the broker runs.",
        ),
        ({"log.retention.ms": "0"}, False, None),
        ({"max.connections": "0"}, False, "Invalid max.connections 0"),
        ({"log.cleaner.threads": "0"}, False, "Invalid log.cleaner.threads 0"),
        ({"max.connections.per.ip": "0"}, True, None),
    ],
)
def test_what_cannot_change_at_run_time(
    overrides: dict[str, str], one_broker: bool, sentence: str | None
) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_broker_overrides(PLAIN, overrides, one_broker=one_broker)

    assert sentence is None or caught.value.message == sentence


@pytest.mark.parametrize(
    "overrides",
    [
        {"nope": "1"},
        {"log.flush.interval.messages": "10"},
        {"leader.replication.throttled.rate": "100"},
        {"listener.name.plaintext.max.connections": "5"},
        {"listeners": "PLAINTEXT://localhost:9092"},
    ],
)
def test_what_can_change_at_run_time(overrides: dict[str, str]) -> None:
    validate_broker_overrides(PLAIN, overrides, one_broker=True)
