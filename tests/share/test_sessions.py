"""Share sessions: epochs count up, limits hold, connections take theirs along."""

from __future__ import annotations

import pytest

from ottla.broker.replication.fetch_session import SPARE_PARTITIONS
from ottla.broker.share.sessions import EPOCH_MAX, PLACES_MAX, ShareSessions
from ottla.protocol.errors import ErrorCode, KafkaError

TOPIC = bytes(16)
CONNECTION = object()


def _places(count: int) -> list[tuple[bytes, int]]:
    return [(TOPIC, index) for index in range(count)]


def _sessions(*, places_max: int = PLACES_MAX, partitions: int = 0) -> ShareSessions:
    return ShareSessions(partition_count=lambda: partitions, places_max=places_max)


def test_epochs_count_up_and_begin_again_at_one() -> None:
    sessions = _sessions()
    session = sessions.open("g", "m", _places(1), CONNECTION, most=1)
    assert session.epoch == 1
    assert sessions.go_on("g", "m", 1).epoch == 2
    with pytest.raises(KafkaError) as refused:
        sessions.go_on("g", "m", 1)
    assert refused.value.code is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    session.epoch = EPOCH_MAX

    assert sessions.go_on("g", "m", EPOCH_MAX).epoch == 1


def test_there_are_only_so_many_sessions() -> None:
    sessions = _sessions()
    sessions.open("g", "m", _places(2), CONNECTION, most=1)
    sessions.remove("g", "m")
    session = sessions.open("g", "m", _places(1), CONNECTION, most=1)

    assert len(sessions) == 1
    assert list(session.places) == _places(1)
    with pytest.raises(KafkaError) as refused:
        sessions.open("g", "other", _places(1), CONNECTION, most=1)
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_partitions_are_bounded_over_all_sessions() -> None:
    sessions = _sessions(places_max=5)
    first = sessions.open("g", "a", _places(3), CONNECTION, most=9)
    second = sessions.open("g", "b", _places(2), CONNECTION, most=9)
    with pytest.raises(KafkaError) as refused:
        sessions.change(first, _places(4), ())
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert len(first.places) == 3

    sessions.change(second, (), _places(1))
    sessions.change(first, _places(4), ())
    sessions.remove("g", "a")
    assert len(sessions.open("g", "c", _places(4), CONNECTION, most=9).places) == 4


def test_one_session_names_little_more_than_the_broker_has() -> None:
    sessions = _sessions(partitions=2)
    most = SPARE_PARTITIONS + 2
    with pytest.raises(KafkaError) as refused:
        sessions.open("g", "a", _places(most + 1), CONNECTION, most=9)
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    session = sessions.open("g", "a", _places(most), CONNECTION, most=9)
    sessions.change(session, _places(most + 1), _places(1))
    with pytest.raises(KafkaError):
        sessions.change(session, _places(1), ())

    assert len(session.places) == most


def test_a_connection_has_the_sessions_that_were_opened_on_it() -> None:
    sessions = _sessions()
    other = object()
    one = sessions.open("g", "a", _places(1), CONNECTION, most=9)
    sessions.open("g", "b", _places(1), other, most=9)

    assert sessions.of_connection(CONNECTION) == [one]
    sessions.remove("g", "a")
    assert sessions.of_connection(CONNECTION) == []
    assert sessions.remove("g", "a") is None


def test_each_partition_comes_first_in_its_turn() -> None:
    sessions = _sessions()
    session = sessions.open("g", "a", _places(3), CONNECTION, most=9)
    firsts = []
    for epoch in range(1, 4):
        firsts.append(session.in_turn()[0])
        sessions.go_on("g", "a", epoch)

    assert sorted(firsts) == _places(3)
