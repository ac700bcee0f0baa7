"""Where the files of one log lie, also for workers while the directory is renamed.

A topic may be deleted and made again while a worker is busy with a log of the first. The directory
of that log then has another name, and its old one belongs to a stranger. What a worker does by
name it therefore does by `open_file`, `replace_file` and `sync`, and whoever renames the directory
does it by `move_to`: they exclude one another, for the time of a rename and not of a sync; and what
was opened is looked at behind it.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable

from ottla.broker.faults import NO_DESCRIPTOR_ERRORS
from ottla.broker.log.checkpoints import TEMPORARY_SUFFIX
from ottla.broker.ports import Disk, Events, File

# Beside the segments of a log whose sync or write failed: its tail is to be written once more. It
# need not be durable, for the page cache, of which it warns, does not outlive it.
DOUBTFUL_TAIL_FILE = "tail-not-synced"
# With it, for each name that was removed and may come back: it is to be removed once more.
REMOVED_SUFFIX = ".removed"
# What the mark is made of where the disk has no room for another file: the index of the segment
# that every start with a mark scans, and makes the indexes of anew.
_SPARE_SUFFIX = ".timeindex"

COPY_BYTES = 1024 * 1024


class PartitionDir:
    """The directory of one log, and who hears of what happens to its files."""

    __slots__ = (
        "_failed_sync",
        "_naming",
        "_removed",
        "_syncing",
        "disk",
        "events",
        "is_durable",
        "moved",
        "path",
    )

    def __init__(self, disk: Disk, path: str, events: Events) -> None:
        self.disk = disk
        self.path = path
        self.events = events
        # Whether the segment of a base offset is durable; its log says so once it is open.
        self.is_durable: Callable[[int], bool] = lambda base_offset: True
        # Whether the directory has been set aside, its log deleted or replaced.
        self.moved = False
        self._naming = threading.Lock()
        # Reentrant: a simulated disk does the work of two threads in one.
        self._syncing = threading.RLock()
        # Why the names in it are not to be had on disk any more.
        self._failed_sync: OSError | None = None
        # Names that were given up since the last sync.
        self._removed: list[str] = []

    def __repr__(self) -> str:
        return f"<PartitionDir {self.path} moved={self.moved}>"

    def file(self, offset: int, suffix: str) -> str:
        return f"{self.path}/{offset:020d}{suffix}"

    def move_to(self, path: str) -> None:
        """Renames the directory; durable only after a sync of its parent. Raises OSError."""
        with self._naming:
            self.disk.rename(self.path, path)
            self.path = path
            self.moved = True

    def replace_file(self, name: str, data: bytes) -> bool:
        """As `write_atomically`, from any thread; False, and nothing done, in a moved directory."""
        with self._naming:
            if self.moved:
                return False
            file = self.disk.open(f"{self.path}/{name}{TEMPORARY_SUFFIX}", create=True)
        try:
            if file.size() > 0:
                file.truncate(0)  # left behind by a crash
            file.pwrite(data, 0)
            file.sync()
        finally:
            file.close()
        with self._naming:
            if self.moved:
                return False
            path = f"{self.path}/{name}"
            self.disk.rename(path + TEMPORARY_SUFFIX, path)
        self.sync()
        return True

    def open_file(self, name: str) -> File:
        """Opens a file of this log, from any thread. Raises FileNotFoundError in a moved directory,
        whose old name may belong to a stranger by now, and OSError."""
        file = self.disk.open(f"{self.path}/{name}")
        if self.has_moved():  # so it may have been another one's when it was opened
            file.close()
            raise FileNotFoundError(errno.ENOENT, "the directory has moved", file.path)
        return file

    def add_suffix(self, name: str, suffix: str) -> None:
        """Renames a file to its name and a suffix, if it is there; nothing in a moved directory,
        whose files go with it. Any thread."""
        with self._naming:
            path = f"{self.path}/{name}"
            if not self.moved and self.disk.exists(path):
                self.disk.rename(path, path + suffix)

    def remove(self, path: str) -> None:
        """Removes a file of this log, whose name must not come back. Raises OSError."""
        self.disk.remove(path)
        self.note_removed(path)

    def note_removed(self, path: str) -> None:
        """The same where it was removed, or renamed, by somebody else."""
        self._removed.append(path.rpartition("/")[2])

    def sync(self) -> None:
        """The names in it are durable when this returns, unless it has moved. Any thread.

        One at a time, and after one that failed all do: the kernel tells one of those who sync at
        once, and the others, whose names it may be about, that all is well.
        """
        with self._syncing:
            if (failed := self._failed_sync) is not None:
                raise OSError(failed.errno, failed.strerror, failed.filename)
            path = self.path
            removed, self._removed = self._removed, []
            try:
                self.disk.sync_dir(path)
            except OSError as error:
                self._removed = removed + self._removed
                if isinstance(error, FileNotFoundError) and self.has_moved():
                    return
                if error.errno not in NO_DESCRIPTOR_ERRORS:
                    self._failed_sync = error
                raise

    def has_moved(self) -> bool:
        """As `moved`, but for a rename under way, which is waited for. Any thread."""
        with self._naming:
            return self.moved

    def doubt_tail(self) -> None:
        """Notes that the page cache may hold what the disk does not, and which names the disk may
        hold that were removed. Any thread."""
        with self._naming:
            if self.moved:
                return  # nobody opens it again, and it is about to be removed
            names = [DOUBTFUL_TAIL_FILE]
            for name in dict.fromkeys(self._removed):
                if not self.disk.exists(f"{self.path}/{name}"):  # else it was made anew
                    names.append(name + REMOVED_SUFFIX)
            for name in names:
                path = f"{self.path}/{name}"
                ways: list[Callable[[str], None]] = [self._make_file]
                ways.append(self.disk.make_dir)  # which takes no descriptor
                if name == DOUBTFUL_TAIL_FILE:
                    ways.append(self._rename_spare)
                self._mark(path, ways)

    def _mark(self, path: str, ways: list[Callable[[str], None]]) -> None:
        """Makes a name, whatever it is of, in the first way that is not refused.

        Where all are, the next start knows nothing of it. A disk that has become read-only is one
        such, and takes no records either until it is mounted anew, with an empty cache.
        """
        refusal: OSError | None = None
        for way in ways:
            try:
                if not self.disk.exists(path):
                    way(path)
            except OSError as error:
                refusal = refusal or error
            else:
                return
        self.events.error("tail_not_marked", path=path, error=str(refusal))

    def _make_file(self, path: str) -> None:
        self.disk.open(path, create=True).close()

    def _rename_spare(self, path: str) -> None:
        names = [name for name in self.disk.list(self.path) if name.endswith(_SPARE_SUFFIX)]
        if not names:
            raise FileNotFoundError(errno.ENOENT, "nothing to make it of", path)
        self.disk.rename(f"{self.path}/{names[-1]}", path)

    def trust_tail(self) -> None:
        """What was doubtful is on disk now."""
        for name in self.disk.list(self.path):
            if name[:1].isdigit() and name.endswith(REMOVED_SUFFIX):
                self.disk.remove(f"{self.path}/{name}")
        self.disk.remove(f"{self.path}/{DOUBTFUL_TAIL_FILE}")


def renew(source: File, path: str, size: int, disk: Disk) -> None:
    """Puts a new file, synced, with the first `size` bytes of `source` in the place of `path`.

    After a sync that failed the kernel takes the pages for clean, and the directory for synced,
    whatever the disk has: another sync would write neither the bytes nor the name.
    """
    copy = disk.open(path + TEMPORARY_SUFFIX, create=True)
    try:
        copy.truncate(0)  # left behind by a crash
        for position in range(0, size, COPY_BYTES):
            copy.pwrite(source.pread(min(COPY_BYTES, size - position), position), position)
        copy.sync()
    finally:
        copy.close()
    disk.rename(path + TEMPORARY_SUFFIX, path)


def rename_anew(path: str, disk: Disk) -> None:
    """The same for the name alone of a file that can be made anew, should a crash come between."""
    if disk.exists(path):
        disk.rename(path, path + TEMPORARY_SUFFIX)
        disk.rename(path + TEMPORARY_SUFFIX, path)
