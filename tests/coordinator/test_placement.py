"""Java's String.hashCode, by values that Java gave."""

from __future__ import annotations

import pytest

from ottla.broker.coordinator.placement import REMEMBERED_LENGTH_MAX, java_hash, partition_for

INT_MIN_TEXT = "polygenelubricants"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("console-consumer-12345", 158455506),
        ("gr\u00fcppe", -1233264812),
        ("\U0001f600", 1772899),
        (INT_MIN_TEXT, -2147483648),
    ],
)
def test_hashes_are_javas(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_the_number_without_an_opposite_is_partition_0() -> None:
    assert partition_for(INT_MIN_TEXT, 50) == 0


def test_negative_hashes_are_turned() -> None:
    assert partition_for("gr\u00fcppe", 50) == 1233264812 % 50


def test_long_keys_have_their_partition_too() -> None:
    key = "x" * (REMEMBERED_LENGTH_MAX + 1)
    assert partition_for(key, 50) == abs(java_hash(key)) % 50
    assert partition_for(key[1:], 50) == abs(java_hash(key[1:])) % 50
