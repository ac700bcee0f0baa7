"""Settings as DescribeConfigs shows them: value, source and synonyms, by Kafka's rules.

A setting's synonyms are the places its value could come from, strongest first, and begin with the
first place under the asked name: `log.retention.hours` alone does not show under
`log.retention.ms`. The source is that of the first synonym, or the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import dropwhile

from ottla.config.broker import BrokerConfig
from ottla.config.catalogue import broker_key, broker_keys, setting_key, split_listener_prefix
from ottla.config.checks import RETENTION_KEYS
from ottla.config.client_metrics import CLIENT_METRICS_KEYS
from ottla.config.group import GROUP_KEYS, broker_synonym
from ottla.config.keys import Dynamic, Key, render
from ottla.config.topic import BROKER_KEY_OF, topic_defaults, topic_keys
from ottla.config.types import ConfigEntry, ConfigSource, ConfigType, Synonym

_FALLBACKS = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    RETENTION_KEYS,
)
FALLBACKS_OF = {name: names for names in _FALLBACKS for name in names}
"""Of each name all of its family: whichever comes first among them and is set holds."""


class TopicDescriber:
    """Describes topics of one broker configuration. What a topic does not set itself is the same
    entry for all of them: all 33 take half a millisecond, and a request may name thousands."""

    def __init__(self, config: BrokerConfig) -> None:
        self.defaults = topic_defaults(config)
        """The value of every topic key for a topic that sets none."""
        self._unset: list[tuple[Key, ConfigEntry]] = []
        for name, key in sorted(topic_keys().items()):
            synonyms = _synonyms(config, BROKER_KEY_OF[name]) if name in BROKER_KEY_OF else ()
            value = render(self.defaults[name])
            self._unset.append((key, _entry(key, value, synonyms, read_only=False)))
        self._shown = [entry for key, entry in self._unset if not key.internal]

    def describe(self, overrides: Mapping[str, str | None]) -> list[ConfigEntry]:
        """The settings of a topic with these of its own, sorted by name; not to be changed."""
        if not overrides:
            return self._shown
        return [
            self._set(key, entry, overrides[key.name]) if key.name in overrides else entry
            for key, entry in self._unset
            if key.name in overrides or not key.internal
        ]

    def _set(self, key: Key, entry: ConfigEntry, text: str | None) -> ConfigEntry:
        value = render(self.defaults[key.name] if text is None else key.parse(text))
        synonyms = (Synonym(key.name, value, ConfigSource.TOPIC), *entry.synonyms)
        return _entry(key, value, synonyms, read_only=False)


def describe_broker(config: BrokerConfig) -> list[ConfigEntry]:
    """The settings of this broker, sorted by name; hidden ones only where they are set."""
    effective = config.layers.effective()
    names = {name for name, key in broker_keys().items() if not _hidden(key)} | effective.keys()
    return [
        _describe_broker_key(name, effective.get(name), _synonyms(config, name))
        for name in sorted(names)
    ]


def describe_broker_defaults(config: BrokerConfig) -> list[ConfigEntry]:
    """The settings that were made for all brokers at run time, sorted by name."""
    entries = []
    made = ConfigSource.DYNAMIC_DEFAULT_BROKER
    for name, text in sorted(config.layers.dynamic_default.items()):
        synonyms = tuple(one for one in _synonyms(config, name) if one.source is made)
        entries.append(_describe_broker_key(name, text, synonyms))
    return entries


def describe_group(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """The settings of a group with these of its own, sorted by name."""
    entries = []
    for name, key in sorted(GROUP_KEYS.items()):
        synonym = broker_synonym(name)
        if synonym is not None:
            synonyms = _synonyms(config, synonym)
        else:
            synonyms = (Synonym(name, key.default, ConfigSource.DEFAULT),)
        if name in overrides:
            value = render(key.parse(overrides[name]))
            synonyms = (Synonym(name, value, ConfigSource.GROUP), *synonyms)
        entries.append(_entry(key, synonyms[0].value, synonyms, read_only=False))
    return entries


def describe_client_metrics(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """The settings of a subscription to client metrics, sorted by name."""
    entries = []
    for name, key in sorted(CLIENT_METRICS_KEYS.items()):
        value = key.default
        synonyms: tuple[Synonym, ...] = ()
        if name in overrides:
            value = render(key.parse(overrides[name]))
            synonyms = (Synonym(name, value, ConfigSource.CLIENT_METRICS),)
        entries.append(_entry(key, value, synonyms, read_only=False))
    return entries


def _hidden(key: Key) -> bool:
    return key.internal or key.name.startswith("ottla.")


def _describe_broker_key(name: str, text: str | None, synonyms: tuple[Synonym, ...]) -> ConfigEntry:
    key = setting_key(name)
    if key is None:
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        return ConfigEntry(name, None, source, ConfigType.UNKNOWN, True, True, synonyms, "")
    value = key.default if text is None else render(key.parse(text))
    # A listener's own can be changed; Kafka calls it read-only all the same.
    read_only = key.dynamic is Dynamic.NO or broker_key(name) is None
    return _entry(key, value, synonyms, read_only=read_only)


def _entry(
    key: Key, value: str | None, synonyms: tuple[Synonym, ...], *, read_only: bool
) -> ConfigEntry:
    return ConfigEntry(
        name=key.name,
        value=None if key.sensitive else value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        type=key.type,
        read_only=read_only,
        sensitive=key.sensitive,
        synonyms=synonyms,
        doc=key.sentence,
    )


def _synonyms(config: BrokerConfig, name: str) -> tuple[Synonym, ...]:
    listener, base = split_listener_prefix(name)
    names = (name, base) if listener else FALLBACKS_OF.get(name, (name,))
    places = _places(config, names)
    return tuple(dropwhile(lambda synonym: synonym.name != name, places))


def _places(config: BrokerConfig, names: tuple[str, ...]) -> Iterator[Synonym]:
    layers = config.layers
    for source, texts in (
        (ConfigSource.DYNAMIC_BROKER, layers.dynamic_broker),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, layers.dynamic_default),
        (ConfigSource.STATIC_BROKER, layers.static),
    ):
        for name in names:
            if name in texts:
                yield _synonym(name, texts[name], source)
    for name in names:
        # What exists at run time only has no default for server.properties, as in Kafka.
        key = broker_keys().get(name)
        if key is not None and key.default is not None:
            yield _synonym(name, key.default, ConfigSource.DEFAULT)


def _synonym(name: str, text: str, source: ConfigSource) -> Synonym:
    key = setting_key(name)
    return Synonym(name, None if key is None or key.sensitive else text, source)
