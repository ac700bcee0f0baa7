"""Client quotas: read and change."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct
from ottla.protocol.wire import float64, int8, int16, int32


class DescribeClientQuotasRequest(Message, key=48, versions="0-1", flexible="1+"):
    """The quotas of entities that match."""

    class ComponentData(Struct):
        entity_type: str = ""
        match_type: int8 = 0
        match: str | None = ""

    components: list[ComponentData] = []
    strict: bool = False


class DescribeClientQuotasResponse(Message, key=48, versions="0-1", flexible="1+"):
    """The answer to DescribeClientQuotas."""

    class EntityData(Struct):
        entity_type: str = ""
        entity_name: str | None = ""

    class ValueData(Struct):
        key: str = ""
        value: float64 = 0.0

    class EntryData(Struct):
        entity: list[DescribeClientQuotasResponse.EntityData] = []
        values: list[DescribeClientQuotasResponse.ValueData] = []

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    entries: list[EntryData] | None = []


class AlterClientQuotasRequest(Message, key=49, versions="0-1", flexible="1+"):
    """Set or remove quotas of entities."""

    class EntityData(Struct):
        entity_type: str = ""
        entity_name: str | None = ""

    class OpData(Struct):
        key: str = ""
        value: float64 = 0.0
        remove: bool = False

    class EntryData(Struct):
        entity: list[AlterClientQuotasRequest.EntityData] = []
        ops: list[AlterClientQuotasRequest.OpData] = []

    entries: list[EntryData] = []
    validate_only: bool = False


class AlterClientQuotasResponse(Message, key=49, versions="0-1", flexible="1+"):
    """The answer to AlterClientQuotas."""

    class EntityData(Struct):
        entity_type: str = ""
        entity_name: str | None = ""

    class EntryData(Struct):
        error_code: int16 = 0
        error_message: str | None = ""
        entity: list[AlterClientQuotasResponse.EntityData] = []

    throttle_time_ms: int32 = 0
    entries: list[EntryData] = []
