"""Round trips against kio, an independent implementation, for all that it declares."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from ottla.protocol.codec import decoder
from ottla.protocol.schema import Message
from tests.protocol.kio_mapping import (
    encoded,
    kio_class,
    kio_decoded,
    kio_encoded,
    known_to_kio,
    messages,
    same,
)

KNOWN = known_to_kio()


def test_kio_knows_most_messages() -> None:
    assert len(KNOWN) > 550


@pytest.mark.parametrize(
    ("cls", "version"), KNOWN, ids=[f"{cls.__name__}-{version}" for cls, version in KNOWN]
)
def test_round_trip(cls: type[Message], version: int) -> None:
    """What we encode kio decodes to the same values, and what it encodes again is decoded by us."""
    theirs_class = kio_class(cls, version)

    @settings(
        max_examples=6,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(message=messages(cls, version, theirs_class))
    def round_trip(message: Any) -> None:
        data = encoded(message, version)
        theirs, size = kio_decoded(theirs_class, data)
        again = kio_encoded(theirs)
        ours, position = decoder(cls, version)(memoryview(again), 0)

        assert size == len(data)
        assert same(message, theirs, version)
        assert again == data
        assert ours == message
        assert position == len(again)

    round_trip()
