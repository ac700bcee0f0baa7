"""What a change of settings does, key by key: from what to what, for the log.

Pure: (image, records) -> changes. Records that change nothing are none: a broker's setting is
written though it is what it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.broker.metadata.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    MetadataImage,
)
from ottla.broker.telemetry.shown import shown
from ottla.config.catalogue import setting_key
from ottla.config.cautions import caution_of_broker, caution_of_topic
from ottla.protocol.messages.metadata_records import (
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
)
from ottla.protocol.schema import Message

TOPIC, BROKER, GROUP = "topic", "broker", "group"
CLIENT_METRICS, QUOTA, FEATURE = "client-metrics", "quota", "feature"
RESOURCES = (TOPIC, BROKER, GROUP, CLIENT_METRICS, QUOTA, FEATURE)
DEFAULT = "<default>"
"""The broker resource of all brokers, and the part of a quota's entity that has no name."""
HIDDEN = "(hidden)"
SHOWN_CHARS_MAX = 1000
"""Of a name or value. A list of throttled replicas may have megabytes, a key that nobody knows may
have any length, and a log line is for eyes."""
WHOLE_SHOWN_MAX = 1e15
"""Larger quotas are shown with an exponent; they may have three hundred digits."""

_RESOURCE_OF = {
    TOPIC_RESOURCE: TOPIC,
    BROKER_RESOURCE: BROKER,
    GROUP_RESOURCE: GROUP,
    CLIENT_METRICS_RESOURCE: CLIENT_METRICS,
}


class SettingChange(NamedTuple):
    """One setting of one resource; a value of None is none: what is not set there. `caution` says
    why the new value does less than its name promises."""

    resource: str
    name: str
    key: str
    old: str | None
    new: str | None
    caution: str | None = None


def setting_changes(image: MetadataImage, records: Iterable[Message]) -> Iterator[SettingChange]:
    """What the records change in the image; secrets are hidden, and what is long cut."""
    for record in records:
        if isinstance(record, ConfigRecord):
            change = _of_config(image, record)
        elif isinstance(record, ClientQuotaRecord):
            change = _of_quota(image, record)
        elif isinstance(record, FeatureLevelRecord):
            change = _of_feature(image, record)
        else:
            continue
        if change.old != change.new:
            yield _fit_to_show(change)


def _of_config(image: MetadataImage, record: ConfigRecord) -> SettingChange:
    resource, key, new = _RESOURCE_OF[record.resource_type], record.name, record.value
    caution = None
    if new is not None and resource == TOPIC:
        caution = caution_of_topic(key, new)
    elif new is not None and resource == BROKER:
        caution = caution_of_broker(key, new)
    old = image.configs.get(record.resource_type, record.resource_name).get(key)
    return SettingChange(resource, record.resource_name or DEFAULT, key, old, new, caution)


def _of_quota(image: MetadataImage, record: ClientQuotaRecord) -> SettingChange:
    parts = ((part.entity_type, part.entity_name) for part in record.entity)
    entity = tuple(sorted(parts, key=lambda part: part[0]))
    old = image.client_quotas.get(entity, {}).get(record.key)
    name = ", ".join(f"{kind}={DEFAULT if one is None else one}" for kind, one in entity)
    new = None if record.remove else _number(record.value)
    return SettingChange(QUOTA, name, record.key, None if old is None else _number(old), new)


def _of_feature(image: MetadataImage, record: FeatureLevelRecord) -> SettingChange:
    old = image.features.get(record.name, 0)
    return SettingChange(FEATURE, record.name, "level", str(old), str(record.feature_level))


def _fit_to_show(change: SettingChange) -> SettingChange:
    is_secret = change.resource == BROKER and _is_secret(change.key)
    old, new = (
        HIDDEN if is_secret and value is not None else shown(value, SHOWN_CHARS_MAX)
        for value in (change.old, change.new)
    )
    key, name = shown(change.key, SHOWN_CHARS_MAX), shown(change.name, SHOWN_CHARS_MAX)
    return change._replace(name=name, key=key, old=old, new=new)


def _is_secret(key: str) -> bool:
    """Passwords, and what nobody here knows: a plugin's key may be one."""
    known = setting_key(key)
    return known is None or known.sensitive


def _number(value: float) -> str:
    is_short = value.is_integer() and abs(value) < WHOLE_SHOWN_MAX
    return str(int(value)) if is_short else repr(value)
