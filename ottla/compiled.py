"""Whether the hot path of this install is compiled: `hatch_build.py` does that where it can."""

from __future__ import annotations

from pathlib import Path


def build() -> str:
    """`compiled` or `interpreted`: by what lies beside the sources, for to import them takes a
    tenth of a broker's start."""
    libraries = Path(__file__).parent.glob("broker/log/segment.*.so")
    return "compiled" if any(libraries) else "interpreted"
