"""How much the kernel holds of what is sent on one connection and not read by its peer.

socket.send.buffer.bytes of 100 KiB is Kafka's default, and asks for no more than that there be a
bound; with any other value the buffer has that size, and -1 leaves it to the kernel. At 100 KiB it
is

  * narrow, until the first slice of a file: the kernel sizes it by what the peer takes, and holds
    NOT_SENT_BYTES_MAX behind what is on its way, for those may be copies;
  * 384 KiB from then on, or what net.core.wmem_max allows (208 KiB where nobody has raised it). A
    reader that keeps up is woken when a step begins to arrive, and finds all of it. With room for
    megabytes it sleeps and is woken again for every 64 KiB, by us: for one reader that was 2.5
    times the processor time. With 192 KiB and steps of 256 KiB one reader took 1.6 times the
    processor time of this, eight 1.14 times;
  * 100 KiB for good when the connection has read much from the disk, so that what is paced beside
    it waits less.
"""

from __future__ import annotations

import socket
from contextlib import suppress

DEFAULT_BYTES = 100 * 1024
"""Kafka's socket.send.buffer.bytes."""
NOT_SENT_BYTES_MAX = 128 * 1024
"""TCP_NOTSENT_LOWAT."""
SLICES_BYTES = 384 * 1024
"""For slices; the kernel makes twice as much of it, or of its own limit if that is less."""
COLD_WINDOWS = 8
"""Found on the disk one behind the other. That a page is not in memory is said of one in a thousand
that are, while somebody else reads them."""


class SendBuffer:
    """That of one socket."""

    __slots__ = ("_cold_windows", "_is_default", "_socket", "awaits_slice")

    def __init__(self, sock: socket.socket, wanted_bytes: int) -> None:
        """May raise OSError."""
        self._socket = sock
        self._is_default = wanted_bytes == DEFAULT_BYTES
        self._cold_windows = 0
        self.awaits_slice = self._is_default
        if self._is_default:
            _limit(sock, NOT_SENT_BYTES_MAX)
        elif wanted_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, wanted_bytes)

    def widen(self) -> None:
        """The first slice of a file is about to be sent."""
        self.awaits_slice = False
        _limit(self._socket, 0)  # whatever the system's own limit is
        self._set(SLICES_BYTES)

    def sent_window(self, *, is_cold: bool) -> None:
        """A worker has looked whether a window of a file was in memory."""
        self._cold_windows = self._cold_windows + 1 if is_cold else 0
        if self._is_default and self._cold_windows == COLD_WINDOWS:
            self._is_default = False
            self._set(DEFAULT_BYTES)

    def _set(self, size: int) -> None:
        with suppress(OSError):  # the peer has gone, which the next send will tell
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)


def _limit(sock: socket.socket, most: int) -> bool:
    """Whether the kernel takes such a limit for it; without one it is only less frugal."""
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if option is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    try:
        sock.setsockopt(socket.IPPROTO_TCP, option, most)
    except OSError:
        return False
    return True
