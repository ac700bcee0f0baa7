"""What a row of Apache Kafka's commands complains of."""

from __future__ import annotations

import pytest

from tests.conformance.command_process import Row, Said, among, refused, whole

OUTPUT = "GROUP   STATE\n\norders  Stable\n"
COMMAND = ("Tool",)


@pytest.mark.parametrize(
    "row",
    [
        whole(COMMAND, "orders Stable", "GROUP STATE"),
        whole(COMMAND, "GROUP STATE", "orders ..."),
        among(COMMAND, "orders Stable"),
        among(COMMAND, lacks="Empty"),
    ],
)
def test_a_row_that_holds_says_nothing(row: Row) -> None:
    assert row.complaint(Said(0, OUTPUT)) == ""


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (whole(COMMAND), "it also says 'GROUP STATE'"),
        (whole(COMMAND, "GROUP STATE"), "it also says 'orders Stable'"),
        (among(COMMAND, "orders Stab"), "it does not say 'orders Stab'"),
        (among(COMMAND, "orders Stable", "orders Stable"), "it does not say 'orders Stable'"),
        (among(COMMAND, lacks="orders"), "it says ['orders']"),
        (refused(COMMAND, "orders Stable"), "its status is 0"),
    ],
)
def test_what_is_missing_too_much_or_forbidden_is_named(row: Row, complaint: str) -> None:
    assert row.complaint(Said(0, OUTPUT)) == complaint


def test_a_status_that_nobody_expects_is_named() -> None:
    assert among(COMMAND, "orders Stable").complaint(Said(1, OUTPUT)) == "its status is 1"
