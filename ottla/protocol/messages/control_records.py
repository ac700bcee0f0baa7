"""Contents of control records. The version stands as an int16 before a value."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import ZERO_UUID, int16, int32, int64, uint16, uuid


class ControlRecordTypeSchema(Message, versions="0"):
    """Control Record Type Schema."""

    type: int16 = 0


class EndTxnMarker(Message, versions="0"):
    """End Txn Marker."""

    coordinator_epoch: int32 = 0


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """Leader Change Message."""

    class Voter(Struct):
        voter_id: int32 = 0
        voter_directory_id: uuid = field(ZERO_UUID, versions="1+")

    version: int16 = 0
    leader_id: int32 = 0
    voters: list[Voter] = []
    granting_voters: list[Voter] = []


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """Snapshot Header Record."""

    version: int16 = 0
    last_contained_log_timestamp: int64 = 0


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """Snapshot Footer Record."""

    version: int16 = 0


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """KRaft Version Record."""

    version: int16 = 0
    kraft_version: int16 = 0


class VotersRecord(Message, versions="0", flexible="0+"):
    """Voters Record."""

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
