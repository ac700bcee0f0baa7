"""A range of a file that an answer is sent from."""

from __future__ import annotations

from ottla.broker.ports import File


class FileSlice:
    """A range of a file, to be sent as it lies. Who keeps it over a turn of the loop pins it.

    `known` has its bytes if they are in memory anyway, else nothing.
    """

    __slots__ = ("file", "known", "position", "size")

    def __init__(self, file: File, position: int, size: int, known: bytes = b"") -> None:
        self.file = file
        self.position = position
        self.size = size
        self.known = known

    def __repr__(self) -> str:
        return f"<FileSlice {self.file.path} {self.position}+{self.size}>"

    def read(self) -> bytes:
        return self.head(self.size)

    def head(self, size: int) -> bytes:
        """The first bytes of it, at most so many."""
        return self.file.pread(min(size, self.size), self.position)
