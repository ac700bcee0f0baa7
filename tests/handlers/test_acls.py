"""Access control entries, of which there are none: the answers of Kafka without an authorizer."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import admin as confluent_admin

from ottla.protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from ottla.testing import BrokerThread
from tests.coordinator.asking import ask
from tests.handlers.rooms import House

SECURITY_DISABLED = 54
ADMIN: Any = confluent_admin
"""Its types leave these classes out."""
ANY = ADMIN.AclBindingFilter(
    ADMIN.ResourceType.ANY,
    None,
    ADMIN.ResourcePatternType.ANY,
    None,
    None,
    ADMIN.AclOperation.ANY,
    ADMIN.AclPermissionType.ANY,
)
ENTRY = ADMIN.AclBinding(
    ADMIN.ResourceType.TOPIC,
    "t",
    ADMIN.ResourcePatternType.LITERAL,
    "User:a",
    "*",
    ADMIN.AclOperation.READ,
    ADMIN.AclPermissionType.ALLOW,
)


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_each_entry_and_each_filter_has_its_answer(house: House, version: int) -> None:
    described = await ask(house, DescribeAclsRequest(), version)
    assert (described.error_code, described.error_message, described.resources) == (
        SECURITY_DISABLED,
        "No Authorizer is configured on the broker",
        [],
    )
    two = [CreateAclsRequest.AclCreation(2, "t", 3, "User:a", "*", 3, 3)] * 2
    created = await ask(house, CreateAclsRequest(two), version)
    filters = [DeleteAclsRequest.DeleteAclsFilter(1, None, 1, None, None, 1, 1)] * 2
    deleted = await ask(house, DeleteAclsRequest(filters), version)

    for results in (created.results, deleted.filter_results):
        assert [(one.error_code, one.error_message) for one in results] == [
            (SECURITY_DISABLED, "No Authorizer is configured.")
        ] * 2


def test_a_client_is_told_that_there_is_no_authorizer() -> None:
    with BrokerThread() as broker:
        admin = ADMIN.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        # What its describe_acls makes of the error is an empty list.
        answers = [
            *admin.create_acls([ENTRY], request_timeout=10).values(),
            *admin.delete_acls([ANY], request_timeout=10).values(),
        ]
        for answer in answers:
            with pytest.raises(KafkaException, match="SECURITY_DISABLED"):
                answer.result(10)
