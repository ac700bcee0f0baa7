"""`ottla log` on real files: output, statuses, the lock."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.__main__ import main
from ottla.broker.posix import PosixDisk
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from tests.log.examine.partitions import write_out


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """The partition of `filled_disk` on the real disk, with a marker of a clean stop."""
    write_out(tmp_path / "orders-0")
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    return tmp_path


def harm(log_dir: Path) -> Path:
    """Flips a bit of a record in the first segment; the file."""
    path = log_dir / "orders-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    return path


def test_verify_is_silent_where_all_is_well(
    log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", "verify", str(log_dir)]) == 0

    assert capsys.readouterr().out.endswith(" 0 findings.\n")


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_partition_that_was_removed_after_a_clean_stop_is_found(
    log_dir: Path, is_clean: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """While a broker runs, or after a crash, its checkpoints may name what was deleted."""
    rows = "0\n3\ngone 0 7\nempty 1 0\norders 0 1\n"
    (log_dir / "recovery-point-offset-checkpoint").write_text(rows)
    if not is_clean:
        (log_dir / ".kafka_cleanshutdown").unlink()
    assert main(["log", "verify", str(log_dir)]) == int(is_clean)
    told = capsys.readouterr().out.splitlines()[:-1]

    assert [line.partition(":")[0] for line in told] == [f"{log_dir}/gone-0"] * is_clean
    assert all("durable up to offset 7 when the broker was stopped" in line for line in told)


def test_verify_names_file_byte_and_remedy(
    log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = harm(log_dir)
    assert main(["log", "verify", str(log_dir)]) == 1
    sentence = capsys.readouterr().out.splitlines()[0]
    assert sentence.startswith(f"{path} at byte 0: a batch has CRC ")
    assert "`ottla log repair`" in sentence
    assert main(["log", "verify", "--json", str(path)]) == 1
    (line,) = capsys.readouterr().out.splitlines()

    assert json.loads(line)["fix"] == "take_out"


def test_repair_tells_then_mends_and_takes_the_mark_of_a_clean_stop(
    log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = harm(log_dir)
    before = path.read_bytes()
    assert main(["log", "repair", "--dry-run", str(log_dir)]) == 0
    side = path.with_name("00000000000000000000.0.cut")
    does = (
        f"{path} at byte 0: take the range out of the segment; offsets from 0 up to 2 are given up;"
        f" the bytes stay in {side}\n"
    )
    assert capsys.readouterr().out == f"would: {does}"
    assert path.read_bytes() == before
    assert main(["log", "repair", str(log_dir)]) == 0
    assert capsys.readouterr() == (does, "")
    assert main(["log", "verify", str(log_dir)]) == 0
    capsys.readouterr()
    assert main(["log", "repair", str(log_dir)]) == 0
    assert capsys.readouterr().out == "Nothing to repair.\n"

    assert len(path.read_bytes()) < len(before)
    assert side.exists()
    assert not (log_dir / ".kafka_cleanshutdown").exists()


def test_what_lies_at_two_of_the_paths_is_mended_once(
    log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was found the first time told of bytes that are others by then."""
    path = harm(log_dir)
    assert main(["log", "repair", str(log_dir), str(path.parent), str(path)]) == 0

    assert len(capsys.readouterr().out.splitlines()) == 1
    assert [one.name for one in path.parent.glob("*.cut")] == ["00000000000000000000.0.cut"]
    assert main(["log", "verify", str(log_dir)]) == 0


def test_a_dry_run_leaves_no_file(log_dir: Path) -> None:
    harm(log_dir)
    before = sorted(log_dir.rglob("*"))
    assert main(["log", "repair", "--dry-run", str(log_dir)]) == 0

    assert sorted(log_dir.rglob("*")) == before


@pytest.mark.parametrize(("arguments", "status"), [(["--dry-run"], 0), ([], 2)])
def test_on_a_disk_that_is_read_only_a_dry_run_works(
    log_dir: Path,
    arguments: list[str],
    status: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read_only(self: PosixDisk, path: str) -> None:
        raise OSError(errno.EROFS, "Read-only file system", path)

    harm(log_dir)
    (log_dir / ".lock").touch()
    monkeypatch.setattr(PosixDisk, "lock", read_only)
    assert main(["log", "repair", *arguments, str(log_dir)]) == status
    told = capsys.readouterr()

    assert ("would: " in told.out) == (status == 0)
    assert ("cannot be locked, as a repair has to: Read-only" in told.err) == (status != 0)


def test_who_has_read_enough_of_a_dump_is_no_damage(log_dir: Path) -> None:
    """A pipe whose reader has gone."""
    command = [sys.executable, "-m", "ottla", "log", "dump", "--deep", *[str(log_dir)] * 200]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as dump:
        assert dump.stdout is not None
        assert dump.stderr is not None
        dump.stdout.readline()
        dump.stdout.close()
        told = dump.stderr.read()

    assert (dump.returncode, told) == (0, b"")


def test_who_has_read_enough_of_a_repair_gets_all_of_it(log_dir: Path) -> None:
    for number in range(40):
        partition = log_dir / f"more-{number}"
        write_out(partition)
        (partition / "00000000000000000000.index").write_bytes(b"x" * 8)
    command = [sys.executable, "-m", "ottla", "log", "repair", str(log_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as repair:
        assert repair.stdout is not None
        repair.stdout.readline()
        repair.stdout.close()

    assert repair.returncode == 0
    assert main(["log", "verify", str(log_dir)]) == 0


def test_no_record_looks_like_another_in_a_dump(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = [
        b"None",
        None,
        b'"None"',
        b"one\n  offset: 9 timestamp: 0 key: None value: forged",
        b"\x1b[31m",
    ]
    records = [Record(number, 0, None, value) for number, value in enumerate(values)]
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(build_batch(records))
    assert main(["log", "dump", "--deep", str(path)]) == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if "value: " in line]

    assert [line.partition("value: ")[2] for line in shown] == [
        '"None"',
        "None",
        '"\\"None\\""',
        '"one\\n  offset: 9 timestamp: 0 key: None value: forged"',
        '"\\u001b[31m"',
    ]


def test_repair_refuses_while_a_broker_holds_the_lock(
    log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = harm(log_dir)
    before = path.read_bytes()
    held = PosixDisk().lock(f"{log_dir}/.lock")
    try:
        for where in (log_dir, path):
            assert main(["log", "repair", str(where)]) == 2
            assert f"{log_dir} is in use by this very process" in capsys.readouterr().err
    finally:
        held.close()

    assert path.read_bytes() == before


def test_what_no_repair_can_mend_is_left_and_told(
    log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (log_dir / "meta.properties").write_text("version=7\n")
    assert main(["log", "repair", str(log_dir)]) == 1

    assert "left: " in capsys.readouterr().out


def test_dump_writes_an_object_a_line(log_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "dump", "--json", "--deep", str(log_dir)]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"ABORT", "COMMIT"} == {row["control_type"] for row in told if "control_type" in row}
    assert all(row["file"].startswith(str(log_dir)) for row in told)
    harm(log_dir)

    assert main(["log", "dump", str(log_dir)]) == 1


def test_a_path_that_is_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert main(["log", "verify", str(tmp_path / "absent")]) == 2
    for verb in ("dump", "verify", "repair"):
        assert main(["log", verb, str(tmp_path / "notes.txt")]) == 2
        assert main(["log", verb, str(tmp_path)]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]

    assert "no file of the format" in capsys.readouterr().err


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--help"], ["dump", "-h"], ["verify", "-h"], ["repair", "-h"]):
        assert main(["log", *words]) == 0
        assert "Examples:\n    ottla log " in capsys.readouterr().out
