"""Client quotas in virtual time: whose quota counts, how long who waits, and what comes of it."""

from __future__ import annotations

import random

import pytest

from ottla.broker.controller.quota_accounts import IDLE_MS, UNLIMITED, WAIT_MS_MAX, Account
from ottla.broker.handlers.answers import Pending
from ottla.broker.metadata.image import QuotaEntity
from ottla.broker.network.metering import HUNDREDTHS, AnswerTime, Meter
from ottla.broker.network.quotas import ClientQuotas, Resource
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.share_group import ShareFetchRequest
from ottla.testing.clock import SimClock

PRODUCED, FETCHED, TIME = Resource.PRODUCED, Resource.FETCHED, Resource.TIME
SECONDS = 30
WINDOW_MS = 1000


def _entity(user: str | None = "", client: str | None = "") -> QuotaEntity:
    """The default of a kind is None; "" leaves the kind out."""
    parts = (("client-id", client), ("user", user))
    return tuple((kind, name) for kind, name in parts if name != "")


def _limiting(**limits: float) -> ClientQuotas:
    quotas = ClientQuotas(WINDOW_MS)
    quotas.update({_entity(user="u"): limits})
    return quotas


# What counts first stands first; each row: the entity, and who shares its account.
PRECEDENCE: list[tuple[QuotaEntity, tuple[str | None, str | None]]] = [
    (_entity("u", "c"), ("u", "c")),
    (_entity("u", None), ("u", "c")),
    (_entity("u"), ("u", None)),
    (_entity(None, "c"), ("u", "c")),
    (_entity(None, None), ("u", "c")),
    (_entity(None), ("u", None)),
    (_entity(client="c"), (None, "c")),
    (_entity(client=None), (None, "c")),
]


def test_the_most_special_quota_counts() -> None:
    for index, (_, payers) in enumerate(PRECEDENCE):
        quotas = ClientQuotas(WINDOW_MS)
        others = {_entity("x"): 1.0, _entity("x", "c"): 1.0, _entity(client="x"): 1.0}
        set_now = {entity: 10.0 + at for at, (entity, _) in enumerate(PRECEDENCE) if at >= index}
        quotas.update(
            {entity: {PRODUCED.value: limit} for entity, limit in (others | set_now).items()}
        )

        assert quotas.account(PRODUCED, "u", "c") == Account(*payers, 10.0 + index)
        assert quotas.account(FETCHED, "u", "c") is None


def test_an_empty_client_id_has_no_quota_of_its_own() -> None:
    quotas = ClientQuotas(WINDOW_MS)
    quotas.update({_entity(client=None): {TIME.value: 5.0}})
    assert quotas.account(TIME, "u", "") is None
    assert quotas.charge(TIME, "u", "", 10_000, 0) == 0

    quotas.update({_entity("u", None): {TIME.value: 5.0}, _entity("u"): {TIME.value: 6.0}})
    assert quotas.account(TIME, "u", "") == Account("u", None, 6.0)


def test_who_is_over_waits_until_it_owes_nothing() -> None:
    quotas = _limiting(producer_byte_rate=1000.0)
    rows = [
        (0, 1000, 0),
        (0, 500, 500),
        (400, 0, 100),
        (500, 0, 0),
        (600, 100, 0),
        (600, 1, 1),
        (1601, 1000, 0),
        (1601, 5000, 5000),
        (90_000, 1000, 0),
        (90_000, 1, 1),
    ]

    waits = [
        (at_ms, value, quotas.charge(PRODUCED, "u", "c", value, 70_000 + at_ms))
        for at_ms, value, _ in rows
    ]

    assert waits == rows


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [1_000, 64_000, 1_000_000])
@pytest.mark.parametrize("resource", [PRODUCED, FETCHED])
def test_a_greedy_client_gets_its_limit(resource: Resource, seed: int, size: int) -> None:
    """It sends again as soon as it may: in any 30 s, the first too, it is within 10 %."""
    rng = random.Random(seed)
    limit = 1_000_000.0
    quotas = _limiting(**{resource.value: limit})
    now_ms = float(rng.randrange(100_000))
    begin_ms, end_ms = now_ms, now_ms + 4 * SECONDS * 1000
    sent: list[tuple[float, float]] = []
    while now_ms < end_ms:
        value = size * rng.uniform(0.5, 1.5)
        now_ms += value / 100_000 + 0.2  # a link of 100 MB/s
        sent.append((now_ms - begin_ms, value))
        now_ms += quotas.charge(resource, "u", "c", value, int(now_ms))

    for first_ms in range(0, 3 * SECONDS * 1000, 500):
        last_ms = first_ms + SECONDS * 1000
        total = sum(value for at_ms, value in sent if first_ms <= at_ms < last_ms)
        assert total == pytest.approx(limit * SECONDS, rel=0.1)


@pytest.mark.parametrize("handled_s", [0.0002, 0.003, 0.04])
def test_a_greedy_client_gets_its_share_of_the_time(handled_s: float) -> None:
    """Half of it goes into writing the answers, which the next one tells of."""
    share = 0.05
    quotas = ClientQuotas(WINDOW_MS)
    quotas.update({_entity(client="c"): {TIME.value: share * HUNDREDTHS}})
    clock = SimClock()
    meter = Meter(quotas, clock, AnswerTime())
    taken_s: list[tuple[float, float]] = []
    now_ms = 0.0
    while now_ms < 2 * SECONDS * 1000:
        clock.advance(int(now_ms) - clock.monotonic_ms())
        wait_ms = meter.arrived(ApiKey.METADATA, MetadataRequest(), "c", 20)
        pending = Pending()
        meter.waits(pending, handled_s / 2)
        pending.response = MetadataResponse()
        wait_ms += meter.leaves(pending)
        assert pending.response.throttle_time_ms == wait_ms
        meter.left(handled_s / 2)
        taken_s.append((now_ms, handled_s))
        now_ms += handled_s * 1000 + wait_ms

    for first_ms in (0, 15_000, 29_000):
        last_ms = first_ms + SECONDS * 1000
        total_s = sum(seconds for at_ms, seconds in taken_s if first_ms <= at_ms < last_ms)
        assert total_s == pytest.approx(share * SECONDS, rel=0.1)


def _time_quotas(*client_ids: str) -> ClientQuotas:
    """A percent each, which is 1 in the first window; a hundredth of a second is 1."""
    quotas = ClientQuotas(WINDOW_MS)
    quotas.update({_entity(client=one): {TIME.value: 1.0} for one in client_ids})
    return quotas


def _owed_ms(quotas: ClientQuotas, client_id: str) -> int:
    return quotas.charge(TIME, "u", client_id, 0.0, 0)


def test_an_answer_that_another_request_completes_is_its_own_clients_to_pay() -> None:
    quotas, answered = _time_quotas("writer", "reader"), AnswerTime()
    writer, reader = (Meter(quotas, SimClock(), answered) for _ in range(2))
    fetched, produced = Pending(), Pending()
    fetched.response = produced.response = MetadataResponse()
    reader.arrived(ApiKey.METADATA, MetadataRequest(), "reader", 20)
    reader.waits(fetched, 0.0)

    writer.arrived(ApiKey.METADATA, MetadataRequest(), "writer", 20)
    reader.leaves(fetched)
    reader.left(0.012)
    writer.waits(produced, 0.012 + 0.011)
    writer.leaves(produced)
    writer.left(0.0)

    assert _owed_ms(quotas, "reader") == 200
    assert _owed_ms(quotas, "writer") == 100


def test_who_hangs_up_before_its_answer_pays_for_the_request() -> None:
    quotas = _time_quotas("c")
    meter = Meter(quotas, SimClock(), AnswerTime())
    meter.arrived(ApiKey.METADATA, MetadataRequest(), "c", 20)
    meter.waits(Pending(), 0.015)
    assert _owed_ms(quotas, "c") == 0

    meter.lost()
    meter.lost()

    assert _owed_ms(quotas, "c") == 500


def test_who_was_told_to_wait_is_known_by_quota_and_the_longest_come_first() -> None:
    quotas = ClientQuotas(WINDOW_MS)
    quotas.update({_entity(client=None): {PRODUCED.value: 1000.0, TIME.value: 1.0}})
    clock = SimClock()
    for client_id, size in (("a", 1_500), ("b", 4_000), ("c", 1_000), ("a", 500)):
        meter = Meter(quotas, clock, AnswerTime())
        meter.arrived(ApiKey.PRODUCE, ProduceRequest(), client_id, size)
    assert quotas.longest_waits(9) == [
        (PRODUCED, (None, "b"), 3000),
        (PRODUCED, (None, "a"), 500 + 1000),
    ]

    meter.arrived(ApiKey.METADATA, MetadataRequest(), "slow", 20)
    pending = Pending()
    pending.response = MetadataResponse()
    meter.waits(pending, 0.015)
    meter.leaves(pending)
    meter.left(0.010)

    assert quotas.longest_waits(1) == [
        (PRODUCED, (None, "b"), 3000),
        (TIME, (None, "slow"), pending.response.throttle_time_ms),
    ]
    quotas.forget_idle(clock.monotonic_ms() + IDLE_MS + 1)
    assert quotas.longest_waits(9) == []


def test_two_clients_of_a_user_share_its_account_and_others_have_their_own() -> None:
    quotas = ClientQuotas(WINDOW_MS)
    quotas.update({_entity(None): {PRODUCED.value: 1000.0}})
    assert quotas.charge(PRODUCED, "u", "a", 1_000, 0) == 0
    assert quotas.charge(PRODUCED, "u", "b", 100, 0) == 100
    assert quotas.charge(PRODUCED, "other", "a", 1_000, 0) == 0


def test_time_makes_nobody_wait_for_more_than_a_window() -> None:
    quotas = _limiting(request_percentage=1.0)

    assert quotas.charge(TIME, "u", "c", 500.0, 0) == 1000


def test_a_fetch_is_cut_to_what_a_new_client_may_have() -> None:
    quotas = _limiting(consumer_byte_rate=2_000.0)

    assert quotas.at_most(FETCHED, "u", "c") == 2_000
    assert quotas.at_most(FETCHED, "other", "c") is None
    assert quotas.charge(FETCHED, "u", "c", 2_000, 5) == 0


@pytest.mark.parametrize(("asked", "left"), [(0, 0), (5, 5), (9_000, 2_000)])
def test_a_quota_only_lowers_what_a_fetch_asks_for(asked: int, left: int) -> None:
    """Who renews a lock has to ask for 0 bytes."""
    quotas = ClientQuotas(WINDOW_MS)
    quotas.update({_entity(client="c"): {FETCHED.value: 2_000.0}})
    request = ShareFetchRequest(max_bytes=asked, is_renew_ack=True)

    Meter(quotas, SimClock(), AnswerTime()).arrived(ApiKey.SHARE_FETCH, request, "c", 100)

    assert request.max_bytes == left


def test_a_change_counts_at_once_and_forgives_nothing() -> None:
    quotas = _limiting(producer_byte_rate=1000.0)
    assert quotas.charge(PRODUCED, "u", "c", 2_000, 0) == 1000

    quotas.update({_entity(user="u"): {PRODUCED.value: 2000.0}})
    assert quotas.charge(PRODUCED, "u", "c", 1_000, 0) == 1000

    quotas.update({})
    assert not quotas.enabled
    assert quotas.charge(PRODUCED, "u", "c", 1_000_000, 1) == 0


def test_a_longer_window_is_more_at_once() -> None:
    quotas = ClientQuotas(5000)
    quotas.update({_entity(user="u"): {PRODUCED.value: 1000.0}})

    assert quotas.charge(PRODUCED, "u", "c", 5_000, 0) == 0
    assert quotas.charge(PRODUCED, "u", "c", 100, 0) == 100


def test_accounts_of_who_is_gone_are_dropped() -> None:
    quotas = _limiting(producer_byte_rate=1000.0)
    quotas.charge(PRODUCED, "u", "c", 1, 7)
    quotas.forget_idle(7 + IDLE_MS)
    assert repr(quotas) == "<ClientQuotas [<Accounts producer_byte_rate limits=1 held=1>]>"

    quotas.forget_idle(8 + IDLE_MS)

    assert repr(quotas) == "<ClientQuotas [<Accounts producer_byte_rate limits=1 held=0>]>"


@pytest.mark.parametrize("limit", [UNLIMITED, 1e305, 1e308, float("inf"), float("nan")])
@pytest.mark.parametrize("resource", list(Resource))
def test_a_quota_without_end_limits_nothing(resource: Resource, limit: float) -> None:
    quotas = _limiting(**{resource.value: limit})
    for now_ms in (0, 0, 1000):
        assert quotas.charge(resource, "u", "c", 1e12, now_ms) == 0
    assert quotas.at_most(resource, "u", "c") is None


def test_a_quota_of_next_to_nothing_lets_wait_as_long_as_can_be_said() -> None:
    quotas = _limiting(request_percentage=5e-324, producer_byte_rate=5e-324)
    assert quotas.charge(TIME, "u", "c", 1.0, 0) == WINDOW_MS
    assert quotas.charge(PRODUCED, "u", "c", 1.0, 0) == WAIT_MS_MAX
