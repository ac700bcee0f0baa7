"""DescribeClientQuotas and AlterClientQuotas (KIP-546); enforced by `network/quotas.py`."""

from __future__ import annotations

import asyncio

from ottla.broker.controller import client_quotas as quota_commands
from ottla.broker.handlers.context import Session
from ottla.broker.handlers.setting_history import change_settings
from ottla.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)


def handle_describe_client_quotas(
    session: Session, request: DescribeClientQuotasRequest, version: int
) -> DescribeClientQuotasResponse:
    """What is set, for the entities that the filter means."""
    return quota_commands.describe_client_quotas(session.rooms.image, request)


async def handle_alter_client_quotas(
    session: Session, request: AlterClientQuotasRequest, version: int
) -> AlterClientQuotasResponse:
    """In force when it is answered; each entity is changed or refused on its own."""
    hosts = [name for name in quota_commands.host_names(request) if await _has_address(name)]
    return await change_settings(
        session, lambda image: quota_commands.alter_client_quotas(image, request, hosts=hosts)
    )


async def _has_address(host: str) -> bool:
    try:
        return bool(await asyncio.get_running_loop().getaddrinfo(host, None))
    except (OSError, UnicodeError):
        return False
