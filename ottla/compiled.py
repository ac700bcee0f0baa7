"""Whether the hot path of this install is compiled: `hatch_build.py` does that where it can."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

BESIDE = Path(__file__).parent / "broker" / "log"


def build() -> str:
    """`compiled` or `interpreted`: by what this Python finds beside the sources, for to import them
    takes a tenth of a broker's start."""
    is_compiled = any((BESIDE / f"segment{suffix}").exists() for suffix in EXTENSION_SUFFIXES)
    return "compiled" if is_compiled else "interpreted"
