"""SaslHandshake and SaslAuthenticate on a listener that asks nobody who they are.

A client that is set to authenticate hears at once that this cannot be; without an answer it would
try again until its time is over, and never name the cause.
"""

from __future__ import annotations

from ottla.broker.handlers.context import Session
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

WAY_OUT = "The listener is PLAINTEXT and has no SASL: set security.protocol=PLAINTEXT."


def handle_sasl_handshake(
    session: Session, request: SaslHandshakeRequest, version: int
) -> SaslHandshakeResponse:
    """No mechanism is to be had, whichever is asked for; the connection stays."""
    return SaslHandshakeResponse(int(ErrorCode.ILLEGAL_SASL_STATE))


def handle_sasl_authenticate(
    session: Session, request: SaslAuthenticateRequest, version: int
) -> SaslAuthenticateResponse:
    """Nothing is looked at: there was no handshake that it could follow."""
    return SaslAuthenticateResponse(int(ErrorCode.ILLEGAL_SASL_STATE), WAY_OUT)
