"""An answer that says only an error can be written, or there is none, in every served version."""

from __future__ import annotations

import pytest

from ottla.broker.handlers.served import HANDLERS
from ottla.broker.handlers.table import Entry
from ottla.protocol.api import SERVED, ApiKey
from ottla.protocol.errors import ErrorCode

ERROR = ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("key", HANDLERS, ids=lambda key: key.name)
def test_an_error_by_itself_can_be_written(key: ApiKey) -> None:
    entry = Entry(SERVED[key], HANDLERS[key])
    for version in range(entry.api.min_version, entry.api.max_version + 1):
        response = entry.error_response(ERROR, version)
        if response is not None:
            data, slices = entry.encoders[version](7, response)
            assert data
            assert slices == []


@pytest.mark.parametrize(
    ("key", "without", "having"),
    [(ApiKey.ELECT_LEADERS, 0, 1), (ApiKey.FIND_COORDINATOR, 4, 3)],
    ids=["from version 1 on", "up to version 3"],
)
def test_a_version_without_a_place_for_it_has_none(key: ApiKey, without: int, having: int) -> None:
    entry = Entry(SERVED[key], HANDLERS[key])

    assert entry.error_response(ERROR, without) is None
    response = entry.error_response(ERROR, having)
    assert response is not None
    assert response.error_code == ERROR
