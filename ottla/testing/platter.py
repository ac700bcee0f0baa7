"""What a simulated disk consists of, and what a crash makes of it.

A file has its cached and its durable content, a directory its cached and its durable names; between
them lies one list of pending operations in the order of the calls. `survivors` chooses by the mode
of the crash which of them reach the platter, `tear` how much of a write does.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from enum import Enum

from ottla.broker.ports import Rng

SECTOR = 512  # what a drive writes as one: the edge at which a write tears
PAGE = 4096

# What a map shows behind the end of a file that was cut below it, where the kernel would send
# SIGBUS: nothing that could pass for an index entry or a batch.
_POISON = b"\xdd"


class CrashMode(Enum):
    """What becomes of the pending operations."""

    PROCESS = "the process dies, the machine goes on: all stays cached, and as unsynced as it was"
    ALL_KEPT = "all survive"
    PREFIX = "those before some moment survive"
    SUBSET = "each survives or vanishes"
    TORN = "each survives or vanishes, and writes that survive tear at sector edges"
    SIZES = "names and sizes survive, the data behind them is zeros"


class Content:
    """Bytes without the zeros of a preallocated tail, which `size` counts."""

    __slots__ = ("data", "size")

    def __init__(self, data: bytes | bytearray = b"", size: int = 0) -> None:
        self.data = bytearray(data)
        self.size = size

    def copy(self) -> Content:
        return Content(self.data, self.size)

    def read(self, size: int, position: int) -> bytes:
        size = max(0, min(size, self.size - position))
        data = bytes(self.data[position : position + size])
        return data + bytes(size - len(data))

    def write(self, data: bytes, position: int) -> None:
        gap = position - len(self.data)
        if gap > 0:
            self.data += bytes(gap)
        self.data[position : position + len(data)] = data
        self.size = max(self.size, position + len(data))

    def resize(self, size: int) -> None:
        del self.data[size:]
        self.size = size


class Mapping(bytearray):
    """A bytearray that can be referred to weakly."""


class FileNode:
    __slots__ = ("cached", "durable", "maps", "modified_ms")

    def __init__(self, cached: Content, durable: Content) -> None:
        self.cached = cached
        self.durable = durable
        self.maps: list[weakref.ref[Mapping]] = []
        self.modified_ms = 0

    def write(self, data: bytes, position: int) -> None:
        self.cached.write(data, position)
        for mapping in self._live_maps():
            end = min(len(mapping), position + len(data))
            if end > position:
                mapping[position:end] = data[: end - position]

    def resize(self, size: int) -> None:
        self.cached.resize(size)
        for mapping in self._live_maps():
            page_end = -(-size // PAGE) * PAGE
            zeros_end = min(len(mapping), page_end)
            if size < zeros_end:
                mapping[size:zeros_end] = bytes(zeros_end - size)
            if page_end < len(mapping):
                mapping[page_end:] = _POISON * (len(mapping) - page_end)

    def map(self) -> memoryview:
        mapping = Mapping(self.cached.size)
        mapping[: len(self.cached.data)] = self.cached.data
        self.maps = [ref for ref in self.maps if ref() is not None]
        self.maps.append(weakref.ref(mapping))
        return memoryview(mapping).toreadonly()

    def _live_maps(self) -> list[Mapping]:
        return [mapping for ref in self.maps if (mapping := ref()) is not None]


class DirectoryNode:
    __slots__ = ("durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = FileNode | DirectoryNode


@dataclass(slots=True, frozen=True, eq=False)
class Write:
    node: FileNode
    data: bytes
    position: int


@dataclass(slots=True, frozen=True, eq=False)
class Resize:
    node: FileNode
    size: int


@dataclass(slots=True, frozen=True, eq=False)
class Link:
    directory: DirectoryNode
    name: str
    node: Node


@dataclass(slots=True, frozen=True, eq=False)
class Unlink:
    """Half of a rename if `link` is given: then it is durable only where that half is, too."""

    directory: DirectoryNode
    name: str
    link: Link | None = None


@dataclass(slots=True, frozen=True, eq=False)
class Move:
    """A directory's rename: the old name or the new one, never both."""

    source: DirectoryNode
    old: str
    target: DirectoryNode
    new: str
    node: DirectoryNode


Pending = Write | Resize | Link | Unlink | Move


def make_durable(operation: Pending) -> None:
    """Brings one operation to the platter."""
    match operation:
        case Write(node, data, position):
            node.durable.write(data, position)
        case Resize(node, size):
            node.durable.resize(size)
        case Link(directory, name, linked):
            directory.durable[name] = linked
        case Unlink(directory, name):
            directory.durable.pop(name, None)
        case Move(source, old, target, new, moved):
            source.durable.pop(old, None)
            target.durable[new] = moved


def touches(operation: Pending, node: Node) -> bool:
    """Whether syncing this file or directory makes the operation durable."""
    match operation:
        case Write(file) | Resize(file):
            return file is node
        case Link(directory) | Unlink(directory):
            return directory is node
        case Move(source, _, target):
            return source is node or target is node


def survivors(pending: list[Pending], rng: Rng, mode: CrashMode) -> list[Pending]:
    """The operations that reach the platter in a crash, some of them changed."""
    match mode:
        case CrashMode.PROCESS:
            return []
        case CrashMode.ALL_KEPT:
            kept = pending
        case CrashMode.PREFIX:
            kept = pending[: rng.randrange(len(pending) + 1)]
        case CrashMode.SUBSET:
            kept = [operation for operation in pending if rng.getrandbits(1)]
        case CrashMode.TORN:
            some = [operation for operation in pending if rng.randrange(4)]
            return _whole_renames([part for one in some for part in tear(one, rng)], pending)
        case CrashMode.SIZES:
            kept = [_without_data(operation) for operation in pending]
    return _whole_renames(kept, pending)


def tear(operation: Pending, rng: Rng) -> list[Pending]:
    """A write as the sectors of it that were written: a prefix, a suffix, a hole, or any."""
    if not isinstance(operation, Write):
        return [operation]
    start, end = operation.position, operation.position + len(operation.data)
    edges = [start, *range(start - start % SECTOR + SECTOR, end, SECTOR), end]
    count = len(edges) - 1
    cut = sorted((rng.randrange(count + 1), rng.randrange(count + 1)))
    match rng.randrange(4):
        case 0:
            kept = [index < cut[0] for index in range(count)]
        case 1:
            kept = [index >= cut[0] for index in range(count)]
        case 2:
            kept = [not cut[0] <= index < cut[1] for index in range(count)]
        case _:
            kept = [bool(rng.getrandbits(1)) for _ in range(count)]
    parts: list[Pending] = []
    if rng.getrandbits(1):
        parts.append(_without_data(operation))  # the size was written, whatever the data did
    for index in range(count):
        if kept[index]:
            data = operation.data[edges[index] - start : edges[index + 1] - start]
            parts.append(Write(operation.node, data, edges[index]))
    return parts


def _without_data(operation: Pending) -> Pending:
    """Only what the write did to the size of its file."""
    if isinstance(operation, Write):
        return replace(operation, data=b"", position=operation.position + len(operation.data))
    return operation


def _whole_renames(kept: list[Pending], pending: list[Pending]) -> list[Pending]:
    """Without the unlinks whose other half is lost: a renamed file keeps one name at least."""
    lost = {id(operation) for operation in pending} - {id(operation) for operation in kept}
    return [
        operation
        for operation in kept
        if not (isinstance(operation, Unlink) and id(operation.link) in lost)
    ]
