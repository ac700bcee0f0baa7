"""The rules of the quorum: transitions, elections of a sole voter, and what counts as committed."""

from __future__ import annotations

import itertools

import pytest

from ottla.broker.quorum.raft import Known, QuorumError, Raft
from ottla.broker.quorum.roles import (
    TRANSITIONS,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
    become,
)
from ottla.broker.quorum.vote_file import VoteState
from ottla.broker.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.protocol.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    VotersRecord,
)

LOCAL = ReplicaKey(1, bytes(15) + b"\xd1")
HERE = (Endpoint("CONTROLLER", "localhost", 9093),)

ROLES: list[Role] = [
    Unattached(3),
    Prospective(3),
    Candidate(3),
    Leader(3, 10),
    Follower(3, 2),
    Resigned(3),
]


def known(
    *,
    epoch: int = 0,
    leader: int = -1,
    log_epoch: int = 0,
    end: int = 0,
    voters: VoterSet | None = None,
    in_log: bool = True,
    kraft_version: int = 1,
) -> Known:
    return Known(
        vote=VoteState(epoch, leader),
        voters=voters or VoterSet.of([Voter(LOCAL, HERE)]),
        voters_in_log=in_log,
        kraft_version=kraft_version,
        log_end_offset=end,
        log_epoch=log_epoch,
    )


@pytest.mark.parametrize(("old", "new"), list(itertools.product(ROLES, ROLES)))
def test_a_role_follows_only_as_the_table_says(old: Role, new: Role) -> None:
    if type(new) in TRANSITIONS[type(old)]:
        assert become(old, new) is new
    else:
        with pytest.raises(AssertionError):
            become(old, new)


def test_the_table_knows_every_role() -> None:
    assert set(TRANSITIONS) == {type(role) for role in ROLES}


def test_the_epoch_never_goes_back() -> None:
    with pytest.raises(AssertionError):
        become(Unattached(3), Follower(2, 1))


@pytest.mark.parametrize(
    ("found", "role"),
    [
        (known(), Unattached(0)),
        (known(epoch=4, leader=1), Resigned(4)),
        (known(epoch=4, leader=2), Unattached(4, 2)),
        (known(epoch=4), Unattached(4)),
        (known(epoch=4, leader=1, log_epoch=6), Unattached(6)),
    ],
)
def test_nobody_starts_as_a_leader(found: Known, role: Role) -> None:
    first = Raft(LOCAL, HERE, found).role

    assert (type(first), first) == (type(role), role)


def test_a_sole_voter_elects_itself_in_the_next_epoch() -> None:
    raft = Raft(LOCAL, HERE, known(epoch=4, leader=1, log_epoch=4, end=20))

    output = raft.start()

    assert isinstance(raft.role, Leader)
    assert raft.role == Leader(5, 20)
    assert output.vote == VoteState(5, 1, None)
    (change,) = output.append
    assert isinstance(change, LeaderChangeMessage)
    assert (change.leader_id, [one.voter_id for one in change.voters]) == (1, [1])


@pytest.mark.parametrize(
    ("in_log", "endpoints", "bodies"),
    [
        (True, HERE, [LeaderChangeMessage]),
        (False, HERE, [LeaderChangeMessage, KRaftVersionRecord, VotersRecord]),
        (
            True,
            (Endpoint("CONTROLLER", "elsewhere", 9093),),
            [LeaderChangeMessage, KRaftVersionRecord, VotersRecord],
        ),
    ],
)
def test_voters_are_written_where_the_log_does_not_know_them(
    in_log: bool, endpoints: tuple[Endpoint, ...], bodies: list[type]
) -> None:
    raft = Raft(LOCAL, endpoints, known(in_log=in_log))

    output = raft.start()

    assert [type(body) for body in output.append] == bodies
    assert raft.voters.voters[1].endpoints == endpoints


def test_a_static_quorum_writes_no_voters() -> None:
    raft = Raft(LOCAL, HERE, known(in_log=False, kraft_version=0))

    assert [type(body) for body in raft.start().append] == [LeaderChangeMessage]


OTHER = Voter(ReplicaKey(2, bytes(15) + b"\xd2"), HERE)


@pytest.mark.parametrize(
    ("voters", "reason"),
    [
        ([OTHER], "node 1 is none of the voters"),
        ([Voter(LOCAL, HERE), OTHER], "has the voters 1, 2"),
        ([Voter(ReplicaKey(1, bytes(15) + b"\xd9"), HERE)], "names another log directory"),
    ],
)
def test_who_is_not_the_one_voter_does_not_start(voters: list[Voter], reason: str) -> None:
    raft = Raft(LOCAL, HERE, known(voters=VoterSet.of(voters)))

    with pytest.raises(QuorumError, match=reason):
        raft.start()


def test_a_voter_without_directory_is_any_directory_of_its_node() -> None:
    raft = Raft(LOCAL, HERE, known(voters=VoterSet.of([Voter(ReplicaKey(1), HERE)])))

    raft.start()

    assert raft.is_leader


def test_nothing_is_committed_before_the_epochs_first_record_is_on_disk() -> None:
    raft = Raft(LOCAL, HERE, known(end=20, log_epoch=1))
    raft.start()

    assert raft.flushed(20).commit_to is None
    assert raft.high_watermark == -1
    assert raft.flushed(21).commit_to == 21
    assert raft.flushed(21).commit_to is None
    assert raft.flushed(30).commit_to == 30
    assert raft.high_watermark == 30


def test_a_leader_resigns_in_its_epoch() -> None:
    raft = Raft(LOCAL, HERE, known())
    raft.start()
    raft.resign()

    assert isinstance(raft.role, Resigned)
    assert raft.epoch == 1
