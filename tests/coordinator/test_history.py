"""How much of what happens to groups the broker's log takes; the ring keeps all of it."""

from __future__ import annotations

from ottla.broker.coordinator.history import INTERVAL_MS, LINES_MAX, History
from ottla.broker.coordinator.outcome import Told
from ottla.testing.clock import SimClock
from tests.log.events import RecordedEvents

TOO_MANY = 40


def test_a_flood_is_written_up_to_a_limit_and_counted_beyond_it() -> None:
    clock, events = SimClock(), RecordedEvents()
    history = History(clock, events)
    for number in range(LINES_MAX + TOO_MANY):
        history.add([Told("group_rebalances", f"g{number}", "again", {})])

    assert events.names.count("group_rebalances") == LINES_MAX
    assert events.names.count("group_events_too_many") == 1
    assert len(history.of_group(None)) == LINES_MAX + TOO_MANY
    assert history.counts["group_rebalances"] == LINES_MAX + TOO_MANY

    clock.advance(INTERVAL_MS)
    history.add([Told("group_rebalances", "g", "again", {})])
    assert events.names.count("group_rebalances") == LINES_MAX + 1
    assert events.fields("group_events_left_out") == {"count": TOO_MANY}


def test_a_quiet_broker_writes_every_event() -> None:
    clock, events = SimClock(), RecordedEvents()
    history = History(clock, events)
    for _ in range(3):
        for _ in range(LINES_MAX):
            history.add([Told("group_member_left", "g", "it gives no reason", {})])
        clock.advance(INTERVAL_MS)

    assert events.names.count("group_member_left") == 3 * LINES_MAX
    assert events.names.count("group_events_too_many") == 0
    assert events.names.count("group_events_left_out") == 0


def test_what_follows_every_rebalance_takes_no_room() -> None:
    events = RecordedEvents()
    history = History(SimClock(), events)
    for _ in range(LINES_MAX):
        history.add([Told("group_rebalances", "g", "again", {}), Told("group_stable", "g", "", {})])
    assert events.names.count("group_rebalances") == LINES_MAX
    assert events.names.count("group_events_too_many") == 0
