"""Settings of run time that contradict those of a later start are told, and no reason not to."""

from __future__ import annotations

import pytest

from ottla.config.broker import Layers
from ottla.config.load import load
from ottla.config.passing_over import with_settings
from ottla.config.types import ConfigError

OTHER = {
    "listeners": "OTHER://127.0.0.1:9092",
    "listener.security.protocol.map": "OTHER:PLAINTEXT",
    "inter.broker.listener.name": "OTHER",
}
OVERRIDES, PROTOCOLS = "max.connections.per.ip.overrides", "listener.security.protocol.map"
NO_CONNECTIONS = {"max.connections.per.ip": "0", OVERRIDES: "127.0.0.1:10"}


@pytest.mark.parametrize(
    ("start", "set_later", "passed_over"),
    [
        ({}, {"num.partitions": "3"}, []),
        ({}, {"num.partitions": "none"}, ["num.partitions"]),
        # These contradict what the error names, which is the start's own.
        (
            NO_CONNECTIONS,
            {"max.connections.per.ip.overrides": ""},
            ["max.connections.per.ip.overrides"],
        ),
        (
            OTHER,
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
            ["listener.security.protocol.map"],
        ),
    ],
)
@pytest.mark.parametrize("for_all", [True, False])
def test_what_contradicts_the_start_is_passed_over(
    start: dict[str, str], set_later: dict[str, str], passed_over: list[str], *, for_all: bool
) -> None:
    static = load(overrides=start, environ={}).config
    told: list[str] = []
    sound = {"log.retention.ms": "1234"}
    layers = (set_later, sound) if for_all else (sound, set_later)
    config = with_settings(
        static,
        default=dict(layers[0]),
        broker=dict(layers[1]),
        passed_over=lambda name, reason: told.append(name),
    )

    assert told == passed_over
    assert config.log_retention_ms == 1234
    assert config.listeners == static.listeners


def test_of_two_that_contradict_it_both_are_passed_over() -> None:
    static = load(overrides={**NO_CONNECTIONS, **OTHER}, environ={}).config
    told: list[str] = []
    broker = {OVERRIDES: "", PROTOCOLS: "PLAINTEXT:PLAINTEXT"}
    with_settings(
        static, default={}, broker=broker, passed_over=lambda name, reason: told.append(name)
    )

    assert sorted(told) == [PROTOCOLS, OVERRIDES]


def test_a_start_that_contradicts_itself_is_refused() -> None:
    static = load(overrides=NO_CONNECTIONS, environ={}).config
    wrong = static.model_copy(update={})
    wrong._layers = Layers(static={"max.connections.per.ip": "0"})
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip"):
        with_settings(wrong, default={}, broker={}, passed_over=lambda name, reason: None)
