"""How much of what happens to groups the broker's log takes."""

from __future__ import annotations

from ottla.broker.coordinator.history import INTERVAL_MS, LINES_MAX, History
from ottla.broker.coordinator.outcome import Moment, Told
from ottla.broker.telemetry.shown import CHARS_MAX, ITEMS_MAX
from ottla.testing.clock import SimClock
from tests.log.events import RecordedEvents

TOO_MANY = 40


def now_of(clock: SimClock) -> Moment:
    return Moment(clock.monotonic_ms(), clock.wall_ms())


def test_a_group_s_flood_is_written_up_to_a_limit_and_counted_beyond_it() -> None:
    clock, events = SimClock(), RecordedEvents()
    history = History(events)
    for _ in range(LINES_MAX + TOO_MANY):
        history.add([Told("group_rebalances", "loops", "again", {})], now_of(clock))

    assert events.names.count("group_rebalances") == LINES_MAX
    assert events.names.count("group_events_too_many") == 1
    assert events.fields("group_events_too_many")["group"] == "loops"
    assert len(history.of_group("loops")) == LINES_MAX + TOO_MANY
    assert history.counts["group_rebalances"] == LINES_MAX + TOO_MANY

    clock.advance(INTERVAL_MS)
    history.add([Told("group_rebalances", "loops", "again", {})], now_of(clock))
    assert events.names.count("group_rebalances") == LINES_MAX + 1
    assert events.fields("group_events_left_out") == {"count": TOO_MANY, "groups": 1}


def test_the_flood_of_one_group_hides_no_other() -> None:
    clock, events = SimClock(), RecordedEvents()
    history = History(events)
    for _ in range(LINES_MAX + TOO_MANY):
        history.add([Told("group_rebalances", "loops", "again", {})], now_of(clock))
    history.add([Told("group_member_evicted", "quiet", "its session is over", {})], now_of(clock))
    assert events.fields("group_member_evicted")["group"] == "quiet"


def test_a_group_at_rest_is_written_in_full() -> None:
    clock, events = SimClock(), RecordedEvents()
    history = History(events)
    for _ in range(3):
        for _ in range(LINES_MAX):
            history.add([Told("group_member_left", "g", "it gives no reason", {})], now_of(clock))
        clock.advance(INTERVAL_MS)

    assert events.names.count("group_member_left") == 3 * LINES_MAX
    assert events.names.count("group_events_too_many") == 0
    assert events.names.count("group_events_left_out") == 0


def test_what_follows_every_rebalance_takes_no_room() -> None:
    clock, events = SimClock(), RecordedEvents()
    history = History(events)
    for _ in range(LINES_MAX):
        history.add(
            [Told("group_rebalances", "g", "again", {}), Told("group_stable", "g", "", {})],
            now_of(clock),
        )
    assert events.names.count("group_rebalances") == LINES_MAX
    assert events.names.count("group_events_too_many") == 0


def test_what_a_client_made_long_is_cut_in_the_ring_and_in_the_log() -> None:
    clock, events = SimClock(), RecordedEvents()
    history = History(events)
    group_id, names = "g" * 30_000, ["p" * 30_000] * 1000
    told = Told("group_member_refused", group_id, "r" * 30_000, {"protocols": names, "members": 3})
    history.add([told], now_of(clock))
    (kept,) = history.told_of(group_id)

    cut = {one: one * CHARS_MAX + "..." for one in "gpr"}
    assert (kept["group"], kept["reason"], kept["members"]) == (cut["g"], cut["r"], 3)
    assert kept["protocols"] == [cut["p"]] * ITEMS_MAX + [f"and {1000 - ITEMS_MAX} more"]
    assert events.fields("group_member_refused") == {
        "group": cut["g"],
        "reason": cut["r"],
        "protocols": kept["protocols"],
        "members": 3,
    }
    assert history.told_of("g" * CHARS_MAX) == []
