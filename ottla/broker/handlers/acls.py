"""DescribeAcls, CreateAcls and DeleteAcls, where there is no authorizer.

Whoever reaches a listener may do everything, and consoles ask, to show that. The answers are those
of an Apache Kafka without authorizer.class.name.
"""

from __future__ import annotations

from ottla.broker.handlers.context import Session
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

DISABLED = int(ErrorCode.SECURITY_DISABLED)
NONE_TO_ASK = "No Authorizer is configured on the broker"
NONE_TO_CHANGE = "No Authorizer is configured."


def handle_describe_acls(
    session: Session, request: DescribeAclsRequest, version: int
) -> DescribeAclsResponse:
    """SECURITY_DISABLED, whatever the filter."""
    return DescribeAclsResponse(error_code=DISABLED, error_message=NONE_TO_ASK)


def handle_create_acls(
    session: Session, request: CreateAclsRequest, version: int
) -> CreateAclsResponse:
    """SECURITY_DISABLED for each entry."""
    return CreateAclsResponse(
        results=[
            CreateAclsResponse.AclCreationResult(DISABLED, NONE_TO_CHANGE)
            for _ in request.creations
        ]
    )


def handle_delete_acls(
    session: Session, request: DeleteAclsRequest, version: int
) -> DeleteAclsResponse:
    """SECURITY_DISABLED for each filter."""
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsResponse.DeleteAclsFilterResult(DISABLED, NONE_TO_CHANGE)
            for _ in request.filters
        ]
    )
