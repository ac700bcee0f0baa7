"""Listener lists: `NAME://host:port,...` with the protocol that each name maps to."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ottla.config.types import ConfigError, Listener

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
EVERY_ADDRESS = ("", "0.0.0.0", "::")
PORT_MAX = 65535
NO_HOST = (
    "no host can have this name. Allowed is an address, or a name with 1 to 63 characters between"
    " two points."
)
_LISTENER = re.compile(
    r"([^:/\s]+)://(\[[0-9A-Za-z:.%]+\]|[0-9A-Za-z._%-]*):([0-9]{1,5})", re.ASCII
)
_CONNECTIONS_OF_HOST = re.compile(r"([0-9A-Za-z.%:_\[\]-]+):([0-9]{1,9})", re.ASCII)


def parse_protocol_map(text: str) -> dict[str, str]:
    """`CONTROLLER:PLAINTEXT,...` as a dictionary of upper-case names."""
    protocols: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = entry.partition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not colon or not name or protocol not in PROTOCOLS:
            raise ConfigError.of(
                "listener.security.protocol.map",
                text,
                f"{entry} is not NAME:PROTOCOL; the protocols are {', '.join(PROTOCOLS)}.",
            )
        protocols[name] = protocol
    return protocols


def parse_listeners(
    key: str, entries: tuple[str, ...], protocols: Mapping[str, str]
) -> tuple[Listener, ...]:
    """The listeners in the order given; ConfigError when one is malformed or stands twice."""
    listeners = tuple(_parse_listener(key, entry, protocols) for entry in entries)
    if len({listener.name for listener in listeners}) != len(listeners):
        raise ConfigError.of(key, ",".join(entries), "each listener needs a name of its own.")
    return listeners


def parse_connections_of_host(text: str) -> dict[str, int]:
    """`host:number,...`, as max.connections.per.ip.overrides has it, as a dictionary."""
    connections: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = _CONNECTIONS_OF_HOST.fullmatch(entry)
        if match is None:
            raise ConfigError.of(
                "max.connections.per.ip.overrides",
                text,
                f"{entry} is not host:number, for example 10.0.0.5:100.",
            )
        connections[match[1].strip("[]")] = int(match[2])
    return connections


def is_host(text: str) -> bool:
    """Whether a resolver takes it: the labels of a name are neither empty nor too long."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return "\0" not in text


def check_bindable(listeners: tuple[Listener, ...]) -> None:
    """No two listeners may ask for one address."""
    addresses = [(listener.host, listener.port) for listener in listeners if listener.port]
    if len(set(addresses)) != len(addresses):
        shown = ",".join(map(str, listeners))
        raise ConfigError.of("listeners", shown, "two listeners have the same host and port.")


def check_plaintext(listeners: tuple[Listener, ...]) -> None:
    """Encrypted and authenticating listeners are not there yet; serving them open is no answer."""
    for listener in listeners:
        if listener.protocol != "PLAINTEXT":
            raise ConfigError.of(
                "listeners",
                listener,
                f"the listener asks for {listener.protocol}, which this version does not have."
                " Only PLAINTEXT listeners can be served; the broker does not start rather than"
                " serve this one unprotected.",
            )


def check_advertised(advertised: tuple[Listener, ...], listeners: tuple[Listener, ...]) -> None:
    """Clients can only be told of a listener that exists, at an address that they can reach."""
    names = [listener.name for listener in listeners]
    for listener in advertised:
        if listener.name not in names:
            raise ConfigError.of(
                "advertised.listeners",
                listener,
                f"there is no listener {listener.name}; listeners names {', '.join(names)}.",
            )
        if listener.host in EVERY_ADDRESS:
            raise ConfigError.of(
                "advertised.listeners",
                listener,
                f"clients cannot connect to the address {listener.host or '(empty)'}. Name a host"
                " that they can reach, or leave advertised.listeners out: each client is then told"
                " the address by which it came.",
            )


def _parse_listener(key: str, entry: str, protocols: Mapping[str, str]) -> Listener:
    match = _LISTENER.fullmatch(entry)
    if match is None or int(match[3]) > PORT_MAX:
        raise ConfigError.of(
            key,
            entry,
            f"not a listener. Allowed: NAME://host:port with a port from 0 to {PORT_MAX}, for"
            " example PLAINTEXT://localhost:9092.",
        )
    host = match[2].strip("[]")
    if not is_host(host):
        raise ConfigError.of(key, entry, NO_HOST)
    name = match[1].upper()
    if name not in protocols:
        raise ConfigError.of(
            key,
            entry,
            f"no security protocol is known for {name};"
            f" add {name}:PLAINTEXT to listener.security.protocol.map.",
        )
    return Listener(name=name, host=host, port=int(match[3]), protocol=protocols[name])
