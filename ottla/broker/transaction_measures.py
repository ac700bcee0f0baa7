"""Transactions on the metrics page: how many there are by state, and how they ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ottla.broker.coordinator.outcome import Counted
from ottla.broker.coordinator.transaction.states import NAMES
from ottla.broker.handlers.context import Rooms
from ottla.broker.telemetry.metrics import Registry, Sample

IDS_PER_TURN = 5000
"""Transactional ids gone through before others get the loop: a millisecond."""
ENDS = {Counted.TRANSACTION_COMMIT: "commit", Counted.TRANSACTION_ABORT: "abort"}
SHOWN_EVENTS = (
    "transaction_aborted",
    "transaction_producer_fenced",
    "transactional_id_expired",
)
"""Shown from the start, so that their first occurrence is an increase."""


def watch_transactions(registry: Registry, rooms: Rooms) -> None:
    """Registers what there is to see of transactional ids."""
    coordinator = rooms.transactions
    registry.watch(
        "ottla_transactional_ids",
        "Transactional ids by the state of their transaction.",
        lambda: _by_state(rooms),
    )
    registry.watch(
        "ottla_transactions_total",
        "Transactions that are over, by their result.",
        lambda: [({"result": name}, coordinator.counted[what]) for what, name in ENDS.items()],
        kind="counter",
    )
    registry.watch(
        "ottla_transaction_events_total",
        "What befell transactions and their producers, by the names of /events.",
        lambda: _events(rooms),
        kind="counter",
    )


def _by_state(rooms: Rooms) -> Iterator[Sample | None]:
    found: Counter[str] = Counter()
    left = IDS_PER_TURN
    for _, shard in list(rooms.transactions.loaded()):
        for transaction in list(shard.transactions.values()):
            found[NAMES[transaction.state]] += 1
            left -= 1
            if left <= 0:
                left = IDS_PER_TURN
                yield None
    for name in NAMES.values():
        yield {"state": name}, found[name]


def _events(rooms: Rooms) -> Iterable[Sample]:
    counts = rooms.transactions.history.counts
    for event in SHOWN_EVENTS:
        yield {"event": event}, counts[event]
