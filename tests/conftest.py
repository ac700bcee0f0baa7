"""What holds for all tests: some can be run on the sources alone."""

from __future__ import annotations

import pytest

from ottla.compiled import build

SKIPPED = pytest.mark.skip(reason="a compiled module calls its own, whatever a test puts there")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if build() == "interpreted":
        return
    for item in items:
        if item.get_closest_marker("interpreted"):
            item.add_marker(SKIPPED)
