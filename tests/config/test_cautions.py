"""What a start says of settings that do less than their names promise."""

from __future__ import annotations

import pytest

from ottla.config.broker import BrokerConfig, Layers
from ottla.config.cautions import (
    NO_EFFECT,
    caution_of_broker,
    caution_of_topic,
    cautions,
    overruled,
)


def _config(**settings: str) -> BrokerConfig:
    static = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig.assemble(Layers(static=static))


def _overruled(
    static: dict[str, str],
    *,
    default: dict[str, str] | None = None,
    broker: dict[str, str] | None = None,
    origins: dict[str, str] | None = None,
) -> list[str]:
    layers = Layers(static=static, dynamic_default=default or {}, dynamic_broker=broker or {})
    return overruled(BrokerConfig.assemble(layers), origins or {})


def test_there_is_nothing_to_say_of_kafkas_defaults() -> None:
    assert cautions(_config(), {"t": {"retention.ms": "5", "cleanup.policy": "delete"}}) == []


def test_a_default_and_topics_are_one_sentence() -> None:
    compact = {"cleanup.policy": "compact"}
    topics = dict.fromkeys(("d", "c", "b", "a"), compact)
    (sentence,) = cautions(_config(log_cleanup_policy="compact,delete"), topics)

    assert sentence.startswith(
        "log.cleanup.policy=compact,delete, cleanup.policy of topics a, b, c and 1 more:"
        " logs are not compacted yet"
    )


def test_a_minimum_of_replicas_that_cannot_be_is_said() -> None:
    (by_default,) = cautions(_config(min_insync_replicas="2"), {})
    (by_topic,) = cautions(_config(), {"t": {"min.insync.replicas": "3"}})

    assert by_default.startswith("min.insync.replicas=2: no more than the replicas that there are")
    assert by_topic.startswith("min.insync.replicas of topic t: ")


@pytest.mark.parametrize(
    ("name", "text"),
    [("retention.ms", "5"), ("min.insync.replicas", "1"), ("cleanup.policy", "delete")],
)
def test_a_topics_setting_that_acts_as_it_says_needs_no_word(name: str, text: str) -> None:
    assert caution_of_topic(name, text) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.retention.ms", "5"),
        ("log.cleanup.policy", "delete"),
        ("cleanup.policy", "a topic's key, which no broker has"),
        ("what.nobody.knows", "5"),
        ("listener.name.x.max.connection.creation.rate", "5"),
    ],
)
def test_a_brokers_neither(name: str, text: str) -> None:
    assert caution_of_broker(name, text) is None


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("cleanup.policy", "delete, compact", "not compacted"),
        ("min.insync.replicas", " 2 ", "acks=all"),
        ("delete.retention.ms", "5", NO_EFFECT),
    ],
)
def test_a_topics_that_does_less_has_one(name: str, text: str, said: str) -> None:
    assert said in str(caution_of_topic(name, text))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("log.cleanup.policy", "compact", "not compacted"),
        ("min.insync.replicas", "2", "acks=all"),
        ("log.cleaner.threads", "2", NO_EFFECT),
        ("num.network.threads", "2", NO_EFFECT),
        ("listener.name.x.max.connections", "2", NO_EFFECT),
    ],
)
def test_a_brokers_that_does_less_has_one(name: str, text: str, said: str) -> None:
    assert said in str(caution_of_broker(name, text))


def test_what_was_changed_at_run_time_goes_before_what_the_start_gives() -> None:
    static = {"log.retention.ms": "5000", "log.segment.bytes": "2097152"}
    (by_all,) = _overruled(
        static,
        default={"log.retention.ms": "86400000"},
        origins={"log.retention.ms": "--override"},
    )
    (by_one,) = _overruled(
        static, default={"log.retention.ms": "5000"}, broker={"log.retention.ms": "6000"}
    )

    assert by_all == (
        "log.retention.ms: 86400000, changed at run time for all brokers, goes before 5000 of"
        " --override; kafka-configs.sh --delete-config takes it back"
    )
    assert by_one.startswith(
        "log.retention.ms: 6000, changed at run time for this broker, goes before 5000 of the start"
    )


def test_a_name_that_goes_before_the_one_of_the_start_overrules_it_too() -> None:
    (sentence,) = _overruled({"log.retention.hours": "1"}, broker={"log.retention.ms": "86400000"})

    assert " goes before log.retention.hours=1 of the start" in sentence


def test_what_is_the_same_or_was_never_given_overrules_nothing() -> None:
    same = {"log.retention.ms": " 5000"}
    assert _overruled({"log.retention.ms": "5000"}, default=same) == []
    assert _overruled({"log.retention.ms": "5000"}, default={"log.roll.ms": "9"}) == []
    assert _overruled({}, default={"log.retention.ms": "7"}) == []
    one = {"log.retention.ms": "5000"}
    assert _overruled(one, default={"log.retention.ms": "7"}, broker=one) == []


def test_a_secret_is_not_told_and_a_clients_text_commands_no_terminal() -> None:
    (secret,) = _overruled({"rsm.config.key": "hush"}, broker={"rsm.config.key": "quiet"})
    (text,) = _overruled({"broker.rack": "a"}, broker={"broker.rack": "b\x1b[31m"})

    assert "hush" not in secret
    assert "quiet" not in secret
    assert "broker.rack: b\\u001b[31m, changed" in text
