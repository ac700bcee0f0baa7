"""How much the kernel holds of what is sent on one connection and not read by its peer.

socket.send.buffer.bytes of 100 KiB is Kafka's default, and asks for no more than that there be a
bound; with any other value the buffer has that size, and -1 leaves it to the kernel. At 100 KiB the
kernel sizes it by what the peer takes, and holds behind what is on its way

  * NOT_SENT_BYTES_MAX until the first slice of a file, for those may be copies;
  * SLICES_NOT_SENT_BYTES_MAX from then on. What is held is the page cache's, and leaves when the
    peer has read, in the peer's own time: the reader of much is billed for what we would be;
  * READ_NOT_SENT_BYTES_MAX once READ_BYTES of slices have left: who has read so much reads on.

But a connection that sends at a pace (BBR) sleeps and is woken again for every 64 KiB, by us, where
there is room for megabytes: it has 384 KiB, or what net.core.wmem_max allows, which costs half as
much. Listeners of loopback have none such (`listening.py`). And a connection that has read much
from the disk has 100 KiB for good, so that what is paced beside it waits less.
"""

from __future__ import annotations

import socket
import sys
from contextlib import suppress

DEFAULT_BYTES = 100 * 1024
"""Kafka's socket.send.buffer.bytes."""
NOT_SENT_BYTES_MAX = 128 * 1024
"""TCP_NOTSENT_LOWAT."""
SLICES_NOT_SENT_BYTES_MAX = 1024 * 1024
"""The same, once slices are sent. Eight readers took 0.66 of the CPU that they do with 384 KiB in
all where this was 768 KiB, 0.62 with twice that, 0.57 without a limit; but who asks for much and
reads nothing would have megabytes."""
READ_BYTES = 8 * 1024 * 1024
"""More than the buffers of both ends hold by default: who was sent so much has read of it."""
READ_NOT_SENT_BYTES_MAX = 2 * 1024 * 1024
"""Eight readers take 0.84 of the CPU that they do with half of it in steps half as long, and the
p99 of paced requests beside one reader is 1.15 to 1.20 of what it was; without a limit 1.23."""
NEVER = sys.maxsize
PACED_BYTES = 384 * 1024
"""For slices at a pace; the kernel doubles it, or its own limit if that is less."""
UNPACED = (b"reno", b"cubic")
"""Congestion controls that send what the window lets; others are taken for paced."""
COLD_WINDOWS = 8
"""Found on the disk one behind the other. That a page is not in memory is said of one in a thousand
that are, while somebody else reads them."""


class SendBuffer:
    """That of one socket."""

    __slots__ = ("_cold_windows", "_is_default", "_socket", "widens_at_bytes")

    def __init__(self, sock: socket.socket, wanted_bytes: int) -> None:
        """May raise OSError."""
        self._socket = sock
        self._is_default = wanted_bytes == DEFAULT_BYTES
        self._cold_windows = 0
        self.widens_at_bytes = 0 if self._is_default else NEVER
        """Before a slice is sent behind so many bytes of slices, `widen` is to be called."""
        if self._is_default:
            _limit(sock, NOT_SENT_BYTES_MAX)
        elif wanted_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, wanted_bytes)

    def widen(self) -> None:
        """The first slice of a file is about to be sent, or one behind READ_BYTES of them."""
        is_first, self.widens_at_bytes = self.widens_at_bytes == 0, NEVER
        if not is_first:
            _limit(self._socket, READ_NOT_SENT_BYTES_MAX)
        elif _is_paced(self._socket):
            _limit(self._socket, 0)  # whatever the system's own limit is
            self._set(PACED_BYTES)
        else:
            _limit(self._socket, SLICES_NOT_SENT_BYTES_MAX)
            self.widens_at_bytes = READ_BYTES

    def sent_window(self, *, is_cold: bool) -> None:
        """A worker has looked whether a window of a file was in memory."""
        self._cold_windows = self._cold_windows + 1 if is_cold else 0
        if self._is_default and self._cold_windows == COLD_WINDOWS:
            self._is_default = False
            self._set(DEFAULT_BYTES)

    def _set(self, size: int) -> None:
        with suppress(OSError):  # the peer has gone, which the next send will tell
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)


def _is_paced(sock: socket.socket) -> bool:
    """Whether the kernel spreads what it sends over time; False where it does not say."""
    option = getattr(socket, "TCP_CONGESTION", None)
    if option is None:
        return False
    try:
        name = sock.getsockopt(socket.IPPROTO_TCP, option, 16)
    except OSError:  # of another family
        return False
    return name.rstrip(b"\0") not in UNPACED


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
