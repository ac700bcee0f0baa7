"""Finalized feature levels."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import int8, int16, int32


class UpdateFeaturesRequest(Message, key=57, versions="0-2", flexible="0+"):
    """Raise or lower finalized feature levels. 1 adds a dry run, 2 has no results
    for single features.
    """

    class FeatureUpdateKey(Struct):
        feature: str = ""
        max_version_level: int16 = 0
        allow_downgrade: bool = field(False, versions="0")
        upgrade_type: int8 = field(1, versions="1+")

    timeout_ms: int32 = 60000
    feature_updates: list[FeatureUpdateKey] = []
    validate_only: bool = field(False, versions="1+")


class UpdateFeaturesResponse(Message, key=57, versions="0-2", flexible="0+"):
    """The answer to UpdateFeatures."""

    class UpdatableFeatureResult(Struct):
        feature: str = ""
        error_code: int16 = 0
        error_message: str | None = ""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    results: list[UpdatableFeatureResult] = field([], versions="0-1", ignorable=True)
