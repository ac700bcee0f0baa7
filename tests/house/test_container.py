"""The container's settings are settings of the broker, so that it starts as it is shipped."""

from __future__ import annotations

import re

from ottla.config.load import load
from tests.house.sources import ROOT

IN_DOCKERFILE = re.compile(r"^(?:ENV|   ) (KAFKA_\w+)=(\S+)", re.MULTILINE)
IN_COMPOSE = re.compile(r"^      ((?:KAFKA|CLUSTER)_\w+): \"?([^\"\n]+)\"?$", re.MULTILINE)


def _dockerfile() -> dict[str, str]:
    return dict(IN_DOCKERFILE.findall((ROOT / "Dockerfile").read_text(encoding="utf-8")))


def _compose() -> dict[str, str]:
    return dict(IN_COMPOSE.findall((ROOT / "docker-compose.yml").read_text(encoding="utf-8")))


def test_the_image_listens_everywhere_and_advertises_the_host() -> None:
    config = load(environ=_dockerfile()).config

    assert list(config.listeners) == ["PLAINTEXT://0.0.0.0:9092"]
    assert list(config.advertised_listeners or ()) == ["PLAINTEXT://localhost:9092"]


def test_the_compose_node_is_a_node_that_can_have_siblings() -> None:
    config = load(environ=_dockerfile() | _compose()).config

    assert config.node_id == 1
    assert [listener.name for listener in config.broker_listeners] == ["HOST", "DOCKER"]


def test_the_way_to_open_the_telemetry_port_is_a_setting() -> None:
    said = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "Dockerfile")]
    (variable,) = {found for text in said for found in re.findall(r"KAFKA_OTTLA_\w+=[\d.]+", text)}
    name, _, value = variable.partition("=")
    closed = load(environ=_dockerfile()).config
    opened = load(environ=_dockerfile() | {name: value}).config

    assert closed.ottla_telemetry_host == "127.0.0.1"
    assert opened.ottla_telemetry_host == value == "0.0.0.0"
    compose = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert f"# {name}: {value}" in compose


def test_the_image_is_built_from_what_is_sent_to_the_engine() -> None:
    sent = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    copied = re.findall(
        r"^COPY (?!--from)(.+) \S+$",
        (ROOT / "Dockerfile").read_text(encoding="utf-8"),
        re.MULTILINE,
    )

    assert {name for names in copied for name in names.split()} == sent
