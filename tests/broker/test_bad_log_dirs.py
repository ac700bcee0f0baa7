"""A start with log dirs of which some cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.broker.controller import features
from ottla.broker.log.checkpoints import CLEAN_SHUTDOWN_FILE
from ottla.broker.log.directories import LogDirError, UnusableLogDir
from ottla.broker.quorum.snapshot import BOOTSTRAP_FILE
from ottla.config.load import load
from tests.handlers.rooms import RecordedEvents


def broker_of(*dirs: Path) -> Broker:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": ",".join(map(str, dirs)),
        "ottla.telemetry.port": -1,
    }
    return Broker(load(overrides=settings, environ={}).config, events=RecordedEvents())


def file_at(path: Path) -> Path:
    path.write_bytes(b"no directory")
    return path


async def test_a_new_cluster_begins_in_those_that_are_sound(tmp_path: Path) -> None:
    good, bad, other = tmp_path / "good", file_at(tmp_path / "bad"), tmp_path / "other"
    for _ in range(2):
        broker = broker_of(good, bad, other)
        await broker.start()

        assert list(broker.logs.offline_dirs) == [str(bad)]
        assert (other / BOOTSTRAP_FILE).exists()
        await broker.stop()


async def test_without_a_sound_one_there_is_a_sentence(tmp_path: Path) -> None:
    broker = broker_of(file_at(tmp_path / "a"), file_at(tmp_path / "b"))

    with pytest.raises(UnusableLogDir, match=rf"The log dir {tmp_path}/. cannot be used: "):
        await broker.start()


async def test_a_second_one_that_the_metadata_cannot_name_leaves_the_first_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever raises the level with Apache Kafka finds it cleanly stopped."""
    monkeypatch.setattr(features, "BOOTSTRAP_LEVELS", {"metadata.version": 16})
    broker = broker_of(tmp_path / "a")
    await broker.start()
    await broker.stop()

    with pytest.raises(LogDirError, match="cannot say in which of the 2 log"):
        await broker_of(tmp_path / "a", tmp_path / "b").start()
    assert (tmp_path / "a" / CLEAN_SHUTDOWN_FILE).exists()
