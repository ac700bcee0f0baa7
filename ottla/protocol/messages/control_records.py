"""Contents of control records. The version stands as an int16 before a value."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import ZERO_UUID, int16, int32, int64, uint16, uuid


class ControlRecordTypeSchema(Message, versions="0"):
    """The key of a control record; the version is 0."""

    type: int16 = 0


class EndTxnMarker(Message, versions="0"):
    """The value of a transaction marker; commit or abort is the type in the key."""

    coordinator_epoch: int32 = 0


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """The first record of a leader in the metadata log. 1 adds directory ids."""

    class Voter(Struct):
        voter_id: int32 = 0
        voter_directory_id: uuid = field(ZERO_UUID, versions="1+")

    version: int16 = 0
    leader_id: int32 = 0
    voters: list[Voter] = []
    granting_voters: list[Voter] = []


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """The first record of a snapshot."""

    version: int16 = 0
    last_contained_log_timestamp: int64 = 0


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """The last record of a snapshot; without it the snapshot is not whole."""

    version: int16 = 0


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """The version of the quorum protocol from here on; 1 has voters in the log."""

    version: int16 = 0
    kraft_version: int16 = 0


class VotersRecord(Message, versions="0", flexible="0+"):
    """The voters from here on."""

    class Endpoint(Struct):
        name: str = ""
        host: str = ""
        port: uint16 = 0

    class KRaftVersionFeature(Struct):
        min_supported_version: int16 = 0
        max_supported_version: int16 = 0

    class Voter(Struct):
        voter_id: int32 = 0
        voter_directory_id: uuid = ZERO_UUID
        endpoints: list[VotersRecord.Endpoint] = []
        kraft_version_feature: VotersRecord.KRaftVersionFeature = field()

    version: int16 = 0
    voters: list[Voter] = []
