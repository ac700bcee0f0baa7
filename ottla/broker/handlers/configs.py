"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs.

Changes go through the controller and are in force when they are answered: publishing the new image
hands them to whoever they concern. A group and a subscription to client metrics are described by
any name, for they exist by their settings; the one logger of this broker has the level of
`ottla.log.level`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.broker.controller import configs as config_commands
from ottla.broker.controller.names import broker_id_of, topic_name_fault
from ottla.broker.handlers.context import Rooms, Session
from ottla.broker.handlers.setting_history import change_settings
from ottla.broker.handlers.telling import in_turns
from ottla.broker.metadata.image import (
    ALL_BROKERS,
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from ottla.config.describe import (
    TopicDescriber,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
)
from ottla.config.types import ConfigEntry, ConfigSource, ConfigType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

AskedResource = DescribeConfigsRequest.DescribeConfigsResource
ResourceAnswer = DescribeConfigsResponse.DescribeConfigsResult
ConfigAnswer = DescribeConfigsResponse.DescribeConfigsResourceResult
Settings = Mapping[str, str]
SynonymAnswer = DescribeConfigsResponse.DescribeConfigsSynonym

LOGGER_NAME = "ottla"
KAFKA_LEVELS = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR"}


async def handle_describe_configs(
    session: Session, request: DescribeConfigsRequest, version: int
) -> DescribeConfigsResponse:
    """Each resource is described or refused on its own, save for one of an unknown kind. One that
    is named twice for the same keys is answered once."""
    if any(resource.resource_type not in _DESCRIBERS for resource in request.resources):
        return DescribeConfigsResponse(
            results=[
                _refused(resource, KafkaError(ErrorCode.INVALID_REQUEST, "Unknown resource type"))
                for resource in request.resources
            ]
        )
    distinct = {
        (one.resource_type, one.resource_name, tuple(one.configuration_keys or ())): one
        for one in request.resources
    }
    describing = _Describing(session.rooms, request)
    return DescribeConfigsResponse(
        results=[describing.result(resource) async for resource in in_turns(distinct.values())]
    )


async def handle_alter_configs(
    session: Session, request: AlterConfigsRequest, version: int
) -> AlterConfigsResponse:
    """Replaces all settings of each resource."""
    rooms = session.rooms
    return await change_settings(
        session,
        lambda image: config_commands.alter_configs(image, request, config=rooms.config),
    )


async def handle_incremental_alter_configs(
    session: Session, request: IncrementalAlterConfigsRequest, version: int
) -> IncrementalAlterConfigsResponse:
    """Changes single settings of each resource."""
    rooms = session.rooms
    return await change_settings(
        session,
        lambda image: config_commands.incremental_alter_configs(
            image, request, config=rooms.config
        ),
    )


class _Describing:
    """What one request wants described. Resources that are set alike share their answers, which
    nobody changes: a request may name all topics, or any number of groups that nobody knows."""

    def __init__(self, rooms: Rooms, request: DescribeConfigsRequest) -> None:
        self.rooms = rooms
        self.topics = TopicDescriber(rooms.config)
        self._request = request
        self._known: dict[object, list[ConfigAnswer]] = {}

    def result(self, resource: AskedResource) -> ResourceAnswer:
        kind, name = resource.resource_type, resource.resource_name
        wanted = frozenset(resource.configuration_keys or ())
        try:
            _CHECKS[kind](self.rooms, name)
        except KafkaError as error:
            return _refused(resource, error)
        own = self.rooms.image.configs.get(kind, name) if kind in _WITH_SETTINGS else {}
        # All names by which a broker may be called mean the same one.
        alike = kind, name == ALL_BROKERS, tuple(own.items()), wanted
        configs = self._known.get(alike)
        if configs is None:
            entries = _DESCRIBERS[kind](self, name, own)
            configs = self._known[alike] = [
                _config_answer(entry, self._request)
                for entry in entries
                if not wanted or entry.name in wanted
            ]
        return ResourceAnswer(
            error_message="", resource_type=kind, resource_name=name, configs=configs
        )


def _refused(resource: AskedResource, error: KafkaError) -> ResourceAnswer:
    return ResourceAnswer(
        int(error.code), error.message or "", resource.resource_type, resource.resource_name
    )


def _config_answer(entry: ConfigEntry, request: DescribeConfigsRequest) -> ConfigAnswer:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return ConfigAnswer(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=int(entry.source),
        is_sensitive=entry.sensitive,
        synonyms=[SynonymAnswer(one.name, one.value, int(one.source)) for one in synonyms],
        config_type=int(entry.type),
        documentation=entry.doc if request.include_documentation else None,
    )


def _check_topic(rooms: Rooms, name: str) -> None:
    fault = topic_name_fault(name)
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    if name not in rooms.image.topics.by_name:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _check_broker(rooms: Rooms, name: str) -> None:
    expected = rooms.config.node_id
    if name != ALL_BROKERS and _broker_id(name) != expected:
        raise _invalid(
            f"Unexpected broker id, expected {expected} or empty string, but received {name}"
        )


def _check_logger(rooms: Rooms, name: str) -> None:
    if not name:
        raise _invalid("Broker id must not be empty")
    expected = rooms.config.node_id
    if _broker_id(name) != expected:
        raise _invalid(f"Unexpected broker id, expected {expected} but received {name}")


def _check_group(rooms: Rooms, name: str) -> None:
    if not name:
        raise _invalid("Group name must not be empty")


def _check_client_metrics(rooms: Rooms, name: str) -> None:
    if not name:
        raise _invalid("Client metrics subscription name must not be empty")


def _describe_broker(describing: _Describing, name: str, own: Settings) -> list[ConfigEntry]:
    config = describing.rooms.config
    return describe_broker_defaults(config) if name == ALL_BROKERS else describe_broker(config)


def _describe_logger(describing: _Describing, name: str, own: Settings) -> list[ConfigEntry]:
    return [
        ConfigEntry(
            name=LOGGER_NAME,
            value=KAFKA_LEVELS[describing.rooms.config.ottla_log_level],
            source=ConfigSource.DYNAMIC_BROKER_LOGGER,
            type=ConfigType.STRING,
            read_only=True,
            sensitive=False,
            synonyms=(),
            doc="",
        )
    ]


_CHECKS: dict[int, Callable[[Rooms, str], None]] = {
    TOPIC_RESOURCE: _check_topic,
    BROKER_RESOURCE: _check_broker,
    BROKER_LOGGER_RESOURCE: _check_logger,
    CLIENT_METRICS_RESOURCE: _check_client_metrics,
    GROUP_RESOURCE: _check_group,
}
_WITH_SETTINGS = frozenset((TOPIC_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE))
"""What the image keeps the settings of; a broker's are in its configuration already."""
_DESCRIBERS: dict[int, Callable[[_Describing, str, Settings], list[ConfigEntry]]] = {
    TOPIC_RESOURCE: lambda describing, name, own: describing.topics.describe(own),
    BROKER_RESOURCE: _describe_broker,
    BROKER_LOGGER_RESOURCE: _describe_logger,
    CLIENT_METRICS_RESOURCE: lambda describing, name, own: describe_client_metrics(own),
    GROUP_RESOURCE: lambda describing, name, own: describe_group(describing.rooms.config, own),
}


def _broker_id(name: str) -> int:
    broker_id = broker_id_of(name)
    if broker_id is None:
        raise _invalid(f"Broker id must be an integer, but it is: {name}")
    return broker_id


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)
