"""`ottla log` on copies and single files: what a directory is, its files tell and not its name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ottla.__main__ import main
from ottla.broker.log.examine.files import LOG_DIR_KINDS, PARTITION_KINDS, FileKind
from ottla.broker.posix import PosixDisk
from tests.log.examine.partitions import write_out

FIRST = "00000000000000000000"
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A partition's directory under a name that is none of a partition."""
    write_out(tmp_path / "copy")
    return tmp_path / "copy"


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def snapshot_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_each_kind_lies_in_one_place() -> None:
    in_metadata_log = {FileKind.QUORUM_STATE, FileKind.METADATA_SNAPSHOT}

    assert set(FileKind) == PARTITION_KINDS | LOG_DIR_KINDS | in_metadata_log
    assert not PARTITION_KINDS & LOG_DIR_KINDS


def test_a_copy_of_a_partition_is_verified_and_repaired(copy: Path, capsys: Captured) -> None:
    assert main(["log", "verify", "--deep", str(copy)]) == 0
    assert capsys.readouterr().out.startswith("1 partition, ")
    for name in (".log", ".index"):
        flip(copy / (FIRST + name), 3)
    (copy / "leader-epoch-checkpoint").write_text("0\n1\n0 x\n")
    before = snapshot_of(copy)
    assert main(["log", "verify", str(copy)]) == 1
    assert f"{copy}/{FIRST}.log at byte 0: " in capsys.readouterr().out
    assert main(["log", "repair", "--dry-run", str(copy)]) == 0
    assert f"would: {copy}/{FIRST}.log at byte 0: take" in capsys.readouterr().out
    assert snapshot_of(copy) == before
    assert main(["log", "repair", str(copy)]) == 0

    assert main(["log", "verify", str(copy)]) == 0
    assert not (copy / ".lock").exists()
    assert not (copy.parent / ".lock").exists()


@pytest.mark.parametrize("name", [".log", ".index", ".timeindex"])
def test_of_a_file_in_a_copy_only_its_findings_are_told(
    copy: Path, capsys: Captured, name: str
) -> None:
    flip(copy / f"{FIRST}.index", 7)
    told = int(name == ".index")
    assert main(["log", "verify", str(copy / (FIRST + name))]) == told
    assert (" 1 finding." if told else " 0 findings.") in capsys.readouterr().out
    assert main(["log", "repair", str(copy / (FIRST + name))]) == 0

    assert main(["log", "verify", str(copy)]) == 1 - told


def test_a_path_without_a_name_is_the_directory_it_means(
    copy: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(copy / f"{FIRST}.log", 80)
    monkeypatch.chdir(copy)
    for path in (".", f"{FIRST}.log", f"./{FIRST}.log", f"../copy//{FIRST}.log"):
        assert main(["log", "verify", path]) == 1
        assert f"copy/{FIRST}.log at byte 0: " in capsys.readouterr().out


def test_a_log_alone_gets_its_indexes(copy: Path, tmp_path: Path, capsys: Captured) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    path = shutil.copy(copy / f"{FIRST}.log", alone)
    assert main(["log", "verify", str(path)]) == 1
    assert "its offset index is missing" in capsys.readouterr().out
    assert main(["log", "repair", str(path)]) == 0

    assert main(["log", "verify", str(path)]) == 0
    assert (alone / f"{FIRST}.index").exists()


@pytest.mark.parametrize("name", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_what_stands_without_its_log_is_told_so_and_kept(
    copy: Path, tmp_path: Path, capsys: Captured, name: str
) -> None:
    """It may be the only copy, so that a repair is not to take it away."""
    alone = tmp_path / "alone"
    alone.mkdir()
    source = sorted(copy.glob(f"*{name}"))[-1]
    path = Path(shutil.copy(source, alone))
    if name == ".snapshot":
        assert main(["log", "repair", str(path)]) == 0
        flip(path, 9)
    before = snapshot_of(alone)
    assert main(["log", "verify", str(path)]) == 1
    assert "put its .log file beside it" in capsys.readouterr().out
    for arguments in (["--dry-run", str(path)], [str(path)], [str(alone)]):
        assert main(["log", "repair", *arguments]) == 1
        assert f"left: {path}: " in capsys.readouterr().out

    assert snapshot_of(alone) == before


def test_a_log_dir_that_is_named_like_a_partition_is_one(tmp_path: Path, capsys: Captured) -> None:
    """It was taken for a partition, its partitions not verified, and its parent locked."""
    log_dir = tmp_path / "kafka-1"
    write_out(log_dir / "orders-0")
    (log_dir / "meta.properties").write_text("version=7\n")
    flip(log_dir / "orders-0" / f"{FIRST}.log", 80)
    assert main(["log", "verify", str(log_dir)]) == 1
    assert "1 partition, " in (told := capsys.readouterr().out)
    assert " 2 findings." in told
    held = PosixDisk().lock(f"{log_dir}/.lock")
    try:
        assert main(["log", "repair", str(log_dir)]) == 2
    finally:
        held.close()

    assert f"{log_dir} is in use by " in capsys.readouterr().err
    assert not (tmp_path / ".lock").exists()


def test_a_link_or_a_copy_within_a_log_dir_waits_for_its_broker(
    tmp_path: Path, capsys: Captured
) -> None:
    log_dir = tmp_path / "data"
    write_out(log_dir / "orders-0")
    shutil.copytree(log_dir / "orders-0", log_dir / "copy")
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    link = tmp_path / "link"
    link.symlink_to(log_dir / "orders-0")
    held = PosixDisk().lock(f"{log_dir}/.lock")
    try:
        for path in (link, log_dir / "copy", link / f"{FIRST}.log"):
            assert main(["log", "repair", str(path)]) == 2
            assert f"{log_dir} is in use by " in capsys.readouterr().err
    finally:
        held.close()


def test_a_log_that_is_cut_behind_a_link_was_not_stopped_cleanly(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    write_out(log_dir / "orders-0")
    marker = log_dir / ".kafka_cleanshutdown"
    marker.write_text('{"version":0,"brokerEpoch":1}')
    link = tmp_path / "link"
    link.symlink_to(log_dir / "orders-0")

    assert main(["log", "repair", str(link)]) == 0
    assert marker.exists()

    flip(log_dir / "orders-0" / f"{FIRST}.log", 3)

    assert main(["log", "repair", str(link)]) == 0
    assert not marker.exists()


def test_behind_a_link_the_parent_is_the_targets(
    copy: Path, tmp_path: Path, capsys: Captured
) -> None:
    inner = tmp_path / "elsewhere" / "inner"
    inner.mkdir(parents=True)
    shutil.copytree(copy, tmp_path / "elsewhere" / "copy")
    (tmp_path / "link").symlink_to(inner)
    flip(copy / f"{FIRST}.log", 3)

    assert main(["log", "verify", f"{tmp_path}/link/../copy"]) == 0
    assert capsys.readouterr().out.startswith("1 partition, ")
    assert main(["log", "verify", str(copy)]) == 1
