"""Which codecs there are: a batch's header names one, and most who look at it never decompress.

What does that is `compression.py`, whose library takes 20 ms to load and 2 MB.
"""

from __future__ import annotations

from enum import IntEnum


class Codec(IntEnum):
    """The codec bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
