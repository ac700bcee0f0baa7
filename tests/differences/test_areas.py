"""Sequences come of their seed alone, and each of their requests can be sent."""

from __future__ import annotations

import pytest

from ottla.protocol.api import SERVED, ApiKey
from ottla.protocol.frame import encode_request
from tests.differences.areas import AREAS
from tests.differences.meanings import Meanings
from tests.differences.requests import Request, message, requests_of, resolved

SEEDS = 60
SELDOM = {"data": 10, "admin": 25, "transactions": 15, "groups": 17, "upgrades": 11, "shares": 12}
"""So many APIs at least are asked in so many sequences."""


def _frame(request: Request) -> bytes:
    meanings = Meanings("d000001x", 1_700_000_000_000, "/data", lambda topic, partition: (2, 9))
    body = resolved(request.body, meanings.of, meanings.prefix)
    out, _ = encode_request(
        message(request, body), request.version, correlation_id=1, client_id="c"
    )
    return bytes(out)


@pytest.mark.parametrize("area", AREAS)
def test_the_same_seed_is_the_same_sequence(area: str) -> None:
    for seed in range(SEEDS):
        assert AREAS[area](seed) == AREAS[area](seed)

    assert len({str(AREAS[area](seed)) for seed in range(SEEDS)}) == SEEDS


@pytest.mark.parametrize("area", AREAS)
def test_every_request_can_be_sent(area: str) -> None:
    asked: set[ApiKey] = set()
    for seed in range(SEEDS):
        for request in requests_of(AREAS[area](seed)):
            served = SERVED[request.api]
            assert served.min_version <= request.version <= served.max_version
            assert len(_frame(request)) > 8
            asked.add(request.api)

    assert len(asked) >= SELDOM[area]


@pytest.mark.parametrize("seed", [8501, 8508])
def test_no_epoch_is_drawn_that_has_no_room(seed: int) -> None:
    for request in requests_of(AREAS["data"](seed)):
        assert _frame(request)


@pytest.mark.parametrize("area", AREAS)
def test_what_is_changed_is_the_sequences_own(area: str) -> None:
    """Topics of the coordinators, and of other sequences, are only looked at."""
    changing = (ApiKey.CREATE_PARTITIONS, ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    for seed in range(SEEDS):
        for request in requests_of(AREAS[area](seed)):
            if request.api in changing:
                names = [topic["name"] for topic in request.body["topics"]]
            elif request.api is ApiKey.DELETE_TOPICS:
                names = list(request.body["topic_names"])
                names += [one["name"] for one in request.body.get("topics", []) if one["name"]]
            else:
                continue
            assert not [name for name in names if name.startswith("__")]
