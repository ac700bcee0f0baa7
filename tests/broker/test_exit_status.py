"""The status with which a start ends that cannot be: packaging/ottla.service goes by it.

With 69 it tries again; what only a person can mend must end with one that it does not.
"""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from ottla.__main__ import EX_USAGE
from ottla.broker import serve
from ottla.broker.faults import EXIT_STATUS
from ottla.broker.log.directories import LOCK_FILE
from ottla.broker.network.listening import Listening
from ottla.broker.posix import PosixDisk
from ottla.testing.embedded import BrokerThread

UNIT = Path(__file__).parents[2] / "packaging" / "ottla.service"
METADATA = "__cluster_metadata-0"


def start(*dirs: Path) -> int:
    """Ends before it serves: every caller has damaged something."""
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": ",".join(map(str, dirs)),
        "ottla.telemetry.port": "-1",
    }
    arguments = [f"--override={key}={value}" for key, value in settings.items()]
    return serve.main(arguments)


def used(log_dir: Path) -> Path:
    """A log dir that was stopped cleanly, with a partition."""
    with BrokerThread(data_dir=log_dir):
        pass
    partition = log_dir / "orders-0"
    partition.mkdir()
    (partition / "partition.metadata").write_text("version: 0\n")
    return log_dir


def with_identity(text: str) -> Callable[[Path], None]:
    def replace(log_dir: Path) -> None:
        (log_dir / "meta.properties").write_text(text)

    return replace


def without_identity(log_dir: Path) -> None:
    (log_dir / "meta.properties").unlink()


def without_metadata(log_dir: Path) -> None:
    shutil.rmtree(log_dir / METADATA)


def with_damaged_log(log_dir: Path) -> None:
    path = next((log_dir / METADATA).glob("*.log"))
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def with_damaged_snapshot(log_dir: Path) -> None:
    *_, path = sorted((log_dir / METADATA).glob("*.checkpoint"))
    path.write_bytes(b"garbage")


def test_the_unit_tries_no_start_that_would_end_the_same() -> None:
    found = re.search(r"^RestartPreventExitStatus=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert found is not None
    prevented = {int(word) for word in found[1].split()}

    assert {serve.main(["--no-such-option"]), EX_USAGE, EXIT_STATUS, serve.EX_CONFIG} == prevented
    assert serve.EX_UNAVAILABLE not in prevented


@pytest.mark.parametrize(
    "harm",
    [
        with_identity("garbage"),
        with_identity(""),
        with_identity("version=0\nbroker.id=1\n"),
        without_identity,
        without_metadata,
        with_damaged_log,
        with_damaged_snapshot,
    ],
)
def test_what_is_damaged_or_lost_is_for_a_person(
    harm: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_dir = used(tmp_path / "data")
    harm(log_dir)

    assert start(log_dir) == serve.EX_CONFIG
    assert str(log_dir) in capsys.readouterr().err


def test_a_metadata_log_in_another_log_dir_is_for_a_person(tmp_path: Path) -> None:
    assert start(tmp_path / "other", used(tmp_path / "data")) == serve.EX_CONFIG


def test_a_log_dir_that_another_process_still_holds_will_be_free(tmp_path: Path) -> None:
    lock = PosixDisk().lock(f"{tmp_path}/{LOCK_FILE}")
    try:
        assert start(tmp_path) == serve.EX_UNAVAILABLE
    finally:
        lock.close()


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (errno.EADDRNOTAVAIL, serve.EX_UNAVAILABLE),
        (errno.EADDRINUSE, serve.EX_UNAVAILABLE),
        (errno.EACCES, serve.EX_CONFIG),
    ],
)
def test_an_address_may_come_and_a_permission_does_not(
    number: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(self: Listening, configured: object) -> NoReturn:
        raise OSError(number, "cannot listen on 127.0.0.1:80")

    monkeypatch.setattr(Listening, "bind", refuse)

    assert start(tmp_path) == status
