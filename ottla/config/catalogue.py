"""Every broker key that is known, acted on or not; importing this reads the large table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from functools import cache

from ottla.config.accepted import accepted
from ottla.config.broker import acting_keys
from ottla.config.keys import Key

PROTECTION_PREFIXES = ("sasl.", "ssl.")
PROTECTION_KEYS = frozenset(
    {
        "alter.config.policy.class.name",
        "authorizer.class.name",
        "connections.max.reauth.ms",
        "create.topic.policy.class.name",
        "delegation.token.secret.key",
        "principal.builder.class",
        "security.inter.broker.protocol",
        "security.providers",
    }
)
AUTHORIZER_KEYS = frozenset({"super.users", "allow.everyone.if.no.acl.found"})
"""Settings of Kafka's own authorizer; they are no broker keys but stand among them."""
REMOVED = {
    "advertised.host.name": "advertised.listeners",
    "advertised.port": "advertised.listeners",
    "broker.id.generation.enable": "node.id",
    "control.plane.listener.name": "controller.listener.names",
    "delegation.token.master.key": "delegation.token.secret.key",
    "host.name": "listeners",
    "inter.broker.protocol.version": None,
    "log.message.downconversion.enable": None,
    "log.message.format.version": None,
    "log.message.timestamp.difference.max.ms": "log.message.timestamp.before.max.ms",
    "port": "listeners",
    "zookeeper.connect": None,
    "zookeeper.connection.timeout.ms": None,
    "zookeeper.session.timeout.ms": None,
}
"""Keys of older Kafkas, with what has taken their place."""

RUN_TIME_ONLY = frozenset({"replica.alter.log.dirs.io.max.bytes.per.second"})
"""Keys that we act on and that no server.properties may have, as in Kafka."""

BY_LISTENER = frozenset({"max.connection.creation.rate"})
"""Keys that a listener's own value acts for."""


@cache
def broker_keys() -> dict[str, Key]:
    """The keys that may stand in server.properties, sorted by name."""
    table = accepted()
    known = {**table.keys, **acting_keys()}
    left_out = table.runtime_only | RUN_TIME_ONLY
    return {name: known[name] for name in sorted(known) if name not in left_out}


def broker_key(name: str) -> Key | None:
    """The key of that name, those that exist at run time only included."""
    return acting_keys().get(name) or accepted().keys.get(name)


def setting_key(name: str) -> Key | None:
    """What a setting is a value of: the key of that name, or, for a listener's own
    (listener.name.x.key), that key under its long name."""
    listener, base = split_listener_prefix(name)
    key = broker_key(base)
    if key is None or not listener:
        return key
    return replace(key, name=name, acts=key.acts and base in BY_LISTENER)


def asks_for_protection(name: str, value: str) -> bool:
    """Whether a setting expects a guard that this version does not have.

    Kafka's default value asks for nothing, and neither does an empty one.
    """
    _, name = split_listener_prefix(name)
    if name in AUTHORIZER_KEYS:
        return True
    if not name.startswith(PROTECTION_PREFIXES) and name not in PROTECTION_KEYS:
        return False
    known = broker_key(name)
    return value != "" and (known is None or value != known.default)


def split_listener_prefix(name: str) -> tuple[str, str]:
    """`listener.name.x.key` as (x, key); any other name as ("", name)."""
    if name.startswith("listener.name."):
        listener, dot, rest = name.removeprefix("listener.name.").partition(".")
        if dot:
            return listener, rest
    return "", name


def nearest(name: str, names: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """The known name that was most likely meant; `likeness` is from 0 to 1."""
    close = get_close_matches(name.lower(), names, n=1, cutoff=likeness)
    return close[0] if close else None
