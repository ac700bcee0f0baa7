"""Client metrics pushed to the broker (KIP-714)."""

from __future__ import annotations

from ottla.protocol.schema import Message
from ottla.protocol.wire import ZERO_UUID, int8, int16, int32, uuid


class GetTelemetrySubscriptionsRequest(Message, key=71, versions="0", flexible="0+"):
    """Which metrics does the broker want, and how often?"""

    client_instance_id: uuid = ZERO_UUID


class GetTelemetrySubscriptionsResponse(Message, key=71, versions="0", flexible="0+"):
    """The answer to GetTelemetrySubscriptions."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    client_instance_id: uuid = ZERO_UUID
    subscription_id: int32 = 0
    accepted_compression_types: list[int8] = []
    push_interval_ms: int32 = 0
    telemetry_max_bytes: int32 = 0
    delta_temporality: bool = False
    requested_metrics: list[str] = []


class PushTelemetryRequest(Message, key=72, versions="0", flexible="0+"):
    """Metrics of a client, in the form of OTLP."""

    client_instance_id: uuid = ZERO_UUID
    subscription_id: int32 = 0
    terminating: bool = False
    compression_type: int8 = 0
    metrics: bytes = b""


class PushTelemetryResponse(Message, key=72, versions="0", flexible="0+"):
    """The answer to PushTelemetry."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
