"""Access control entries: list, create, delete."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct
from ottla.protocol.wire import int8, int16, int32


class DescribeAclsRequest(Message, key=29, versions="1-3", flexible="2+"):
    """The entries that match a filter; null matches any."""

    resource_type_filter: int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int8 = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int8 = 0
    permission_type: int8 = 0


class DescribeAclsResponse(Message, key=29, versions="1-3", flexible="2+"):
    """The answer to DescribeAcls."""

    class AclDescription(Struct):
        principal: str = ""
        host: str = ""
        operation: int8 = 0
        permission_type: int8 = 0

    class DescribeAclsResource(Struct):
        resource_type: int8 = 0
        resource_name: str = ""
        pattern_type: int8 = 3
        acls: list[DescribeAclsResponse.AclDescription] = []

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResource] = []


class CreateAclsRequest(Message, key=30, versions="1-3", flexible="2+"):
    """Add entries."""

    class AclCreation(Struct):
        resource_type: int8 = 0
        resource_name: str = ""
        resource_pattern_type: int8 = 3
        principal: str = ""
        host: str = ""
        operation: int8 = 0
        permission_type: int8 = 0

    creations: list[AclCreation] = []


class CreateAclsResponse(Message, key=30, versions="1-3", flexible="2+"):
    """The answer to CreateAcls."""

    class AclCreationResult(Struct):
        error_code: int16 = 0
        error_message: str | None = ""

    throttle_time_ms: int32 = 0
    results: list[AclCreationResult] = []


class DeleteAclsRequest(Message, key=31, versions="1-3", flexible="2+"):
    """Delete the entries that match filters."""

    class DeleteAclsFilter(Struct):
        resource_type_filter: int8 = 0
        resource_name_filter: str | None = ""
        pattern_type_filter: int8 = 3
        principal_filter: str | None = ""
        host_filter: str | None = ""
        operation: int8 = 0
        permission_type: int8 = 0

    filters: list[DeleteAclsFilter] = []


class DeleteAclsResponse(Message, key=31, versions="1-3", flexible="2+"):
    """The answer to DeleteAcls."""

    class DeleteAclsMatchingAcl(Struct):
        error_code: int16 = 0
        error_message: str | None = ""
        resource_type: int8 = 0
        resource_name: str = ""
        pattern_type: int8 = 3
        principal: str = ""
        host: str = ""
        operation: int8 = 0
        permission_type: int8 = 0

    class DeleteAclsFilterResult(Struct):
        error_code: int16 = 0
        error_message: str | None = ""
        matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl] = []

    throttle_time_ms: int32 = 0
    filter_results: list[DeleteAclsFilterResult] = []
