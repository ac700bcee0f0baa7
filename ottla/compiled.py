"""Whether the hot path of this install is compiled: `hatch_build.py` does that where it can."""

from __future__ import annotations

from pathlib import Path


def build() -> str:
    """`compiled` or `interpreted`: by what lies beside the sources, for to import them takes a
    tenth of a broker's start."""
    files = Path(__file__).parent.glob("broker/log/segment.*")
    return "compiled" if any(file.suffix in (".so", ".pyd") for file in files) else "interpreted"
