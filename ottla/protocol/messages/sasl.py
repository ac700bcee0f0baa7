"""Authentication."""

from __future__ import annotations

from ottla.protocol.schema import Message, field
from ottla.protocol.wire import int16, int64


class SaslHandshakeRequest(Message, key=17, versions="0-1"):
    """Choose a mechanism. After version 0 the tokens follow without Kafka headers, after 1 in
    SaslAuthenticate.
    """

    mechanism: str = ""


class SaslHandshakeResponse(Message, key=17, versions="0-1"):
    """The answer to SaslHandshake."""

    error_code: int16 = 0
    mechanisms: list[str] = []


class SaslAuthenticateRequest(Message, key=36, versions="0-2", flexible="2+"):
    """One token of the mechanism that was chosen."""

    auth_bytes: bytes = b""


class SaslAuthenticateResponse(Message, key=36, versions="0-2", flexible="2+"):
    """The token that answers. 1 adds for how long the session lives."""

    error_code: int16 = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int64 = field(0, versions="1+", ignorable=True)
