"""The rules of the quorum, without files, clock or network: events in, work out.

Each call takes an event and returns an `Output`, which the shell performs in the order of its
fields: the vote is stored before anything is appended, and appended records count only once the
shell says that they are on disk.

This version elects itself where it is the sole voter and knows no peers yet: a set with other
voters is refused by `start`. Elections among several add events, not another shape.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.quorum.roles import (
    Candidate,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
    become,
)
from ottla.broker.quorum.vote_file import NOBODY, VoteState
from ottla.broker.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.protocol.messages.control_records import KRaftVersionRecord, LeaderChangeMessage
from ottla.protocol.records.control import ControlBody

UNKNOWN_OFFSET = -1


class QuorumError(Exception):
    """The quorum cannot be formed; the text is a sentence for whoever started the node."""


class Output(NamedTuple):
    """What an event asks of the shell, to be done in this order."""

    vote: VoteState | None = None
    append: tuple[ControlBody, ...] = ()
    commit_to: int | None = None


class Known(NamedTuple):
    """What a node finds on its disk when it starts.

    `voters_in_log` is False while the voters are known from the formatting of the directory only.
    """

    vote: VoteState
    voters: VoterSet
    voters_in_log: bool
    kraft_version: int
    log_end_offset: int
    log_epoch: int


class Raft:
    """One node of the quorum."""

    def __init__(self, local: ReplicaKey, endpoints: tuple[Endpoint, ...], known: Known) -> None:
        self.local = local
        self.voters = known.voters
        self.high_watermark = UNKNOWN_OFFSET
        self._known = known
        self._self_voter = Voter(local, endpoints)
        self.role: Role = _first_role(local, known)

    def __repr__(self) -> str:
        return (
            f"<Raft node={self.local.node_id} {self.role} hw={self.high_watermark}"
            f" voters={list(self.voters.voters)}>"
        )

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    def start(self) -> Output:
        """Elects itself; QuorumError if it is not the one voter."""
        if not self.voters.is_only(self.local):
            raise QuorumError(self._why_not_alone())
        self._become(Prospective(self.epoch))
        self._become(Candidate(self.epoch + 1))
        # The own vote is a majority, and no message leaves before the one write that says both.
        self._become(Leader(self.epoch, self._known.log_end_offset))
        return Output(vote=VoteState(self.epoch, self.local.node_id), append=self._first_records())

    def flushed(self, end_offset: int) -> Output:
        """Everything below `end_offset` is on this node's disk."""
        role = self.role
        assert isinstance(role, Leader), "only a leader appends"
        # The first record of the epoch must be among them before anything is committed in it.
        if end_offset <= role.start_offset or end_offset <= self.high_watermark:
            return Output()
        self.high_watermark = end_offset
        return Output(commit_to=end_offset)

    def resign(self) -> Output:
        """Leads no more; nothing is stored, for a restart takes it for resigned anyway."""
        self._become(Resigned(self.epoch))
        return Output()

    def _become(self, role: Role) -> None:
        self.role = become(self.role, role)

    def _first_records(self) -> tuple[ControlBody, ...]:
        """What opens an epoch: who leads, and the voters where the log does not know them."""
        voter = LeaderChangeMessage.Voter
        change = LeaderChangeMessage(
            leader_id=self.local.node_id,
            voters=[voter(node_id) for node_id in self.voters.voters],
            granting_voters=[voter(self.local.node_id)],
        )
        if self._known.kraft_version < 1:
            return (change,)
        moved = self.voters.voters[self.local.node_id] != self._self_voter
        if self._known.voters_in_log and not moved:
            return (change,)
        self.voters = self.voters.with_voter(self._self_voter)
        return (
            change,
            KRaftVersionRecord(kraft_version=self._known.kraft_version),
            self.voters.to_record(),
        )

    def _why_not_alone(self) -> str:
        voters = ", ".join(map(str, self.voters.voters))
        if self.local.node_id not in self.voters.voters:
            return (
                f"node {self.local.node_id} is none of the voters of the metadata log ({voters})."
            )
        if len(self.voters.voters) > 1:
            return f"the metadata log has the voters {voters}; this version runs a sole voter."
        return (
            f"the metadata log names another log directory as that of voter {voters}:"
            " its meta.properties was replaced, or the log belongs to another disk."
        )


def _first_role(local: ReplicaKey, known: Known) -> Role:
    """What a node is before it has done anything; never a leader, though it may have been."""
    vote = known.vote
    if vote.epoch < known.log_epoch:
        return Unattached(known.log_epoch)
    if vote.leader_id == local.node_id:
        return Resigned(vote.epoch)
    return Unattached(vote.epoch, None if vote.leader_id == NOBODY else vote.leader_id)
