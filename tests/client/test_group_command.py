"""`ottla group why`: what a broker tells of a group."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Consumer, Producer

from ottla.__main__ import main
from ottla.broker.coordinator.outcome import Told
from ottla.testing.embedded import BrokerThread


def test_it_tells_each_event_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    with BrokerThread(config={"ottla.telemetry.port": 0}) as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
        producer = Producer(settings)
        producer.produce("t", b"value")
        assert producer.flush(20) == 0
        consumer = Consumer(settings | {"group.id": "a b", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        assert consumer.poll(20) is not None
        consumer.close()
        address = f"127.0.0.1:{broker.running.telemetry_port}"
        status = main(["group", "why", "a b", "--telemetry", address])
        told = capsys.readouterr().out.splitlines()
        nobody = main(["group", "why", "nobody", "--telemetry", f"http://{address}/metrics"])

    assert status == 0
    assert [line.split()[1] for line in told[:4]] == [
        "group_member_joined:",
        "group_rebalances:",
        "group_generation:",
        "group_stable:",
    ]
    assert "client_id=rdkafka" in told[0]
    assert "a new member joined" in told[1]
    assert "group_member_left:" in " ".join(told)
    assert nobody == 1
    assert "remembers nothing" in capsys.readouterr().err


def test_a_member_s_words_do_not_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with BrokerThread(config={"ottla.telemetry.port": 0}) as broker:
        told = Told(
            "group_empty", "g", "\x1b[2J\n\u00e9", {"client_id": "a\rb", "instance_id": None}
        )
        groups = broker.running.rooms.groups
        groups.history.add([told], groups.now())
        address = f"127.0.0.1:{broker.running.telemetry_port}"
        assert main(["group", "why", "g", "--telemetry", address]) == 0

    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("group_empty: \\x1b[2J\\n\u00e9  client_id=a\\rb")


def test_json_is_an_object_a_line_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    with BrokerThread(config={"ottla.telemetry.port": 0}) as broker:
        told = Told("group_empty", "g", "nobody\nis left", {"client_id": "a\rb"})
        groups = broker.running.rooms.groups
        groups.history.add([told, told], groups.now())
        address = f"127.0.0.1:{broker.running.telemetry_port}"
        assert main(["group", "why", "g", "--json", "--telemetry", address]) == 0

    for line in capsys.readouterr().out.splitlines():
        event = json.loads(line)
        assert abs(event.pop("wall_ms") / 1000 - time.time()) < 3600
        assert event == {
            "event": "group_empty",
            "group": "g",
            "reason": "nobody\nis left",
            "client_id": "a\rb",
        }


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is nine hours ahead of UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo-9")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_east")
def test_times_are_utc_as_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    with BrokerThread(config={"ottla.telemetry.port": 0}) as broker:
        told = Told("group_empty", "g", "nobody is left", {})
        groups = broker.running.rooms.groups
        groups.history.add([told], groups.now())
        address = f"127.0.0.1:{broker.running.telemetry_port}"
        assert main(["group", "why", "g", "--telemetry", address]) == 0

    moment, *_ = capsys.readouterr().out.split()
    assert moment.endswith("Z")
    assert abs(datetime.now(UTC) - datetime.fromisoformat(moment)) < timedelta(hours=1)


def test_no_proxy_is_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as silent, BrokerThread(config={"ottla.telemetry.port": 0}) as broker:
        silent.bind(("127.0.0.1", 0))
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        address = f"127.0.0.1:{broker.running.telemetry_port}"
        assert main(["group", "why", "nobody", "--telemetry", address]) == 1

    assert "remembers nothing" in capsys.readouterr().err


def test_a_port_alone_is_one_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    with BrokerThread(config={"ottla.telemetry.port": 0}) as broker:
        port = str(broker.running.telemetry_port)
        assert main(["group", "why", "nobody", "--telemetry", port]) == 1

    assert "remembers nothing" in capsys.readouterr().err


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:87101",
        "87101",
        "0",
        "https://x",
        "localhost",
        "localhost:port",
        ":9464",
        "a..b:1",
    ],
)
def test_what_is_no_address_is_told_with_the_form(
    capsys: pytest.CaptureFixture[str], address: str
) -> None:
    assert main(["group", "why", "g", "--telemetry", address]) == 2

    assert f"{address}: allowed is HOST:PORT" in capsys.readouterr().err


def test_without_a_broker_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["group", "why", "g", "--telemetry", "127.0.0.1:1"])

    assert status == 69
    error = capsys.readouterr().err
    assert "no broker answers on http://127.0.0.1:1: [Errno 111] Connection refused." in error
    assert "--telemetry" in error


def test_what_is_no_broker_s_telemetry_is_told_from_silence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with BrokerThread() as broker:
        status = main(["group", "why", "g", "--telemetry", broker.bootstrap_servers])

    assert status == 69
    assert "what answers is no broker's telemetry" in capsys.readouterr().err


def test_a_name_that_no_group_can_have_is_told_from_silence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["group", "why", "\udcff", "--telemetry", "127.0.0.1:1"]) == 2
    assert "the name of a group is UTF-8" in capsys.readouterr().err


def test_a_name_that_is_too_long_to_be_asked_for_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with BrokerThread(config={"ottla.telemetry.port": 0}) as broker:
        port = str(broker.running.telemetry_port)
        assert main(["group", "why", "g" * 9000, "--telemetry", port]) == 2

    assert "the name is too long to be asked for, 9014 characters" in capsys.readouterr().err


def test_a_wrong_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["group", "why"]) == 2
    assert "GROUP" in capsys.readouterr().err
