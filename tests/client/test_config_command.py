"""`ottla config --bootstrap-server`: the settings in force in a running broker."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator

import pytest

from ottla.__main__ import main
from ottla.client.cli.running_config import BROKER_RESOURCE
from ottla.client.connection import Connection
from ottla.protocol.messages.configs import IncrementalAlterConfigsRequest as Request
from ottla.testing.embedded import BrokerThread

CaptureText = pytest.CaptureFixture[str]
SET = 0
LISTENERS_OWN = "listener.name.plaintext.max.connection.creation.rate"
MOVES = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(config={"num.partitions": 3}) as running:
        yield running


def _change(broker: BrokerThread, name: str, settings: dict[str, str]) -> None:
    items = [Request.AlterableConfig(key, SET, value) for key, value in settings.items()]
    request = Request([Request.AlterConfigsResource(BROKER_RESOURCE, name, items)])

    async def ask() -> int:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        connection = await Connection.open(host, int(port))
        answer = await connection.request(request, 1)
        await connection.close()
        code: int = answer.responses[0].error_code
        return code

    assert broker.call(ask()) == 0


def test_what_was_changed_at_run_time_is_shown_with_where(
    broker: BrokerThread, capsys: CaptureText
) -> None:
    _change(broker, "", {"log.retention.ms": "5000", "log.cleanup.policy": "compact"})
    _change(broker, "1", {"log.retention.ms": "6000", MOVES: "1000", LISTENERS_OWN: "9"})
    arguments = ["config", "--json", "--bootstrap-server", broker.bootstrap_servers]
    assert main(arguments) == 0
    told = capsys.readouterr()
    rows = {(row["scope"], row["name"]): row for row in json.loads(told.out)}

    def shown(name: str, scope: str = "broker") -> tuple[str, str]:
        return rows[scope, name]["value"], rows[scope, name]["origin"]

    assert shown("log.retention.ms") == ("6000", "changed for this broker")
    assert shown(MOVES) == ("1000", "changed for this broker")
    assert shown(LISTENERS_OWN) == ("9", "changed for this broker")
    assert shown("log.cleanup.policy") == ("compact", "changed for all brokers")
    assert shown("num.partitions") == ("3", "start of the broker")
    assert shown("message.max.bytes") == ("1048588", "default")
    assert shown("retention.ms", "topic") == ("6000", "broker: log.retention.ms")
    assert told.err == ""


def test_without_it_a_person_is_told_that_the_changes_are_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: CaptureText
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["config", "log.retention.ms"]) == 0

    assert "--bootstrap-server HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize(("is_terminal", "words"), [(False, []), (True, ["--json"])])
def test_a_program_that_reads_the_settings_is_told_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: CaptureText, is_terminal: bool, words: list[str]
) -> None:
    for variable in os.environ:
        if variable.startswith(("KAFKA_", "OTTLA_")):
            monkeypatch.delenv(variable)
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    assert main(["config", "log.retention.ms", *words]) == 0

    assert capsys.readouterr().err == ""


def test_nobody_there_and_what_is_no_address(capsys: CaptureText) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{bound.getsockname()[1]}"
        named = server.replace("127.0.0.1", "localhost")
        for one in (server, named):
            assert main(["config", "--bootstrap-server", one]) == 69
            told = capsys.readouterr().err
            assert told.startswith(f"ottla: no broker answers on {one}: Connection refused. Name")
    for address in ("9092", "127.0.0.1:65536", "http://127.0.0.1:9092", "a..b:1", "", "a:1,b"):
        assert main(["config", "--bootstrap-server", address]) == 2
        assert "HOST:PORT" in capsys.readouterr().err


def test_the_telemetry_port_is_no_broker_s(capsys: CaptureText) -> None:
    with BrokerThread(config={"ottla.telemetry.port": 0}) as broker:
        server = f"127.0.0.1:{broker.running.telemetry_port}"
        assert main(["config", "--bootstrap-server", server]) == 69

    assert (
        f"no broker answers on {server}: what answers there speaks HTTP" in capsys.readouterr().err
    )


@pytest.mark.parametrize(("columns", "is_table"), [(80, False), (200, True)])
def test_a_terminal_too_narrow_for_a_table_is_shown_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: CaptureText, columns: int, is_table: bool
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["config", "group.consumer"]) == 0

    told = capsys.readouterr().out
    assert ("broker settings" in told) == is_table
    assert ("group.consumer.max.assignment.interval.ms=15000" in told) != is_table
    assert "group.consumer.max.assignment.interval.ms" in told


def test_of_several_servers_the_first_that_answers_is_asked(
    broker: BrokerThread, capsys: CaptureText
) -> None:
    with socket.socket() as bound, socket.socket() as other:
        silent = []
        for one in (bound, other):
            one.bind(("127.0.0.1", 0))
            silent.append(f"127.0.0.1:{one.getsockname()[1]}")
        servers = f"{silent[0]}, {broker.bootstrap_servers},{silent[1]}"
        assert main(["config", "--bootstrap-server", servers, "num.partitions"]) == 0
        assert capsys.readouterr().err == ""
        assert main(["config", "--bootstrap-server", ",".join(silent)]) == 69

    told = capsys.readouterr().err
    assert all(f"no broker answers on {one}: " in told for one in silent)


def test_settings_of_a_start_are_not_mixed_with_a_brokers(capsys: CaptureText) -> None:
    arguments = ["--bootstrap-server", "127.0.0.1:1", "--override", "num.partitions=3"]
    assert main(["config", *arguments]) == 2
    assert "has its own settings" in capsys.readouterr().err
