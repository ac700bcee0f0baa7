"""ApiVersions: what the broker speaks; the first request of a connection."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import int16, int32, int64


class ApiVersionsRequest(Message, key=18, versions="0-4", flexible="3+"):
    """What does the broker speak? The only request whose unknown versions are answered too. 3 adds
    the name and version of the client.
    """

    client_software_name: str = field("", versions="3+", ignorable=True)
    client_software_version: str = field("", versions="3+", ignorable=True)


class ApiVersionsResponse(Message, key=18, versions="0-4", flexible="3+"):
    """The versions of each API, and from 3 on the features as tags. An unknown version of the
    request is answered in version 0 with error 35, and the header is version 0 in every version.
    """

    class ApiVersion(Struct):
        api_key: int16 = 0
        min_version: int16 = 0
        max_version: int16 = 0

    class SupportedFeatureKey(Struct):
        name: str = ""
        min_version: int16 = 0
        max_version: int16 = 0

    class FinalizedFeatureKey(Struct):
        name: str = ""
        max_version_level: int16 = 0
        min_version_level: int16 = 0

    error_code: int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: int32 = field(0, versions="1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = field([], versions="3+", tag=0, ignorable=True)
    finalized_features_epoch: int64 = field(-1, versions="3+", tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field([], versions="3+", tag=2, ignorable=True)
    zk_migration_ready: bool = field(False, versions="3+", tag=3, ignorable=True)
