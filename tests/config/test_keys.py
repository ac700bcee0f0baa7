"""Every key, whatever it is declared by: texts become values, wrong texts Kafka's sentences."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from ottla.config.accepted import accepted
from ottla.config.broker import BrokerConfig, acting_keys
from ottla.config.catalogue import broker_keys
from ottla.config.keys import Key, dotted, render
from ottla.config.topic import topic_keys
from ottla.config.types import ConfigError, ConfigType

EVERY_KEY = [*broker_keys().values(), *accepted().keys.values(), *topic_keys().values()]


def refusal(key: Key, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        key.parse(text)
    return caught.value.message


def test_every_default_is_a_value_of_its_own_key() -> None:
    for key in EVERY_KEY:
        if key.default is not None:
            assert render(key.parse(key.default)) == key.default, key.name


def test_every_key_has_a_sentence_of_its_own_width() -> None:
    for key in EVERY_KEY:
        assert key.sentence.endswith("."), key.name
        assert key.sentence[0].isupper(), key.name
        assert key.allowed()


def test_no_key_is_declared_twice() -> None:
    assert not acting_keys().keys() & accepted().keys.keys()


def test_kafkas_own_keys_are_all_there() -> None:
    """340 are shown by DescribeConfigs of 4.3.1; 20 more are internal there."""
    kafkas = {name: key for name, key in broker_keys().items() if not name.startswith("ottla.")}
    shown = [name for name, key in kafkas.items() if not key.internal]

    assert (len(kafkas), len(shown)) == (360, 340)
    assert len([key for key in topic_keys().values() if not key.internal]) == 33


@pytest.mark.parametrize(
    "name",
    [
        "offsets.topic.replication.factor",
        "share.coordinator.state.topic.replication.factor",
        "transaction.state.log.replication.factor",
    ],
)
def test_factors_of_internal_topics_are_short_numbers(name: str) -> None:
    assert refusal(broker_keys()[name], "32768").endswith("Not a number of type SHORT")


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("segment.bytes", "1", "Value must be at least 1048576"),
        ("segment.bytes", "99999999999", "Not a number of type INT"),
        ("segment.bytes", "", "Not a number of type INT"),
        ("segment.bytes", "2e6", "Not a number of type INT"),
        ("segment.bytes", "1_048_576", "Not a number of type INT"),
        ("retention.ms", "9" * 5000, "Not a number of type LONG"),
        ("retention.ms", "-2", "Value must be at least -1"),
        ("cleanup.policy", "Delete", "String must be one of: compact, delete"),
        (
            "compression.type",
            "none",
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("compression.lz4.level", "18", "Value must be no more than 17"),
        ("compression.zstd.level", "23", "Value must be no more than 22"),
        ("min.cleanable.dirty.ratio", "1.5", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "abc", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "nan", "Not a number of type DOUBLE"),
        ("preallocate", "yes", "Expected value to be either true or false"),
        ("message.timestamp.type", "x", "String must be one of: CreateTime, LogAppendTime"),
    ],
)
def test_wrong_texts_are_refused_in_kafkas_words(name: str, text: str, sentence: str) -> None:
    expected = f"Invalid value {text} for configuration {name}: {sentence}"

    assert refusal(topic_keys()[name], text) == expected


def test_one_wrong_member_of_a_list_is_named_alone() -> None:
    assert refusal(topic_keys()["cleanup.policy"], "delete,foo") == (
        "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete"
    )


def test_throttled_replicas_are_pairs_or_a_star() -> None:
    key = topic_keys()["leader.replication.throttled.replicas"]

    assert key.parse("0:1,1:1") == ("0:1", "1:1")
    assert key.parse("*") == ("*",)
    assert key.parse("") == ()
    for text in ("0:1,", ",0:1", "0:1,,1:1", ",", "*,", ", *"):
        assert key.parse(text)
    for text in ("*,*", "*,0:1", "0:1,*"):
        assert "must be the literal '*' or a list of" in refusal(key, text)
    assert refusal(key, "abc").startswith(
        "Invalid value [abc] for configuration leader.replication.throttled.replicas:"
        " leader.replication.throttled.replicas must be the literal '*' or a list of replicas"
    )


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("segment.bytes", " +2000000 ", 2_000_000),
        ("preallocate", " TRUE", True),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("cleanup.policy", "compact,compact", ("compact",)),
        ("cleanup.policy", "", ()),
    ],
)
def test_texts_that_kafka_takes(name: str, text: str, value: object) -> None:
    assert topic_keys()[name].parse(text) == value


def test_a_choice_in_any_case() -> None:
    key = acting_keys()["group.consumer.migration.policy"]

    assert key.parse("Upgrade") == "Upgrade"
    assert "(case insensitive)" in refusal(key, "sideways")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.0, "1.0"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (0.0001, "1.0E-4"),
        (-0.00025, "-2.5E-4"),
        (5e-324, "5.0E-324"),
        (True, "true"),
        (("a", "b"), "a,b"),
        (None, None),
    ],
)
def test_values_are_written_as_java_writes_them(value: object, text: str | None) -> None:
    assert render(value) == text  # type: ignore[arg-type]


def test_pydantic_and_the_texts_agree_on_every_limit() -> None:
    """Settings made in Python are checked by pydantic, those in files by Key.parse."""
    for name, field in BrokerConfig.model_fields.items():
        key = acting_keys()[dotted(name)]
        adapter: TypeAdapter[object] = TypeAdapter(field.rebuild_annotation())
        for text in _probes(key):
            try:
                value = key.parse(text)
            except ConfigError:
                with pytest.raises(ValidationError):
                    adapter.validate_python(_in_python(key, text))
            else:
                assert adapter.validate_python(value) == value, (name, text)


def _probes(key: Key) -> list[str]:
    """Texts on both sides of each limit."""
    if key.choices:
        return [*key.choices, "0"]
    probes: list[str] = []
    if key.type in (ConfigType.INT, ConfigType.LONG):
        for limit in (key.at_least, key.at_most, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)):
            if limit is not None:
                probes += [str(int(limit) - 1), str(int(limit)), str(int(limit) + 1)]
    return probes


def _in_python(key: Key, text: str) -> object:
    if key.is_list:
        return (text,)
    return int(text) if key.type in (ConfigType.INT, ConfigType.LONG) else text
