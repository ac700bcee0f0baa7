"""`ottla config` and the table of commands, as a user meets them."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import pytest

import ottla
from ottla.__main__ import COMMANDS, EX_CONFIG, EX_IOERR, EX_USAGE, INTERRUPTED, main
from ottla.client.cli import config as config_command
from ottla.compiled import build
from ottla.config.load import NAMED_MAX, load

CaptureText = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in os.environ:
        if variable.startswith("KAFKA_") or variable == "CLUSTER_ID":
            monkeypatch.delenv(variable)


def test_what_it_prints_is_a_server_properties_that_means_the_same(
    capsys: CaptureText, tmp_path: Path
) -> None:
    given = ["log.roll.hours=5", "broker.rack=a\\b\nc\x1b[31m"]
    assert main(["config", *(f"--override={one}" for one in given), "--all"]) == 0
    printed = capsys.readouterr().out
    (tmp_path / "printed").write_text(printed)

    loaded = load(tmp_path / "printed", environ={})
    direct = load(overrides=given, environ={})
    assert printed.replace("\n", "").isprintable()
    assert loaded.config.model_dump() == direct.config.model_dump()


def test_what_it_prints_starts_a_broker_without_a_wall_of_keys(
    capsys: CaptureText, tmp_path: Path
) -> None:
    assert main(["config"]) == 0
    (tmp_path / "printed").write_text(capsys.readouterr().out)

    (note,) = load(tmp_path / "printed", environ={}).notes
    assert note.count(",") == NAMED_MAX - 1
    assert note.endswith("more; `ottla config` marks them")


def test_an_internal_key_is_not_said_to_be_none(capsys: CaptureText) -> None:
    assert main(["config", "log.initial.task"]) == 1
    assert capsys.readouterr().err.endswith(
        "1 of Kafka's internal settings fit log.initial.task: add --all.\n"
    )


def test_json_says_everything_about_a_key(capsys: CaptureText) -> None:
    assert main(["config", "--json", "--override", "num.io.threads=3", "num.io.threads"]) == 0

    assert json.loads(capsys.readouterr().out) == [
        {
            "scope": "broker",
            "name": "num.io.threads",
            "value": "3",
            "origin": "--override",
            "acts": False,
            "type": "int",
            "allowed": "a whole number from 1 to 2147483647",
            "default": "8",
            "dynamic": "cluster",
            "sentence": "Threads that serve requests.",
        }
    ]


def test_patterns_choose_keys_of_brokers_and_topics(capsys: CaptureText) -> None:
    main(["config", "log.flush.*.ms"])
    flush = capsys.readouterr().out
    main(["config", "cleanup.policy"])
    policy = capsys.readouterr().out

    assert flush.count("log.flush.") == 5
    assert "log.cleanup.policy=delete" in policy
    assert "# topic setting: cleanup.policy=delete" in policy


def test_compaction_is_shown_as_without_effect(capsys: CaptureText) -> None:
    main(["config", "cleanup.policy", "--override", "log.cleanup.policy=compact,delete", "--json"])
    compacted = json.loads(capsys.readouterr().out)
    main(["config", "cleanup.policy", "--json"])
    deleted = json.loads(capsys.readouterr().out)

    assert [row["acts"] for row in compacted] == [False, False]
    assert [row["acts"] for row in deleted] == [True, True]


def test_a_setting_of_the_share_coordinator_says_whether_it_acts(capsys: CaptureText) -> None:
    """Its writes gather while a sync is under way, whatever the linger is."""
    main(["config", "share.coordinator.*.ms", "--all", "--json"])
    acts = {row["name"]: row["acts"] for row in json.loads(capsys.readouterr().out)}

    assert acts["share.coordinator.cold.partition.snapshot.interval.ms"]
    assert not acts["share.coordinator.append.linger.ms"]


def test_a_wrong_setting_is_a_sentence_and_a_status(capsys: CaptureText) -> None:
    assert main(["config", "--override", "log.segment.byte=1"]) == EX_CONFIG
    assert capsys.readouterr().err.startswith("ottla: --override: log.segment.byte=1: no such key")
    assert main(["config", "--nonsense"]) == 2
    assert "No such option" in capsys.readouterr().err


@pytest.mark.parametrize("argument", ["server.properties", "--port=9092"])
def test_a_setting_that_is_given_otherwise_is_told_how(argument: str, capsys: CaptureText) -> None:
    assert main(["serve", argument]) == 2
    assert "--config server.properties" in capsys.readouterr().err


def test_what_a_start_would_not_take_is_told(
    capsys: CaptureText, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITONS", "3")
    main(["config", "num.partitions"])
    printed = capsys.readouterr()
    assert "num.partitions=1" in printed.out
    assert "ottla: no settings of a broker: KAFKA_NUM_PARTITONS (num.partitions?)" in printed.err


def test_help_version_and_unknown_commands(capsys: CaptureText) -> None:
    assert main([]) == 0
    assert "ottla serve" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ottla {ottla.__version__} ({build()})\n"
    assert main(["serv"]) == EX_USAGE
    assert "Did you mean `ottla serve`?" in capsys.readouterr().err
    assert main(["config", "--help"]) == 0
    assert "PATTERN" in capsys.readouterr().out
    assert main(["serve", "--help"]) == 0
    assert "ottla serve --override num.partitions=6" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["config"], ["config", "--help"]])
def test_an_output_that_takes_nothing_is_a_sentence_and_a_status(
    capsys: CaptureText, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(arguments) == EX_IOERR

    assert capsys.readouterr().err == (
        "ottla: the output cannot be written: [Errno 28] No space left on device.\n"
    )


def test_ctrl_c_is_no_finding(monkeypatch: pytest.MonkeyPatch, capsys: CaptureText) -> None:
    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(config_command, "load", interrupted)

    assert main(["config"]) == INTERRUPTED
    assert capsys.readouterr().err.strip() == ""


def test_the_version_is_the_packages() -> None:
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]

    assert project["version"] == ottla.__version__


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_leads_somewhere(name: str) -> None:
    module, _, function = COMMANDS[name].target.partition(":")

    assert callable(getattr(import_module(module), function))
