"""What is asked of the kernel for a client's socket when it has connected."""

from __future__ import annotations

import socket
from typing import Final

RECEIVE_BUFFER_DEFAULT_BYTES: Final = 102400
"""Kafka's socket.receive.buffer.bytes. Nobody asked for just this size: where the kernel begins
with as much (Linux does) it is left to grow by itself; any other size is set as it is."""


def tune(sock: socket.socket, receive_buffer_bytes: int) -> None:
    """TCP_NODELAY because answers are small; keepalive finds peers that vanished (row 41).

    OSError where the peer has gone already, on a system that tells of that so early.
    """
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    # Who sets the size ends the kernel's own sizing, which doubles the CPU of 1 MB batches.
    has_enough = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= receive_buffer_bytes
    is_default = receive_buffer_bytes == RECEIVE_BUFFER_DEFAULT_BYTES
    if receive_buffer_bytes > 0 and not (is_default and has_enough):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
