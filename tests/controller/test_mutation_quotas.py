"""The quota of topic changes in virtual time: who is refused, who waits, and what it costs."""

from __future__ import annotations

import random

import pytest

from ottla.broker.controller.mutation_quotas import (
    MUTATION_RATE,
    MutationQuotas,
    Mutations,
)
from ottla.broker.controller.partitions import create_partitions
from ottla.broker.controller.quota_accounts import IDLE_MS, UNLIMITED, WAIT_MS_MAX
from ottla.broker.controller.topics import create_topics, delete_topics
from ottla.broker.metadata.image import MetadataImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from tests.controller.clusters import applied, cluster, config

EXCEEDED_CODE = int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
WINDOW_MS = 10_000
RATE = 2.0
BURST = 20
ALONE = cluster(1)
Topic = CreateTopicsRequest.CreatableTopic


def _quotas(rate: float = RATE) -> MutationQuotas:
    quotas = MutationQuotas(WINDOW_MS)
    quotas.update({(("user", "u"),): {MUTATION_RATE: rate, "producer_byte_rate": 1.0}})
    return quotas


def _of(quotas: MutationQuotas, now_ms: int = 0, *, is_strict: bool = True) -> Mutations:
    taken = quotas.of("u", "c", is_strict=is_strict, now_ms=now_ms)
    assert taken is not None
    return taken


def _is_refused(taken: Mutations, partitions: int) -> bool:
    try:
        taken.charge(partitions)
    except KafkaError as error:
        return (error.code, error.message) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, None)
    return False


def test_who_has_no_quota_is_not_counted() -> None:
    assert _quotas().of("other", "c", is_strict=True, now_ms=0) is None


def test_a_strict_request_takes_any_number_and_the_next_is_refused_until_it_is_paid() -> None:
    """Rows: when, partitions, whether refused, for how long to wait."""
    quotas = _quotas()
    rows = [
        (0, BURST, False, 0),
        (0, 30, False, 0),
        (0, 1, True, 15_000),
        (5_000, 1, True, 10_000),
        (14_999, 1, True, 1),
        (15_000, 1, False, 0),
        (15_000, 1, True, 500),
        (100_000, BURST + 1, False, 0),
        (100_000, 1, True, 500),
    ]

    for now_ms, partitions, is_refused, wait_ms in rows:
        taken = _of(quotas, now_ms)
        assert _is_refused(taken, partitions) == is_refused
        assert taken.wait_ms(now_ms) == wait_ms


def test_an_older_request_is_never_refused_and_waits_for_what_it_took() -> None:
    quotas = _quotas()
    rows = [(0, BURST, 0), (0, 4, 2_000), (0, 4, 4_000), (4_000, 0, 0), (4_000, 1, 500)]

    for now_ms, partitions, wait_ms in rows:
        taken = _of(quotas, now_ms, is_strict=False)
        assert not _is_refused(taken, partitions)
        assert taken.wait_ms(now_ms) == wait_ms


def test_the_wait_goes_by_while_the_change_is_made() -> None:
    taken = _of(_quotas(), 50, is_strict=False)
    taken.charge(BURST + 2)

    assert [taken.wait_ms(now_ms) for now_ms in (50, 350, 1_050, 9_000)] == [1_000, 700, 0, 0]


def test_an_answer_can_say_how_long_it_is() -> None:
    taken = _of(_quotas(0.001), is_strict=False)
    taken.charge(10_000)

    assert taken.wait_ms(0) == WAIT_MS_MAX


def test_a_change_counts_at_once_and_forgives_nothing() -> None:
    quotas = _quotas()
    _of(quotas).charge(BURST + 10)
    quotas.update({(("user", "u"),): {MUTATION_RATE: 10.0}})
    taken = _of(quotas)

    assert _is_refused(taken, 1)
    assert taken.wait_ms(0) == 1_000

    quotas.update({})
    assert quotas.of("u", "c", is_strict=True, now_ms=0) is None


def test_accounts_of_who_is_gone_are_dropped() -> None:
    quotas = _quotas()
    _of(quotas, 7).charge(1)
    quotas.forget_idle(7 + IDLE_MS)
    assert repr(quotas) == "<MutationQuotas <Accounts controller_mutation_rate limits=1 held=1>>"

    quotas.forget_idle(8 + IDLE_MS)

    assert repr(quotas) == "<MutationQuotas <Accounts controller_mutation_rate limits=1 held=0>>"


def _create(
    *topics: Topic, taken: Mutations, validate_only: bool = False
) -> tuple[MetadataImage, list[tuple[str, int, str | None]]]:
    records, response = create_topics(
        ALONE,
        CreateTopicsRequest(list(topics), validate_only=validate_only),
        config=config(),
        rng=random.Random(1),
        charge=taken.charge,
    )
    answers = [(one.name, one.error_code, one.error_message) for one in response.topics]
    return (applied(records, ALONE) if records else ALONE), answers


def test_topics_are_charged_by_their_partitions_in_their_order() -> None:
    image, answers = _create(
        Topic("bad", 0, 1), Topic("a", BURST, 1), Topic("b", 1, 1), Topic("c", 1, 1),
        taken=_of(_quotas()),
    )  # fmt: skip

    assert [code for _, code, _ in answers] == [37, 0, 0, EXCEEDED_CODE]
    assert answers[-1] == ("c", EXCEEDED_CODE, None)
    assert list(image.topics.by_name) == ["a", "b"]


def test_what_is_only_validated_is_charged_all_the_same() -> None:
    """As Kafka 4.3.1 does."""
    quotas = _quotas()
    _create(Topic("a", BURST + 1, 1), taken=_of(quotas), validate_only=True)

    assert _is_refused(_of(quotas), 1)


def test_deletions_are_charged_and_refused_one_by_one() -> None:
    quotas = _quotas()
    image, _ = _create(Topic("a", BURST + 1, 1), Topic("b", 1, 1), taken=_of(_quotas(100)))
    names = ["unknown", "a", "b"]
    records, response = delete_topics(
        image, DeleteTopicsRequest(topic_names=names), version=5, charge=_of(quotas).charge
    )

    codes = {one.name: (one.error_code, one.error_message) for one in response.responses}
    assert codes["a"] == (0, None)
    assert codes["b"] == (EXCEEDED_CODE, None)
    assert len(records) == 1
    _of(quotas, 500).charge(1)  # what was refused has cost nothing


@pytest.mark.parametrize(("count", "code"), [(1, 37), (3, 0)])
def test_growth_is_charged_by_what_is_added(count: int, code: int) -> None:
    quotas = _quotas()
    image, _ = _create(Topic("a", 1, 1), taken=_of(_quotas()))
    _of(quotas).charge(BURST - 1)
    wanted = CreatePartitionsRequest.CreatePartitionsTopic("a", count, None)
    _, response = create_partitions(
        image, CreatePartitionsRequest([wanted]), rng=random.Random(1), charge=_of(quotas).charge
    )

    assert response.results[0].error_code == code
    assert _is_refused(_of(quotas), 1) == (code == 0)


@pytest.mark.parametrize("rate", [UNLIMITED, 1e305, 1e308, float("inf")])
def test_a_quota_without_end_limits_nothing(rate: float) -> None:
    assert _quotas(rate).of("u", "c", is_strict=True, now_ms=0) is None


def test_a_quota_of_next_to_nothing_lets_wait_as_long_as_can_be_said() -> None:
    taken = _of(_quotas(5e-324), is_strict=False)
    taken.charge(1)
    assert taken.wait_ms(0) == WAIT_MS_MAX
