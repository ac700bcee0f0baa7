"""What the coordinator is asked to write of a share partition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.broker.coordinator.share.state import SharePartitionKey
from ottla.broker.share.store import ShareStore


def test_no_more_settled_records_are_told_than_can_be() -> None:
    asked: list[Any] = []
    shard = SimpleNamespace(write=lambda _key, request, *_: asked.append(request))
    runner = SimpleNamespace(perform=lambda _work: None, now=lambda: None)
    coordinator: Any = SimpleNamespace(runner_with_room=lambda _place: (runner, shard))
    store = ShareStore(coordinator, loop=None)  # type: ignore[arg-type]

    store.write(
        SharePartitionKey("g", bytes(16), 0),
        [],
        state_epoch=0,
        leader_epoch=0,
        start_offset=0,
        settled_count=2**40,
        then=lambda _error: None,
    )

    assert [one.delivery_complete_count for one in asked] == [2**31 - 1]
