"""A repair leaves what a start goes by when it refuses to lose metadata, save where it is asked to
give that up: real files and the command, made of a node on the simulated disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.__main__ import main
from ottla.broker.log.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE
from ottla.broker.log.examine.findings import Fix
from ottla.broker.log.examine.partition import PartitionFacts
from ottla.broker.log.examine.verify import verify_path
from ottla.broker.log.soundness import MetadataLost, check_whole
from ottla.broker.posix import ReadOnlyDisk
from ottla.broker.quorum.store import METADATA_DIRECTORY
from ottla.protocol.records.batch import iterate_headers
from ottla.testing.disk import SimDisk
from tests.log.examine.partitions import write_out
from tests.quorum.test_soundness import QUORUM_DIR, damage, data_of, stopped, used

Captured = pytest.CaptureFixture[str]
FIRST = f"{0:020d}.log"


def flip(directory: Path) -> None:
    data = bytearray((directory / FIRST).read_bytes())
    _, (position, header), *_ = iterate_headers(memoryview(bytes(data)))
    data[position + header.size - 1] ^= 1
    (directory / FIRST).write_bytes(data)


def shorten(directory: Path) -> None:
    data = (directory / FIRST).read_bytes()
    position, _ = list(iterate_headers(memoryview(data)))[-2]
    (directory / FIRST).write_bytes(data[: position + 20])


def shorten_by_whole_batches(directory: Path) -> None:
    data = (directory / FIRST).read_bytes()
    position, _ = list(iterate_headers(memoryview(data)))[-2]
    (directory / FIRST).write_bytes(data[:position])


def remove(directory: Path) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        (directory / f"{0:020d}{suffix}").unlink()


HARM: dict[str, Callable[[Path], None]] = {
    "a flipped bit": flip,
    "half of a batch": shorten,
    "a shorter log": shorten_by_whole_batches,
    "no log": remove,
}


@pytest.fixture
async def log_dir(tmp_path: Path) -> Path:
    """A node's metadata log and a partition, stopped cleanly."""
    write_disk(await stopped(await used()), tmp_path / METADATA_DIRECTORY)
    (tmp_path / CLEAN_SHUTDOWN_FILE).write_text('{"version":0,"brokerEpoch":1}')
    write_out(tmp_path / "orders-0")
    check_whole(ReadOnlyDisk(), f"{tmp_path}/{METADATA_DIRECTORY}")
    return tmp_path


def write_disk(disk: SimDisk, directory: Path) -> None:
    directory.mkdir()
    for name in disk.list(QUORUM_DIR):
        (directory / name).write_bytes(data_of(disk, f"{QUORUM_DIR}/{name}"))


def refused(log_dir: Path) -> str:
    with pytest.raises(MetadataLost) as caught:
        check_whole(ReadOnlyDisk(), f"{log_dir}/{METADATA_DIRECTORY}")
    return str(caught.value)


def files(log_dir: Path) -> dict[str, bytes]:
    paths = (path for path in log_dir.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(log_dir)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("harm", HARM)
def test_a_repair_of_the_log_dir_leaves_what_a_start_refuses(
    log_dir: Path, harm: str, capsys: Captured
) -> None:
    directory = log_dir / METADATA_DIRECTORY
    HARM[harm](directory)
    said, before = refused(log_dir), files(log_dir)
    for paths in ([log_dir], [directory, log_dir / "orders-0"], [directory / FIRST]):
        if paths[0].exists():
            assert main(["log", "verify", str(log_dir)]) == 1
            assert f"{directory}: the next start refuses it: {said}" in capsys.readouterr().out
            main(["log", "repair", *map(str, paths)])
        assert f"\n{directory}" not in capsys.readouterr().out

        assert refused(log_dir) == said
        assert files(log_dir) == before


@pytest.mark.parametrize("harm", HARM)
def test_who_names_the_metadata_log_alone_gives_up_what_is_lost(
    log_dir: Path, harm: str, capsys: Captured
) -> None:
    directory = log_dir / METADATA_DIRECTORY
    HARM[harm](directory)
    assert f"`ottla log repair {directory}`" in refused(log_dir)
    assert main(["log", "repair", str(directory)]) == 0

    assert "set topics of it aside (-stray)" in capsys.readouterr().out.splitlines()[0]
    check_whole(ReadOnlyDisk(), str(directory))
    assert main(["log", "verify", str(log_dir)]) == 0


@pytest.mark.parametrize("which", ["", "orders-0"])
def test_the_mark_of_a_clean_stop_stays_while_it_tells_of_a_loss(
    log_dir: Path, which: str, capsys: Captured
) -> None:
    """A repair of another partition in the log dir would take it away."""
    flip(log_dir / "orders-0")
    shorten_by_whole_batches(log_dir / METADATA_DIRECTORY)
    said, before = refused(log_dir), files(log_dir)
    assert main(["log", "repair", str(log_dir / which)]) == 1

    assert f"left: {log_dir}/orders-0/{FIRST} at byte" in capsys.readouterr().out
    assert refused(log_dir) == said
    assert files(log_dir) == before
    assert main(["log", "repair", str(log_dir / METADATA_DIRECTORY)]) == 0
    assert main(["log", "repair", str(log_dir / which)]) == 0
    assert not (log_dir / CLEAN_SHUTDOWN_FILE).exists()


def test_a_mark_that_cannot_be_read_stays_while_it_tells_of_a_loss(log_dir: Path) -> None:
    (log_dir / CLEAN_SHUTDOWN_FILE).write_text("x")
    shorten_by_whole_batches(log_dir / METADATA_DIRECTORY)
    assert main(["log", "repair", str(log_dir)]) == 1

    assert (log_dir / CLEAN_SHUTDOWN_FILE).read_text() == "x"
    refused(log_dir)


def test_what_no_start_goes_by_is_mended_as_elsewhere(log_dir: Path) -> None:
    shorten_by_whole_batches(log_dir / METADATA_DIRECTORY)
    said = refused(log_dir)
    for directory in ("orders-0", METADATA_DIRECTORY):
        (log_dir / directory / f"{0:020d}.index").unlink()
    (log_dir / RECOVERY_POINT_FILE).write_text("x")
    assert main(["log", "repair", str(log_dir)]) == 1

    assert (log_dir / METADATA_DIRECTORY / f"{0:020d}.index").exists()
    assert (log_dir / "orders-0" / f"{0:020d}.index").exists()
    assert not (log_dir / RECOVERY_POINT_FILE).exists()
    assert refused(log_dir) == said


async def test_a_torn_tail_that_a_start_cuts_is_no_refusal() -> None:
    disk = (await used()).disk
    damage(disk, -1)
    (facts,) = verify_path(disk, QUORUM_DIR, deep=False, progress=lambda read: None)
    assert isinstance(facts, PartitionFacts)

    assert [one.fix for one in facts.findings if one.position is not None] == [Fix.CUT_TAIL]
    assert Fix.GIVE_UP not in [one.fix for one in facts.findings]
