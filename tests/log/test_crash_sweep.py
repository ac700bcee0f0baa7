"""The crash sweep in its short form, and a proof that it sees what each safeguard prevents.

`python -m tests.log.crash_sweep` is the long form.
"""

from typing import Self

import pytest

from ottla.broker.log import checkpoints, recovery
from ottla.broker.ports import Rng
from ottla.testing.disk import SimDisk, SimFile
from ottla.testing.platter import CrashMode
from tests.log.crash_sweep import WORKLOAD, Sweep, retain
from tests.log.crash_world import LOG_DIR, Key, Violation, World


def test_no_crash_breaks_a_promise(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = Sweep(SimDisk())
    sweep.run()

    assert len(WORKLOAD) == 13
    assert sweep.calls > 150
    assert sweep.crashes > 6 * sweep.calls
    assert sweep.world.acknowledged > 30
    with capsys.disabled():
        print(f"\ncrash sweep: {sweep.crashes} crashes, {len(sweep.states)} states")  # noqa: T201


class _NoDirectorySync(SimDisk):
    """Names are never synced: the directory fsync is switched off."""

    def sync_dir(self, path: str) -> None:
        self._change("sync_dir", path)


class _IdleFile(SimFile):
    """Syncs nothing."""

    __slots__ = ()

    def sync(self) -> None:
        self._before_change("sync")


class _NoSyncBeforeRename(SimDisk):
    """The temporary file of an atomic replacement is renamed before it is synced."""

    def open(self, path: str, *, create: bool = False) -> SimFile:
        file = super().open(path, create=create)
        if path.endswith(checkpoints.TEMPORARY_SUFFIX):
            return _IdleFile(self, path, file._node)
        return file


class _NoSyncOfLogs(SimDisk):
    """Every sync of a log answers at once and does nothing."""

    def open(self, path: str, *, create: bool = False) -> SimFile:
        file = super().open(path, create=create)
        return _IdleFile(self, path, file._node) if path.endswith(".log") else file


class _NoSyncOfRecoveredTails(SimDisk):
    """A start after a crash reads what is still cached, and does not sync it."""

    recovering = False

    def crash(self, rng: Rng, mode: CrashMode) -> Self:
        left = super().crash(rng, mode)
        left.recovering = True
        return left

    def open(self, path: str, *, create: bool = False) -> SimFile:
        file = super().open(path, create=create)
        idle = self.recovering and path.endswith(".log")
        return _IdleFile(self, path, file._node) if idle else file


class _EarlyRecoveryPoint(World):
    """The recovery point is moved and checkpointed before the sync that it tells of."""

    def flush(self, key: Key) -> None:
        ends = {(log.topic, log.partition): log.log_end_offset for log in self.manager.logs}
        checkpoints.write_offsets(self.disk, f"{LOG_DIR}/{checkpoints.RECOVERY_POINT_FILE}", ends)
        super().flush(key)


class _EarlyAnswer(World):
    """Answers leave before the sync."""

    def flush(self, key: Key) -> None:
        end = self.log(key).log_end_offset
        for sent in self.promises[key].sent:
            sent.acknowledged = 0 <= sent.last_offset < end
        super().flush(key)


@pytest.mark.parametrize(
    "disk", [_NoDirectorySync, _NoSyncBeforeRename, _NoSyncOfLogs, _NoSyncOfRecoveredTails]
)
def test_without_a_safeguard_of_the_disk_the_sweep_fails(disk: type[SimDisk]) -> None:
    with pytest.raises(Violation, match="replay: python -m"):
        Sweep(disk(), seeds=2).run()


class _StaleRecoveryPoint(World):
    """Segments are deleted while the recovery point on disk still lies below them."""

    def apply_retention(self) -> None:
        self.give_up_sealed_segments()
        for log in self.manager.logs:
            log.delete_old_segments(self.clock.wall_ms())


class _AnyCrc(int):
    """Equal to every other."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def test_without_the_crc_check_of_recovery_the_sweep_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was torn is served then, and its producer never sent such a batch."""
    monkeypatch.setattr(recovery, "crc32c", lambda data: _AnyCrc())
    with pytest.raises(Violation, match="holds a batch that nobody sent") as raised:
        Sweep(SimDisk(), seeds=2).run()

    assert "mode TORN" in str(raised.value)


@pytest.mark.parametrize("world", [_EarlyRecoveryPoint, _EarlyAnswer])
def test_without_the_right_order_the_sweep_fails(world: type[World]) -> None:
    with pytest.raises(Violation, match="replay: python -m"):
        Sweep(SimDisk(), seeds=2, world_type=world).run()


def test_a_recovery_point_below_deleted_segments_costs_nothing() -> None:
    """Two safeguards stand here: the recovery point is written before segments are deleted, and
    recovery knows a deleted segment by its name. Without the first, the second holds."""
    Sweep(SimDisk(), seeds=4, world_type=_StaleRecoveryPoint, only_in=retain).run()
