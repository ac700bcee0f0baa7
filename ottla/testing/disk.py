"""A disk in memory that forgets what was not synced, as a real one may.

Everything a process sees is the page cache; what is on the platter lags behind it:
    write, truncate    are durable after `sync` of that file
    create, remove     are durable after `sync_dir` of the directory that holds the name
    rename             of a file is durable in two halves, each by `sync_dir` of its directory:
                       after a crash there is the old name, the new one, or both, never neither;
                       a directory is moved as one
`crash` gives back a new disk on which each pending operation survived, vanished or tore, as its
mode says. That is pessimistic where file systems differ: syncing a file does not keep its name,
and a rename may be durable before the data of the renamed file.

Other faults are given by `inject`: an errno at the nth matching call, a short write, a full disk.
A sync that fails, of a file or of a directory, drops what it should have written and says so once
(ext4, XFS and Btrfs mark the pages clean): a later sync that succeeds proves nothing.

Every call that changes the disk is counted. A sweep sets `before_call` and crashes a copy at each
count; or it sets `crash_at`, and from that call on every call raises SimCrash.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, Self

from ottla.broker.descriptors import HeldDescriptors
from ottla.broker.ports import THIS_PROCESS, Buffer, File, Rng
from ottla.testing.clock import SimClock
from ottla.testing.platter import (
    Content,
    CrashMode,
    DirectoryNode,
    FileNode,
    Link,
    Move,
    Node,
    Pending,
    Resize,
    Unlink,
    Write,
    make_durable,
    survivors,
    touches,
)

TOTAL_BYTES = 1 << 40
# A directory is opened to be synced. With these that failed, and no sync was tried.
NOT_OPENED = frozenset({errno.EMFILE, errno.ENFILE})

Operations = list[Pending]


class SimCrash(BaseException):
    """The machine has stopped; not an Exception, so that nothing in the broker handles it."""


@dataclass(slots=True)
class Fault:
    """A call that fails; see SimDisk.inject."""

    call: str
    errno: int
    path: str
    passing: int
    times: int
    written: int


class SimFile:
    """A file opened on a SimDisk. Using it after close is an error of ours."""

    __slots__ = ("_closed", "_closing", "_disk", "_node", "_pins", "path")

    def __init__(self, disk: SimDisk, path: str, node: FileNode) -> None:
        self.path = path
        self._disk = disk
        self._node = node
        self._pins = 0
        self._closing = False
        self._closed = False

    def __repr__(self) -> str:
        return f"<SimFile {self.path} size={self._node.cached.size}>"

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "the simulated disk has no descriptors", self.path)

    def pread(self, size: int, position: int) -> bytes:
        self._before_read("pread")
        if size < 0 or position < 0:
            _fail(errno.EINVAL, self.path)
        return self._node.cached.read(size, position)

    def read_cached(self, size: int, position: int) -> bytes | None:
        return self.pread(size, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        fault = self._before_change("pwrite")
        self._node.modified_ms = self._disk.wall_ms()
        payload = bytes(data)
        if fault is not None:
            self._write(payload[: fault.written], position)
            _fail(fault.errno, self.path)
        growth = max(0, position + len(payload) - self._node.cached.size)
        missing = growth - self._disk.free
        if missing > 0:
            self._write(payload[: max(0, len(payload) - missing)], position)
            _fail(errno.ENOSPC, self.path)
        self._write(payload, position)

    def truncate(self, size: int) -> None:
        fault = self._before_change("truncate")
        if fault is not None:
            _fail(fault.errno, self.path)
        # Growing by truncate takes no blocks, and so no room.
        self._disk.free += max(0, self._node.cached.size - size)
        self._node.modified_ms = self._disk.wall_ms()
        self._node.resize(size)
        self._disk.pending.append(Resize(self._node, size))

    def allocate(self, size: int) -> None:
        """Room for all of `size` is taken, and nothing written: they are zeros."""
        fault = self._before_change("allocate")
        growth = max(0, size - self._node.cached.size)
        if fault is not None:
            _fail(fault.errno, self.path)
        if growth > self._disk.free:
            _fail(errno.ENOSPC, self.path)
        if growth:
            self._disk.free -= growth
            self._node.resize(size)
            self._disk.pending.append(Resize(self._node, size))

    def sync(self) -> None:
        fault = self._before_change("sync")
        operations = self._disk._take_pending(self._node)
        if fault is not None:
            _fail(fault.errno, self.path)
        for operation in operations:
            make_durable(operation)

    def write_soon(self) -> None:
        """Writes nothing: a crash decides by itself what of it has come to the disk."""

    def sync_descriptor(self) -> int | None:
        return None

    def size(self) -> int:
        self._before_read("size")
        return self._node.cached.size

    def modified_ms(self) -> int:
        self._before_read("size")
        return self._node.modified_ms

    def written_end(self) -> int:
        return self.size()

    def close(self) -> None:
        self._closing = True
        self._closed = self._pins == 0
        if self._closed:
            self._disk._unlock(self)

    @property
    def is_pinned(self) -> bool:
        return self._pins > 0

    def pin(self) -> None:
        assert not self._closed, f"{self.path} is used after close"
        self._disk.held.pinned += not self._pins
        self._pins += 1

    def unpin(self) -> None:
        assert self._pins > 0, self.path
        self._pins -= 1
        self._disk.held.pinned -= not self._pins
        if self._closing:
            self.close()

    def map(self) -> memoryview:
        self._before_read("map")
        return self._node.map()

    def _write(self, payload: bytes, position: int) -> None:
        if payload:
            self._disk.free -= max(0, position + len(payload) - self._node.cached.size)
            self._node.write(payload, position)
            self._disk.pending.append(Write(self._node, payload, position))

    def _before_change(self, call: str) -> Fault | None:
        assert not self._closed, f"{self.path} is used after close"
        return self._disk._before_change(call, self.path)

    def _before_read(self, call: str) -> None:
        assert not self._closed, f"{self.path} is used after close"
        self._disk._before_read(call, self.path)


class SimDisk:
    """One file system. Paths may be relative or absolute; both start at the same root."""

    def __init__(self) -> None:
        self.calls = 0
        self.crash_at: int | None = None
        self.before_call: Callable[[int, str, str], None] | None = None
        self.free = TOTAL_BYTES
        # By which files are dated; a test whose time goes on sets it.
        self.wall_ms: Callable[[], int] = SimClock().wall_ms
        self.held_max = sys.maxsize
        self.held = HeldDescriptors(lambda: self.held_max)
        self.pending: Operations = []
        self._root = DirectoryNode()
        self._faults: list[Fault] = []
        self._locks: dict[FileNode, SimFile] = {}
        self._stopped = False

    def __repr__(self) -> str:
        return f"<SimDisk calls={self.calls} pending={len(self.pending)}>"

    def open(self, path: str, *, create: bool = False) -> SimFile:
        directory, name = self._parent(path)
        node = directory.names.get(name)
        if isinstance(node, DirectoryNode):
            _fail(errno.EISDIR, path)
        if node is None:
            if not create:
                self._before_read("open", path)
                _fail(errno.ENOENT, path)
            self._change("create", path)
            node = FileNode(Content(), Content())
            node.modified_ms = self.wall_ms()
            self._link(directory, name, node)
        else:
            self._before_read("open", path)
        return SimFile(self, path, node)

    def open_cached(self, path: str) -> SimFile | None:
        return None  # it cannot tell

    def list(self, path: str) -> list[str]:
        self._before_read("list", path)
        return sorted(self._directory(path).names)

    def exists(self, path: str) -> bool:
        self._before_read("exists", path)
        return self._find(path) is not None

    def make_dir(self, path: str) -> None:
        directory, name = self._parent(path)
        if name in directory.names:
            if isinstance(directory.names[name], FileNode):
                _fail(errno.EEXIST, path)
            return
        self._change("make_dir", path)
        self._link(directory, name, DirectoryNode())

    def rename(self, old: str, new: str) -> None:
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        node = source.names.get(old_name)
        replaced = target.names.get(new_name)
        if node is None:
            _fail(errno.ENOENT, old)
        if isinstance(replaced, DirectoryNode) and replaced.names:
            _fail(errno.ENOTEMPTY, new)
        self._change("rename", old)
        if isinstance(node, DirectoryNode):
            target.names[new_name] = source.names.pop(old_name)
            self.pending.append(Move(source, old_name, target, new_name, node))
            return
        link = self._link(target, new_name, node)
        if node is not replaced:
            del source.names[old_name]
            self.pending.append(Unlink(source, old_name, link))

    def remove(self, path: str) -> None:
        directory, name = self._parent(path)
        node = directory.names.get(name)
        if node is None:
            _fail(errno.ENOENT, path)
        if isinstance(node, DirectoryNode) and node.names:
            _fail(errno.ENOTEMPTY, path)
        self._change("remove", path)
        if isinstance(node, FileNode):
            self.free += len(node.cached.data)
        del directory.names[name]
        self.pending.append(Unlink(directory, name))

    def sync_dir(self, path: str) -> None:
        directory = self._directory(path)
        fault = self._before_change("sync_dir", path)
        if fault is not None and fault.errno in NOT_OPENED:
            _fail(fault.errno, path)
        operations = self._take_pending(directory)
        if fault is not None:
            self._drop_halves(operations)
            _fail(fault.errno, path)
        for operation in operations:
            if isinstance(operation, Unlink) and operation.link in self.pending:
                self.pending.remove(operation.link)
                make_durable(operation.link)
            make_durable(operation)

    def map(self, file: File) -> memoryview:
        assert isinstance(file, SimFile)
        return file.map()

    def allocate(self, path: str, size: int) -> None:
        self.open(path, create=True).allocate(size)

    def space(self, path: str) -> tuple[int, int]:
        self._before_read("space", path)
        return TOTAL_BYTES, self.free

    def lock(self, path: str) -> SimFile:
        file = self.open(path, create=True)
        if file._node in self._locks:
            raise BlockingIOError(errno.EAGAIN, THIS_PROCESS, path)
        self._locks[file._node] = file
        return file

    def inject(
        self,
        call: str,
        number: int,
        *,
        path: str = "",
        passing: int = 0,
        times: int = 1,
        written: int = 0,
    ) -> Fault:
        """Lets a kind of call fail with errno `number` where its path contains `path`.

        The first `passing` matching calls go well, then `times` fail. A failing pwrite still writes
        its first `written` bytes. Kinds: pread, size, map, open, list, exists, space; pwrite,
        truncate, allocate, sync, create, make_dir, rename, remove, sync_dir.
        """
        fault = Fault(call, number, path, passing, times, written)
        self._faults.append(fault)
        return fault

    def corrupt(self, path: str, position: int, data: bytes) -> None:
        """Bits rot: cache and platter both change, and nothing tells."""
        node = self._find(path)
        assert isinstance(node, FileNode), path
        node.write(data, position)
        node.durable.write(data, position)

    def crash(self, rng: Rng, mode: CrashMode) -> Self:
        """The disk as the next start finds it; this one stays as it is."""
        nodes: dict[Node, Node] = {}
        keeps_cache = mode is CrashMode.PROCESS
        disk = type(self)()
        disk.free = self.free
        disk.wall_ms = self.wall_ms
        root = _copy(self._root, nodes, keeps_cache=keeps_cache)
        assert isinstance(root, DirectoryNode)
        disk._root = root
        kept = self.pending if keeps_cache else survivors(self.pending, rng, mode)
        copied = _copy_operations(kept, nodes, keeps_cache=keeps_cache)
        if keeps_cache:
            disk.pending = copied
            return disk
        for operation in copied:
            make_durable(operation)
        for node in nodes.values():
            if isinstance(node, FileNode):
                node.cached = node.durable.copy()
            else:
                node.names = dict(node.durable)
        return disk

    def tree(self) -> dict[str, tuple[int, bytes]]:
        """Every file as the process sees it: path -> size and content without trailing zeros."""
        found: dict[str, tuple[int, bytes]] = {}
        waiting: list[tuple[str, Node]] = [("", self._root)]
        while waiting:
            path, node = waiting.pop()
            if isinstance(node, FileNode):
                found[path] = (node.cached.size, bytes(node.cached.data.rstrip(b"\0")))
            else:
                waiting += [(f"{path}/{name}", child) for name, child in node.names.items()]
        return dict(sorted(found.items()))

    def _link(self, directory: DirectoryNode, name: str, node: Node) -> Link:
        directory.names[name] = node
        link = Link(directory, name, node)
        self.pending.append(link)
        return link

    def _take_pending(self, node: Node) -> Operations:
        taken = [operation for operation in self.pending if touches(operation, node)]
        if taken:
            self.pending = [one for one in self.pending if not touches(one, node)]
        return taken

    def _drop_halves(self, dropped: Operations) -> None:
        """The old name of what was renamed stays, too, where the new one is not to be durable."""
        self.pending = [
            one for one in self.pending if not (isinstance(one, Unlink) and one.link in dropped)
        ]

    def _find(self, path: str) -> Node | None:
        node: Node | None = self._root
        for name in path.split("/"):
            if name in ("", "."):
                continue
            if not isinstance(node, DirectoryNode):
                _fail(errno.ENOTDIR, path)
            node = node.names.get(name)
            if node is None:
                return None
        return node

    def _directory(self, path: str) -> DirectoryNode:
        node = self._find(path)
        if node is None:
            _fail(errno.ENOENT, path)
        if not isinstance(node, DirectoryNode):
            _fail(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        head, _, name = path.rstrip("/").rpartition("/")
        return self._directory(head), name

    def _before_read(self, call: str, path: str) -> None:
        if self._stopped:
            raise SimCrash(call, path)
        fault = self._due_fault(call, path)
        if fault is not None:
            _fail(fault.errno, path)

    def _change(self, call: str, path: str) -> None:
        """Counts a call on names; those have no use for a part of it done."""
        fault = self._before_change(call, path)
        if fault is not None:
            _fail(fault.errno, path)

    def _before_change(self, call: str, path: str) -> Fault | None:
        if self._stopped or self.calls == self.crash_at:
            self._stopped = True
            raise SimCrash(call, path)
        if self.before_call is not None:
            self.before_call(self.calls, call, path)
        self.calls += 1
        return self._due_fault(call, path)

    def _due_fault(self, call: str, path: str) -> Fault | None:
        for fault in self._faults:
            if fault.call == call and fault.path in path:
                if fault.passing:
                    fault.passing -= 1
                elif fault.times:
                    fault.times -= 1
                    return fault
        return None

    def _unlock(self, file: SimFile) -> None:
        if self._locks.get(file._node) is file:
            del self._locks[file._node]


def _fail(number: int, path: str) -> NoReturn:
    raise OSError(number, os.strerror(number), path)


def _copy(node: Node, nodes: dict[Node, Node], *, keeps_cache: bool) -> Node:
    """The node and all below it; `nodes` tells which copy stands for which node."""
    if node in nodes:
        return nodes[node]
    if isinstance(node, FileNode):
        cached = node.cached.copy() if keeps_cache else Content()
        file = nodes[node] = FileNode(cached, node.durable.copy())
        file.modified_ms = node.modified_ms
        return file
    directory = nodes[node] = DirectoryNode()
    for name, child in node.durable.items():
        directory.durable[name] = _copy(child, nodes, keeps_cache=keeps_cache)
    if keeps_cache:
        for name, child in node.names.items():
            directory.names[name] = _copy(child, nodes, keeps_cache=keeps_cache)
    return directory


def _copy_operations(
    operations: Operations, nodes: dict[Node, Node], *, keeps_cache: bool
) -> Operations:
    def file(node: FileNode) -> FileNode:
        found = _copy(node, nodes, keeps_cache=keeps_cache)
        assert isinstance(found, FileNode)
        return found

    def directory(node: DirectoryNode) -> DirectoryNode:
        found = _copy(node, nodes, keeps_cache=keeps_cache)
        assert isinstance(found, DirectoryNode)
        return found

    links: dict[Link, Link] = {}
    copied: Operations = []
    for operation in operations:
        match operation:
            case Write(node, data, position):
                copied.append(Write(file(node), data, position))
            case Resize(node, size):
                copied.append(Resize(file(node), size))
            case Link(parent, name, child):
                node_copy = _copy(child, nodes, keeps_cache=keeps_cache)
                links[operation] = Link(directory(parent), name, node_copy)
                copied.append(links[operation])
            case Unlink(parent, name, link):
                half = links.get(link) if link is not None else None
                copied.append(Unlink(directory(parent), name, half))
            case Move(source, old, target, new, moved):
                copied.append(
                    Move(directory(source), old, directory(target), new, directory(moved))
                )
    return copied
