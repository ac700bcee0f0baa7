"""The areas that requests are drawn from, by name: seed -> sequence."""

from __future__ import annotations

from collections.abc import Callable

from tests.differences import admin, data, groups, shares, transactions, upgrades
from tests.differences.requests import Sequence

AREAS: dict[str, Callable[[int], Sequence]] = {
    "data": data.sequence,
    "admin": admin.sequence,
    "transactions": transactions.sequence,
    "groups": groups.sequence,
    "upgrades": upgrades.sequence,
    "shares": shares.sequence,
}
