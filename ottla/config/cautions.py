"""Settings that are taken and do not do what their names promise: said at the start, and when set.

Two settings that act have values that do not: logs are not compacted yet; and a minimum of in-sync
replicas is never more than a partition's replicas, in Kafka neither, of which a single node has
one. Kafka's keys that have no meaning here at all are the third case. A fourth is what a
start gives while the cluster's metadata holds another value, made at run time: that is in force.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.config.catalogue import setting_key
from ottla.config.describe import FALLBACKS_OF
from ottla.config.keys import Key, Value, render
from ottla.config.topic import BROKER_KEY_OF, topic_defaults, topic_keys

NO_EFFECT = "accepted without effect"
NAMED_MAX = 3
"""Topics that a sentence of the start names; of the others it says how many there are."""


class _Promise(NamedTuple):
    """A topic key that has values which do less than they say, and what there is to say then."""

    is_empty: Callable[[Value], bool]
    sentence: str


def _is_compact(value: Value) -> bool:
    return isinstance(value, tuple) and "compact" in value


def _is_many(value: Value) -> bool:
    return isinstance(value, int) and value > 1


_PROMISES = {
    "cleanup.policy": _Promise(
        _is_compact,
        "logs are not compacted yet; records stay, or go by retention where delete is set, too",
    ),
    "min.insync.replicas": _Promise(
        _is_many,
        "no more than the replicas that there are, as in Kafka: on a single node acks=all waits"
        " for one",
    ),
}
_TOPIC_KEY_OF = {BROKER_KEY_OF[name]: name for name in _PROMISES}


def caution_of_topic(name: str, text: str) -> str | None:
    """What who sets a topic's setting to this (valid) text should know, if anything."""
    return _caution(topic_keys().get(name), name, text)


def caution_of_broker(name: str, text: str) -> str | None:
    """The same of a broker's. A key that nobody knows may have any text, and there is nothing to
    say of it."""
    return _caution(setting_key(name), _TOPIC_KEY_OF.get(name), text)


def _caution(key: Key | None, topic_name: str | None, text: str) -> str | None:
    if key is None:
        return None
    promise = _PROMISES.get(topic_name or "")
    if promise is not None:
        return promise.sentence if promise.is_empty(key.parse(text)) else None
    return None if key.acts else NO_EFFECT


def cautions(config: BrokerConfig, topics: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Sentences for the start, by the settings in force. `topics` are what each topic has set for
    itself."""
    defaults = topic_defaults(config)
    sentences = []
    for name, promise in _PROMISES.items():
        places = []
        if promise.is_empty(defaults[name]):
            places.append(f"{BROKER_KEY_OF[name]}={render(defaults[name])}")
        key = topic_keys()[name]
        own = [
            topic
            for topic, settings in topics.items()
            if name in settings and promise.is_empty(key.parse(settings[name]))
        ]
        if own:
            places.append(f"{name} of {_shown(sorted(own))}")
        if places:
            sentences.append(f"{', '.join(places)}: {promise.sentence}")
    return sentences


def overruled(config: BrokerConfig, origins: Mapping[str, str]) -> list[str]:
    """Sentences on what was given at the start and is not in force, for a setting made at run time
    goes before it. `origins` say where each of the start's settings was given."""
    layers = config.layers
    sentences = []
    for name, text in sorted({**layers.dynamic_default, **layers.dynamic_broker}.items()):
        family = FALLBACKS_OF.get(name, (name,))
        weaker = family[family.index(name) :]
        given = next((one for one in weaker if one in layers.static), None)
        if given is None or (given == name and _is_same(name, text, layers.static[given])):
            continue
        key = setting_key(name)
        scope = "this broker" if name in layers.dynamic_broker else "all brokers"
        made, before = "a value", "that"
        if key is not None and not key.sensitive:  # what nobody knows may be a plugin's secret
            made, before = _printable(text), _printable(layers.static[given])
        if given != name:
            before = f"{given}={before}"
        sentences.append(
            f"{name}: {made}, changed at run time for {scope}, goes before {before} of"
            f" {origins.get(given, 'the start')}; kafka-configs.sh --delete-config takes it back"
        )
    return sentences


def _is_same(name: str, text: str, other: str) -> bool:
    key = setting_key(name)
    return text == other if key is None else key.parse(text) == key.parse(other)


def _printable(text: str) -> str:
    """A client has set it, and must not command the terminal."""
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)


def _shown(topics: list[str]) -> str:
    more = len(topics) - NAMED_MAX
    noun = "topic" if len(topics) == 1 else "topics"
    named = ", ".join(topics[:NAMED_MAX])
    return f"{noun} {named} and {more} more" if more > 0 else f"{noun} {named}"
