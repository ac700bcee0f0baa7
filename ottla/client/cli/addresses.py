"""HOST:PORT, as options of the commands take it: checked before anybody is asked."""

from __future__ import annotations

import re

from ottla.config.listeners import PORT_MAX, is_host

PORT_DIGITS_MAX = 5
ALLOWED = f"allowed is HOST:PORT with a port from 1 to {PORT_MAX}"

# A name, or an IPv4 or IPv6 address; nothing of a URL.
_HOST = re.compile(r"[\w.:%-]+")


def parse_address(text: str) -> tuple[str, int] | None:
    """Host and port of HOST:PORT or [IPV6]:PORT; None if it is of no such form."""
    host, _, digits = text.strip().rpartition(":")
    port = parse_port(digits)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if port is None or not (_HOST.fullmatch(host) and is_host(host)):
        return None
    return host, port


def parse_port(digits: str) -> int | None:
    """A port to connect to, or None if the digits are none."""
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= PORT_DIGITS_MAX):
        return None
    port = int(digits)
    return port if 0 < port <= PORT_MAX else None
