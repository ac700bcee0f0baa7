"""Who votes on the metadata log: a node, the directory its log lies in, and where it listens.

A node is its id and the id of its metadata log directory together: a node that lost its disk comes
back as another voter, so it cannot forget a vote (KIP-853). The set stands in the log itself, as a
Voters control record, and the newest one in the log holds, committed or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.protocol.messages.control_records import VotersRecord
from ottla.protocol.wire import ZERO_UUID

KRAFT_VERSIONS = (0, 1)
"""The levels of kraft.version that this code speaks."""


class ReplicaKey(NamedTuple):
    node_id: int
    directory_id: bytes = ZERO_UUID


class Endpoint(NamedTuple):
    name: str
    host: str
    port: int


class Voter(NamedTuple):
    key: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    kraft_versions: tuple[int, int] = KRAFT_VERSIONS


class VoterSet(NamedTuple):
    """Voters by node id; never changed."""

    voters: dict[int, Voter]

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        return cls({voter.key.node_id: voter for voter in voters})

    @classmethod
    def from_record(cls, record: VotersRecord) -> VoterSet:
        return cls.of(
            Voter(
                ReplicaKey(voter.voter_id, voter.voter_directory_id),
                tuple(Endpoint(point.name, point.host, point.port) for point in voter.endpoints),
                (
                    voter.kraft_version_feature.min_supported_version,
                    voter.kraft_version_feature.max_supported_version,
                ),
            )
            for voter in record.voters
        )

    def to_record(self) -> VotersRecord:
        return VotersRecord(
            voters=[
                VotersRecord.Voter(
                    voter_id=voter.key.node_id,
                    voter_directory_id=voter.key.directory_id,
                    endpoints=[VotersRecord.Endpoint(*point) for point in voter.endpoints],
                    kraft_version_feature=VotersRecord.KRaftVersionFeature(*voter.kraft_versions),
                )
                for voter in self.voters.values()
            ]
        )

    def has(self, key: ReplicaKey) -> bool:
        """Whether it votes; an entry without a directory id is any directory of that node."""
        voter = self.voters.get(key.node_id)
        return voter is not None and voter.key.directory_id in (ZERO_UUID, key.directory_id)

    def is_only(self, key: ReplicaKey) -> bool:
        return len(self.voters) == 1 and self.has(key)

    def with_voter(self, voter: Voter) -> VoterSet:
        """The set with one voter's entry replaced."""
        return VoterSet({**self.voters, voter.key.node_id: voter})
