"""quorum-state: what a node must not forget of an election, one line of JSON.

    {"leaderId":1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA",
     "data_version":1}
-1 is nobody, and a zero id no directory. data_version 0, of kraft.version 0, has clusterId,
appliedOffset and currentVoters too, which nobody believes, and no votedDirectoryId.

It is written and synced before a node answers as what it says: a node that forgot a vote could vote
twice in one epoch, and two leaders would follow.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.log.checkpoints import MalformedFile, read_whole, write_atomically
from ottla.broker.ports import Disk
from ottla.broker.quorum.voters import ReplicaKey
from ottla.protocol.wire import ZERO_UUID, parse_uuid, uuid_text

QUORUM_STATE_FILE = "quorum-state"
NOBODY = -1

_VERSIONS = (0, 1)


class VoteState(NamedTuple):
    """The latest epoch, who leads in it, and for whom this node voted in it."""

    epoch: int = 0
    leader_id: int = NOBODY
    voted: ReplicaKey | None = None


def read_vote_state(disk: Disk, directory: str) -> VoteState:
    """The stored state; epoch 0 if there is none yet. MalformedFile if it cannot be believed."""
    data = read_whole(disk, f"{directory}/{QUORUM_STATE_FILE}")
    return VoteState() if data is None else parse_vote_state(data)


def write_vote_state(disk: Disk, directory: str, state: VoteState) -> None:
    """Durable when it returns."""
    write_atomically(disk, f"{directory}/{QUORUM_STATE_FILE}", format_vote_state(state))


def format_vote_state(state: VoteState) -> bytes:
    voted = state.voted or ReplicaKey(NOBODY)
    return (
        f'{{"leaderId":{state.leader_id},"leaderEpoch":{state.epoch},"votedId":{voted.node_id},'
        f'"votedDirectoryId":"{uuid_text(voted.directory_id)}","data_version":1}}'
    ).encode()


def parse_vote_state(data: bytes) -> VoteState:
    import json  # one file, once a start

    try:
        state = json.loads(data)
    except ValueError as error:
        raise MalformedFile("quorum-state is not JSON") from error
    if not isinstance(state, dict) or state.get("data_version") not in _VERSIONS:
        raise MalformedFile("quorum-state is not of version 0 or 1")
    leader_id, epoch, voted_id = (
        state.get(key, NOBODY) for key in ("leaderId", "leaderEpoch", "votedId")
    )
    directory = state.get("votedDirectoryId", uuid_text(ZERO_UUID))
    if not all(type(number) is int for number in (leader_id, epoch, voted_id)) or epoch < 0:
        raise MalformedFile("quorum-state has no leader, epoch and vote")
    try:
        voted = None if voted_id == NOBODY else ReplicaKey(voted_id, parse_uuid(directory))
    except (TypeError, ValueError) as error:
        raise MalformedFile("quorum-state has a bad votedDirectoryId") from error
    return VoteState(epoch, leader_id, voted)
