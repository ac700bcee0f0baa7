"""A simulated disk whose files are in memory by pages, and which knows who had to wait for one."""

from __future__ import annotations

import threading
from contextlib import suppress

from ottla.broker.ports import File
from ottla.testing.disk import SimDisk, SimFile
from ottla.testing.platter import FileNode

PAGE_BYTES = 64


class PagedDisk(SimDisk):
    """Who reads a page that is not in memory, or opens a file that nobody opened since, waits for
    the disk: `waited` has the file and whose thread that was. Whoever maps a file may read any page
    of it, but for one that was opened as one in memory: there it is believed that what is read has
    been looked at. What is written is in memory. `open_files` are not closed yet."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[tuple[str, int]] = []
        self.open_files: set[PagedFile] = set()
        self._opened: set[str] = set()
        self._in_memory: set[tuple[str, int]] = set()

    def evict(self) -> None:
        """Nothing is in memory any more, and nobody has waited yet."""
        self._in_memory.clear()
        self._opened.clear()
        self.waited.clear()

    def evict_file(self, path: str) -> None:
        self._in_memory = {one for one in self._in_memory if one[0] != path}

    def waits_of(self, thread: int) -> list[str]:
        return [path for path, waiting in self.waited if waiting == thread]

    def waits_of_others(self, thread: int) -> list[str]:
        return [path for path, waiting in self.waited if waiting != thread]

    def open(self, path: str, *, create: bool = False) -> PagedFile:
        file = super().open(path, create=create)
        if path not in self._opened and not create:
            self.waited.append((path, threading.get_ident()))
        self._opened.add(path)
        paged = PagedFile(self, path, file._node)
        self.open_files.add(paged)
        return paged

    def open_cached(self, path: str) -> PagedFile | None:
        if path not in self._opened:
            return None
        with suppress(OSError):
            file = self.open(path)
            file.is_looked_at = True
            return file
        return None

    def map(self, file: File) -> memoryview:
        assert isinstance(file, PagedFile)
        if not file.is_looked_at:
            self.read_in(file.path, range(file.size()))
        return super().map(file)

    def holds(self, path: str, positions: range) -> bool:
        return all((path, page) in self._in_memory for page in _pages(positions))

    def read_in(self, path: str, positions: range) -> None:
        if not self.holds(path, positions):
            self.waited.append((path, threading.get_ident()))
        self.keep(path, positions)

    def keep(self, path: str, positions: range) -> None:
        self._in_memory.update((path, page) for page in _pages(positions))


class PagedFile(SimFile):
    __slots__ = ("is_looked_at",)
    _disk: PagedDisk

    def __init__(self, disk: PagedDisk, path: str, node: FileNode) -> None:
        super().__init__(disk, path, node)
        self.is_looked_at = False

    def pread(self, size: int, position: int) -> bytes:
        data = super().pread(size, position)
        self._disk.read_in(self.path, range(position, position + len(data)))
        return data

    def read_cached(self, size: int, position: int) -> bytes | None:
        is_held = self._disk.holds(self.path, range(position, position + size))
        return super().pread(size, position) if is_held else None

    def close(self) -> None:
        super().close()
        if self._closed:
            self._disk.open_files.discard(self)

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        super().pwrite(data, position)
        self._disk.keep(self.path, range(position, position + len(data)))


def _pages(positions: range) -> range:
    if not positions:
        return range(0)
    return range(positions[0] // PAGE_BYTES, positions[-1] // PAGE_BYTES + 1)
