"""Settings change at run time: what IncrementalAlterConfigs and AlterConfigs write and answer.

Pure: (image, request) -> (records, response). Topics, brokers, groups and subscriptions to client
metrics have settings; the level of a logger cannot be changed. Each resource is changed whole or
not at all, and answered by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import cached_property
from typing import TypeVar

from ottla.broker.controller.names import broker_id_of, topic_name_fault
from ottla.broker.metadata.image import (
    ALL_BROKERS,
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    MetadataImage,
)
from ottla.config.broker import BrokerConfig
from ottla.config.client_metrics import SubscriptionError, validate_client_metrics
from ottla.config.describe import TopicDescriber, describe_broker
from ottla.config.dynamic import validate_broker_overrides
from ottla.config.group import validate_group_overrides
from ottla.config.topic import check_topic_overrides
from ottla.config.types import ConfigEntry, ConfigError, ConfigType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.metadata_records import ClearElrRecord, ConfigRecord
from ottla.protocol.schema import Message
from ottla.protocol.wire import STRING_SIZE_MAX

MIN_INSYNC_REPLICAS = "min.insync.replicas"
NAMED_LAST = (TOPIC_RESOURCE, GROUP_RESOURCE, CLIENT_METRICS_RESOURCE)
"""Kafka looks at such a resource's name when it has found out what its settings will be."""

Settings = dict[str, str]
Incremental = IncrementalAlterConfigsRequest.AlterConfigsResource
Whole = AlterConfigsRequest.AlterConfigsResource
R = TypeVar("R", Incremental, Whole)


class Operation(IntEnum):
    """What an incremental change does to one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def incremental_alter_configs(
    image: MetadataImage, request: IncrementalAlterConfigsRequest, *, config: BrokerConfig
) -> tuple[list[Message], IncrementalAlterConfigsResponse]:
    """Changes single settings. `config` is this broker's, for its id, defaults and rules."""
    change = _Change(image, config)

    def alter(resource: Incremental) -> list[Message]:
        return change.records(resource, change.altered(resource))

    records, outcomes = _alter_each(request.resources, alter)
    answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    response = IncrementalAlterConfigsResponse(
        responses=[answer(code, message, kind, name) for kind, name, code, message in outcomes]
    )
    return ([] if request.validate_only else records), response


def alter_configs(
    image: MetadataImage, request: AlterConfigsRequest, *, config: BrokerConfig
) -> tuple[list[Message], AlterConfigsResponse]:
    """Replaces all settings of each resource by those given (the older, deprecated request)."""
    change = _Change(image, config)

    def alter(resource: Whole) -> list[Message]:
        return change.records(resource, _replaced(resource))

    records, outcomes = _alter_each(request.resources, alter)
    answer = AlterConfigsResponse.AlterConfigsResourceResponse
    response = AlterConfigsResponse(
        responses=[answer(code, message, kind, name) for kind, name, code, message in outcomes]
    )
    return ([] if request.validate_only else records), response


def _alter_each(
    resources: list[R], alter: Callable[[R], list[Message]]
) -> tuple[list[Message], list[tuple[int, str, int, str | None]]]:
    """The records, and per resource its type, name, error and message; one asked twice is once."""
    records: list[Message] = []
    outcomes: dict[tuple[int, str], tuple[int, str | None]] = {}
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    for resource in resources:
        key = (resource.resource_type, resource.resource_name)
        try:
            if counts[key] > 1:
                raise _invalid("Each resource must appear at most once.")
            records += alter(resource)
        except KafkaError as error:
            outcomes[key] = (int(error.code), error.message)
        else:
            outcomes[key] = (int(ErrorCode.NONE), None)
    return records, [
        (kind, name, code, message) for (kind, name), (code, message) in outcomes.items()
    ]


class _Change:
    """Changes against one image and one broker's configuration."""

    def __init__(self, image: MetadataImage, config: BrokerConfig) -> None:
        self._image = image
        self._config = config
        self._valid: set[tuple[int, tuple[tuple[str, str], ...]]] = set()

    @cached_property
    def _topics(self) -> TopicDescriber:
        return TopicDescriber(self._config)

    @cached_property
    def _of_broker(self) -> list[ConfigEntry]:
        return describe_broker(self._config)

    def altered(self, resource: Incremental) -> Settings:
        """All settings of the resource as they will be; those asked for are checked in form."""
        _check_form(
            resource.configs,
            (one for one in resource.configs if one.config_operation != Operation.DELETE),
        )
        kind, name = resource.resource_type, resource.resource_name
        if kind not in NAMED_LAST:
            self._check_resource(kind, name)
        settings = dict(self._image.configs.get(kind, name))
        for item in resource.configs:
            if item.config_operation == Operation.DELETE:
                settings.pop(item.name, None)
                continue
            assert item.value is not None
            if item.config_operation == Operation.SET:
                settings[item.name] = item.value
            elif item.config_operation in (Operation.APPEND, Operation.SUBTRACT):
                operation = Operation(item.config_operation)
                parts = self._parts(kind, item.name, operation, settings)
                settings[item.name] = _combined(item.name, parts, operation, item.value)
            else:
                raise _invalid(f"Unknown operation type {item.config_operation}")
        return settings

    def records(self, resource: Incremental | Whole, settings: Settings) -> list[Message]:
        """What makes the resource's settings these, once they are found valid. That a topic exists
        is looked at last, as in Kafka."""
        kind, name = resource.resource_type, resource.resource_name
        self._check_resource(kind, name)
        old = self._image.configs.get(kind, name)
        named = {item.name: None for item in resource.configs}
        self._check_values(kind, name, settings)
        self._check_elr(kind, name, old, settings)
        if kind == TOPIC_RESOURCE:
            self._check_existence(name)
        records: list[Message] = []
        for key in dict.fromkeys([*named, *old]):
            value = settings.get(key)
            # A broker's setting is written though unchanged: that reloads what it names.
            if value != old.get(key) or (kind == BROKER_RESOURCE and key in named):
                records.append(ConfigRecord(kind, name, key, value))
                if key == MIN_INSYNC_REPLICAS and self._image.elr_enabled:
                    records.append(ClearElrRecord(name if kind == TOPIC_RESOURCE else ""))
        return records

    def _check_resource(self, kind: int, name: str) -> None:
        if kind == TOPIC_RESOURCE:
            _check_topic_name(name)
        elif kind == BROKER_RESOURCE:
            self._check_broker(name)
        elif kind == GROUP_RESOURCE:
            if not name:
                raise _invalid("Default group resources are not allowed.")
        elif kind == CLIENT_METRICS_RESOURCE:
            if not name:
                raise _invalid("Subscription name can't be empty")
        elif kind == BROKER_LOGGER_RESOURCE:
            raise _invalid("Loggers are read-only: start the broker with another ottla.log.level.")
        else:
            raise _invalid(f"Unknown resource type {kind}")

    def _check_existence(self, name: str) -> None:
        if name not in self._image.topics.by_name:
            reason = f"The topic '{name}' does not exist."
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)

    def _check_broker(self, name: str) -> None:
        """A broker changes its own settings and the defaults of all, no other broker's."""
        if name == ALL_BROKERS:
            return
        broker_id = broker_id_of(name)
        if broker_id is None:
            raise _invalid(f"Node id must be an integer, but it is: {name}")
        if broker_id != self._config.node_id:
            expected = self._config.node_id
            raise _invalid(f"Unexpected broker id, expected {expected}, but received {name}")

    def _check_values(self, kind: int, name: str, settings: Settings) -> None:
        """Whether a resource may have these settings: once for all of a kind that are set alike,
        as a script sets them. All but brokers are checked without regard to their names."""
        alike = kind, tuple(settings.items())
        if kind == BROKER_RESOURCE or alike not in self._valid:
            self._check_by_kind(kind, name, settings)
            self._valid.add(alike)

    def _check_by_kind(self, kind: int, name: str, settings: Settings) -> None:
        try:
            if kind == TOPIC_RESOURCE:
                check_topic_overrides(settings, self._topics.defaults)
            elif kind == GROUP_RESOURCE:
                validate_group_overrides(settings, self._config)
            elif kind == CLIENT_METRICS_RESOURCE:
                validate_client_metrics(settings)
            else:
                validate_broker_overrides(self._config, settings, one_broker=name != ALL_BROKERS)
        except ConfigError as error:
            # Kafka answers a broker's bad value so, for want of a better code (KAFKA-13609).
            as_request = kind == BROKER_RESOURCE or isinstance(error, SubscriptionError)
            code = ErrorCode.INVALID_REQUEST if as_request else ErrorCode.INVALID_CONFIG
            raise KafkaError(code, error.message) from error

    def _check_elr(self, kind: int, name: str, old: Settings, new: Settings) -> None:
        if kind != BROKER_RESOURCE or not self._image.elr_enabled:
            return
        before, after = old.get(MIN_INSYNC_REPLICAS), new.get(MIN_INSYNC_REPLICAS)
        if name == ALL_BROKERS and before is not None and after is None:
            reason = f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled."
            raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
        if name != ALL_BROKERS and before != after:
            reason = f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled."
            raise KafkaError(ErrorCode.INVALID_CONFIG, reason)

    def _parts(self, kind: int, key: str, operation: Operation, settings: Settings) -> list[str]:
        """The elements of a list setting as it stands, be it by default."""
        entry = None
        if kind == TOPIC_RESOURCE:
            entry = _entry(self._topics.describe({}), key)
        elif kind == BROKER_RESOURCE:
            entry = _entry(self._of_broker, key)
        if entry is None or entry.type != ConfigType.LIST:
            reason = f"Can't {operation.name} to key {key} because its type is not LIST."
            raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
        value = settings.get(key, entry.value)
        return [] if not value else [part.strip() for part in value.split(",")]


def _check_topic_name(name: str) -> None:
    if not name:
        raise _invalid("Default topic resources are not allowed.")
    fault = topic_name_fault(name)
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)


def _replaced(resource: Whole) -> Settings:
    _check_form(resource.configs, resource.configs)
    return {item.name: item.value for item in resource.configs if item.value is not None}


def _check_form(
    items: Iterable[IncrementalAlterConfigsRequest.AlterableConfig]
    | Iterable[AlterConfigsRequest.AlterableConfig],
    needing_value: Iterable[IncrementalAlterConfigsRequest.AlterableConfig]
    | Iterable[AlterConfigsRequest.AlterableConfig],
) -> None:
    names = [item.name for item in items]
    if len(set(names)) != len(names):
        raise _invalid("Error due to duplicate config keys")
    null = [item.name for item in needing_value if item.value is None]
    if null:
        raise _invalid(f"Null value not supported for : {','.join(null)}")


def _combined(key: str, parts: list[str], operation: Operation, value: str) -> str:
    given = value.split(",")
    # Nothing stands behind the last comma, as in Kafka; a value of nothing is one element.
    while value and given and not given[-1]:
        given.pop()
    if operation is Operation.APPEND:
        combined = ",".join(dict.fromkeys([*parts, *given]))
        if len(combined.encode()) > STRING_SIZE_MAX:
            reason = f"With that, {key} would have more than {STRING_SIZE_MAX} bytes."
            raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
        return combined
    taken_out = frozenset(given)
    return ",".join(part for part in parts if part not in taken_out)


def _entry(entries: list[ConfigEntry], name: str) -> ConfigEntry | None:
    return next((entry for entry in entries if entry.name == name), None)


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)
