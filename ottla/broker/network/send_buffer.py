"""How much the kernel holds of what is sent on one connection and not read by its peer.

socket.send.buffer.bytes at Kafka's default, 100 KiB, was asked for by nobody; with any other value
the buffer has that size, and -1 leaves it to the kernel. At the default it is

  * narrow, until a slice of a file is sent: the kernel sizes it by what the peer takes, and holds
    NOT_SENT_BYTES_MAX of answers that are copies;
  * wide, for slices: they are pages of the cache, and a reader that keeps up takes a megabyte at
    once in place of 200 KiB;
  * 100 KiB for good when the connection is found to read from the disk. A worker that finds room
    for megabytes and a reader that finds as much to take do not rest, and the loop waits for one
    of their processors.
"""

from __future__ import annotations

import socket

DEFAULT_BYTES = 100 * 1024
"""Kafka's socket.send.buffer.bytes."""
NOT_SENT_BYTES_MAX = 128 * 1024
"""TCP_NOTSENT_LOWAT: behind what is on its way to the peer."""


class SendBuffer:
    """That of one socket; everything here may raise OSError."""

    __slots__ = ("_is_default", "_socket", "is_narrow")

    def __init__(self, sock: socket.socket, wanted_bytes: int) -> None:
        self._socket = sock
        self._is_default = wanted_bytes == DEFAULT_BYTES
        self.is_narrow = False
        if self._is_default:
            self.is_narrow = _limit(sock, NOT_SENT_BYTES_MAX)
        elif wanted_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, wanted_bytes)

    def widen(self) -> None:
        """For slices of files."""
        self.is_narrow = False
        _limit(self._socket, 0)  # whatever the system's own limit is

    def shrink(self) -> None:
        """For who reads from the disk."""
        if self._is_default:
            self._is_default = False
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, DEFAULT_BYTES)


def _limit(sock: socket.socket, most: int) -> bool:
    """Whether the kernel has such a limit for it."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if option is None:
        return False
    sock.setsockopt(socket.IPPROTO_TCP, option, most)
    return True
