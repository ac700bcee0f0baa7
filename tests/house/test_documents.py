"""Links of the documents lead somewhere."""

from __future__ import annotations

import re

from tests.house.sources import ROOT, none_of

LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
HIDDEN = {".venv", "node_modules", "target", ".cache", ".git"}


def test_relative_links_resolve() -> None:
    broken = [
        f"{page.relative_to(ROOT)} -> {target}"
        for page in sorted(ROOT.rglob("*.md"))
        if not set(page.relative_to(ROOT).parts) & HIDDEN
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]

    none_of(broken, "the link leads nowhere")
