"""ListConfigResources: what DescribeConfigs can be asked about (KIP-1142).

Version 0, ListClientMetricsResources, knows the subscriptions to client metrics alone.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.handlers.context import Session
from ottla.broker.handlers.endpoints import reachable_brokers
from ottla.broker.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.configs import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

Listed = ListConfigResourcesResponse.ConfigResource

TYPES_SINCE_VERSION = 1


def handle_list_config_resources(
    session: Session, request: ListConfigResourcesRequest, version: int
) -> ListConfigResourcesResponse:
    """Resources of the kinds asked for, each kind once; of all kinds for an empty list."""
    if version < TYPES_SINCE_VERSION:
        kinds = [CLIENT_METRICS_RESOURCE]
    else:
        kinds = list(dict.fromkeys(request.resource_types)) or list(_NAMES)
    if any(kind not in _NAMES for kind in kinds):
        return ListConfigResourcesResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION))
    return ListConfigResourcesResponse(
        config_resources=[Listed(name, kind) for kind in kinds for name in _NAMES[kind](session)]
    )


def _brokers(session: Session) -> list[str]:
    return [str(broker_id) for broker_id in reachable_brokers(session)]


def _topics(session: Session) -> list[str]:
    return list(session.rooms.image.topics.by_name)


def _with_settings(kind: int) -> Callable[[Session], list[str]]:
    """The names under which something is set, of a kind that exists by its settings alone."""

    def names(session: Session) -> list[str]:
        resources = session.rooms.image.configs.by_resource
        return [name for resource_type, name in resources if resource_type == kind]

    return names


_NAMES: dict[int, Callable[[Session], list[str]]] = {
    GROUP_RESOURCE: _with_settings(GROUP_RESOURCE),
    CLIENT_METRICS_RESOURCE: _with_settings(CLIENT_METRICS_RESOURCE),
    BROKER_LOGGER_RESOURCE: _brokers,
    BROKER_RESOURCE: _brokers,
    TOPIC_RESOURCE: _topics,
}
