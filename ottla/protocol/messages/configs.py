"""Reading and changing the settings of topics, brokers, groups and client metrics."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import int8, int16, int32


class DescribeConfigsRequest(Message, key=32, versions="1-4", flexible="4+"):
    """The settings of resources; null keys are all of them. 3 can include the documentation."""

    class DescribeConfigsResource(Struct):
        resource_type: int8 = 0
        resource_name: str = ""
        configuration_keys: list[str] | None = []

    resources: list[DescribeConfigsResource] = []
    include_synonyms: bool = False
    include_documentation: bool = field(False, versions="3+")


class DescribeConfigsResponse(Message, key=32, versions="1-4", flexible="4+"):
    """Each setting with its value, source and synonyms. 3 adds type and documentation."""

    class DescribeConfigsSynonym(Struct):
        name: str = ""
        value: str | None = ""
        source: int8 = 0

    class DescribeConfigsResourceResult(Struct):
        name: str = ""
        value: str | None = ""
        read_only: bool = False
        config_source: int8 = -1
        is_sensitive: bool = False
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = []
        config_type: int8 = field(0, versions="3+", ignorable=True)
        documentation: str | None = field("", versions="3+", ignorable=True)

    class DescribeConfigsResult(Struct):
        error_code: int16 = 0
        error_message: str | None = ""
        resource_type: int8 = 0
        resource_name: str = ""
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = []

    throttle_time_ms: int32 = 0
    results: list[DescribeConfigsResult] = []


class AlterConfigsRequest(Message, key=33, versions="0-2", flexible="2+"):
    """Replace all the dynamic settings of resources by those given."""

    class AlterableConfig(Struct):
        name: str = ""
        value: str | None = ""

    class AlterConfigsResource(Struct):
        resource_type: int8 = 0
        resource_name: str = ""
        configs: list[AlterConfigsRequest.AlterableConfig] = []

    resources: list[AlterConfigsResource] = []
    validate_only: bool = False


class AlterConfigsResponse(Message, key=33, versions="0-2", flexible="2+"):
    """The answer to AlterConfigs."""

    class AlterConfigsResourceResponse(Struct):
        error_code: int16 = 0
        error_message: str | None = ""
        resource_type: int8 = 0
        resource_name: str = ""

    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


class IncrementalAlterConfigsRequest(Message, key=44, versions="0-1", flexible="1+"):
    """Change single settings: 0 set, 1 delete, 2 append, 3 subtract."""

    class AlterableConfig(Struct):
        name: str = ""
        config_operation: int8 = 0
        value: str | None = ""

    class AlterConfigsResource(Struct):
        resource_type: int8 = 0
        resource_name: str = ""
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig] = []

    resources: list[AlterConfigsResource] = []
    validate_only: bool = False


class IncrementalAlterConfigsResponse(Message, key=44, versions="0-1", flexible="1+"):
    """The answer to IncrementalAlterConfigs."""

    class AlterConfigsResourceResponse(Struct):
        error_code: int16 = 0
        error_message: str | None = ""
        resource_type: int8 = 0
        resource_name: str = ""

    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


class ListConfigResourcesRequest(Message, key=74, versions="0-1", flexible="0+"):
    """The resources that have settings; version 0 knows only those of client metrics."""

    resource_types: list[int8] = field([], versions="1+")


class ListConfigResourcesResponse(Message, key=74, versions="0-1", flexible="0+"):
    """The answer to ListConfigResources."""

    class ConfigResource(Struct):
        resource_name: str = ""
        resource_type: int8 = field(16, versions="1+", ignorable=True)

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    config_resources: list[ConfigResource] = []
