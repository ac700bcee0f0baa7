"""Incremental fetch sessions: every row of observed section 5, and the slots."""

from __future__ import annotations

import random

import pytest

from ottla.broker.replication.fetch_session import (
    EPOCH_MAX,
    SPARE_PARTITIONS,
    STALE_MS,
    FetchSessions,
    Resolved,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest


def request(
    session_id: int, epoch: int, partitions: list[int], forgotten: list[int] | None = None
) -> FetchRequest:
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchRequest.FetchTopic(
                "t", partitions=[FetchRequest.FetchPartition(p) for p in partitions]
            )
        ]
        if partitions
        else [],
        forgotten_topics_data=[FetchRequest.ForgottenTopic("t", partitions=forgotten)]
        if forgotten
        else [],
    )


class Sessions:
    """The sessions under test, with a short way to ask."""

    def __init__(
        self, slots: int = 10, partitions_max: int = 1000, partition_count: int = 0
    ) -> None:
        self.partition_count = partition_count
        self.sessions = FetchSessions(
            slots=slots,
            rng=random.Random(7),
            partition_count=lambda: self.partition_count,
            partitions_max=partitions_max,
        )
        self.now_ms = 0

    def ask(
        self,
        session_id: int,
        epoch: int,
        partitions: list[int],
        forgotten: list[int] | None = None,
        *,
        by_topic_id: bool = False,
    ) -> Resolved:
        asked = request(session_id, epoch, partitions, forgotten)
        return self.sessions.resolve(asked, by_topic_id=by_topic_id, now_ms=self.now_ms)

    def open(self, partitions: list[int]) -> int:
        resolved = self.ask(0, 0, partitions)
        assert resolved.session is not None
        return resolved.session.session_id


def indexes(resolved: Resolved) -> list[int]:
    return [wanted.request.partition for wanted in resolved.wanted]


def test_an_epoch_of_minus_one_is_served_without_a_session() -> None:
    sessions = Sessions()

    resolved = sessions.ask(99, -1, [0, 1])

    assert resolved.error == ErrorCode.NONE
    assert resolved.session is None
    assert indexes(resolved) == [0, 1]


def test_an_incremental_request_names_only_changes() -> None:
    sessions = Sessions()
    session_id = sessions.open([0, 1])

    assert indexes(sessions.ask(session_id, 1, [])) == [0, 1]
    assert indexes(sessions.ask(session_id, 2, [2])) == [0, 1, 2]
    assert indexes(sessions.ask(session_id, 3, [], forgotten=[0])) == [1, 2]


def test_a_changed_partition_keeps_what_its_client_was_told() -> None:
    sessions = Sessions()
    session_id = sessions.open([0])
    sessions.ask(session_id, 1, []).wanted[0].sent_high_watermark = 5

    wanted = sessions.ask(session_id, 2, [0]).wanted[0]

    assert wanted.sent_high_watermark == 5


@pytest.mark.parametrize(
    ("session_id", "epoch", "error"),
    [
        ("own", 0 + 5, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ("own", 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ("other", 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ("none", 5, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ],
)
def test_a_wrong_id_or_epoch_is_refused(session_id: str, epoch: int, error: ErrorCode) -> None:
    sessions = Sessions()
    own = sessions.open([0])
    asked = {"own": own, "other": own + 1, "none": 0}[session_id]

    assert sessions.ask(asked, epoch, []).error == error


def test_a_session_does_not_change_from_names_to_ids() -> None:
    sessions = Sessions()
    session_id = sessions.open([0])

    resolved = sessions.ask(session_id, 1, [], by_topic_id=True)

    assert resolved.error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_epoch_is_looked_at_before_how_topics_are_named() -> None:
    sessions = Sessions()
    session_id = sessions.open([0])

    resolved = sessions.ask(session_id, 2, [], by_topic_id=True)

    assert resolved.error == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_session_may_begin_with_nothing() -> None:
    sessions = Sessions(slots=1)
    session_id = sessions.open([])

    assert indexes(sessions.ask(session_id, 1, [3])) == [3]
    assert sessions.ask(0, 0, []).session is None, "it takes nobody's place"


def test_a_session_of_nothing_ends_when_nothing_comes() -> None:
    sessions = Sessions()
    session_id = sessions.open([])

    assert sessions.ask(session_id, 1, []).session is None
    assert sessions.ask(session_id, 2, []).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_forgetting_the_last_partition_ends_the_session() -> None:
    sessions = Sessions()
    session_id = sessions.open([0])

    assert sessions.ask(session_id, 1, [], forgotten=[0]).session is None
    assert sessions.ask(session_id, 2, []).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_new_session_ends_the_old_one_of_its_client() -> None:
    sessions = Sessions()
    session_id = sessions.open([0])

    assert sessions.ask(session_id, 0, [0]).session is not None
    assert len(sessions.sessions) == 1


def test_the_epoch_wraps_to_one() -> None:
    sessions = Sessions()
    session_id = sessions.open([0])
    session = sessions.ask(session_id, 1, []).session
    assert session is not None
    session.epoch = EPOCH_MAX

    assert sessions.ask(session_id, EPOCH_MAX, []).error == ErrorCode.NONE
    assert sessions.ask(session_id, 1, []).error == ErrorCode.NONE


def test_full_slots_give_no_session_unless_one_is_stale_or_smaller() -> None:
    sessions = Sessions(slots=1)
    session_id = sessions.open([0])

    assert sessions.ask(0, 0, [1]).session is None
    assert sessions.ask(session_id, 1, []).error == ErrorCode.NONE
    assert sessions.ask(0, 0, [1, 2]).session is not None
    assert sessions.ask(session_id, 2, []).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    sessions.now_ms += STALE_MS + 1
    assert sessions.ask(0, 0, [3]).session is not None


def test_partitions_that_returned_data_go_last() -> None:
    sessions = Sessions()
    resolved = sessions.ask(0, 0, [0, 1, 2])
    assert resolved.session is not None
    resolved.session.moved_last([("t", 0)])

    assert indexes(sessions.ask(resolved.session.session_id, 1, [])) == [1, 2, 0]


def test_what_was_forgotten_meanwhile_does_not_come_back() -> None:
    sessions = Sessions()
    waits = sessions.ask(sessions.open([0, 1]), 1, [])
    assert waits.session is not None
    sessions.ask(waits.session.session_id, 2, [], forgotten=[0])
    waits.session.moved_last([("t", 0), ("t", 1)])

    assert indexes(sessions.ask(waits.session.session_id, 3, [])) == [1]


def test_who_waits_keeps_what_it_asked_for() -> None:
    sessions = Sessions()
    waits = sessions.ask(sessions.open([0]), 1, [])
    assert waits.session is not None
    asked = waits.wanted[0].request
    later = sessions.ask(waits.session.session_id, 2, [0])

    assert waits.wanted[0].request is asked
    assert later.wanted[0].request is not asked


def test_all_sessions_together_hold_so_many_partitions() -> None:
    sessions = Sessions(partitions_max=10)
    small = sessions.open([0])
    sessions.open(list(range(8)))

    assert sessions.ask(0, 0, [0, 1]).session is None
    grown = sessions.ask(small, 1, [1])
    assert indexes(grown) == [0, 1]
    refused = sessions.ask(small, 2, [2])
    assert refused.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions.sessions) == 1


def test_one_session_names_little_more_than_the_broker_has() -> None:
    sessions = Sessions(partitions_max=3 * SPARE_PARTITIONS, partition_count=2)
    most = list(range(SPARE_PARTITIONS + 2))

    assert sessions.ask(0, 0, [*most, len(most)]).session is None
    assert len(sessions.ask(0, 0, [*most, len(most)]).wanted) == len(most) + 1
    session_id = sessions.open(most)
    assert len(sessions.ask(session_id, 1, [len(most)], [0]).wanted) == len(most)
    grown = sessions.ask(session_id, 2, [0])
    assert grown.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions.sessions) == 0


def test_a_session_of_a_large_topic_that_was_deleted_begins_anew() -> None:
    sessions = Sessions(partitions_max=10_000, partition_count=9000)
    session_id = sessions.open(list(range(9000)))

    sessions.partition_count = 0

    assert sessions.ask(session_id, 1, []).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
