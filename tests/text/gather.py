"""Gathers real text from this machine into one file: documentation, package lists, sources.

Empty lines are left out, since kcat drops them; so are files with a NUL byte, which are not text.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
import sysconfig
import zlib
from collections.abc import Iterator
from pathlib import Path

# What people wrote comes first, what machines listed next, sources fill up.
PLACES = (
    Path("/usr/share/doc"),
    Path("/usr/share/common-licenses"),
    Path("/usr/share/man"),
    Path("/var/lib/dpkg/info"),
    Path("/var/lib/apt/lists"),
    Path("/usr/share/perl"),
    Path(sysconfig.get_path("stdlib")),
    Path(sys.prefix) / "lib",
    Path("/usr/lib"),
    Path("/usr/include"),
    Path("/usr/local"),
)
ENDINGS = {
    "",
    ".c",
    ".conffiles",
    ".copyright",
    ".css",
    ".go",
    ".gz",
    ".h",
    ".html",
    ".js",
    ".json",
    ".list",
    ".md",
    ".md5sums",
    ".pl",
    ".pm",
    ".py",
    ".pyi",
    ".rst",
    ".txt",
}
FILE_BYTES_MAX = 20_000_000
# Below Kafka's limit for one record, 1,000,012 bytes, headers included.
LINE_BYTES_MAX = 900_000


def _text(path: Path) -> bytes:
    """The content of a file, unpacked; empty when it is not text or may not be read."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > FILE_BYTES_MAX:
            return b""
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return b""
    return b"" if b"\0" in data else data


def _files() -> Iterator[Path]:
    seen: set[Path] = set()
    for place in PLACES:
        for path in sorted(place.rglob("*")):
            if path.suffix in ENDINGS and path not in seen:
                seen.add(path)
                yield path


def gather(target: Path, size: int) -> tuple[int, int, str]:
    """Writes at least `size` bytes of lines; returns (bytes, lines, sha256 of the file).

    Raises RuntimeError when the machine has less text.
    """
    digest = hashlib.sha256()
    written = lines = 0
    with target.open("wb") as out:
        for path in _files():
            kept = [line for line in _text(path).split(b"\n") if 0 < len(line) <= LINE_BYTES_MAX]
            data = b"".join(line + b"\n" for line in kept)
            out.write(data)
            digest.update(data)
            written += len(data)
            lines += len(kept)
            if written >= size:
                return written, lines, digest.hexdigest()
    raise RuntimeError(f"this machine has {written} bytes of text, {size} are wanted")
