"""Delegation tokens."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import int16, int32, int64


class CreateDelegationTokenRequest(Message, key=38, versions="1-3", flexible="2+"):
    """A token for the caller or, from 3 on, for another owner."""

    class CreatableRenewers(Struct):
        principal_type: str = ""
        principal_name: str = ""

    owner_principal_type: str | None = field("", versions="3+")
    owner_principal_name: str | None = field("", versions="3+")
    renewers: list[CreatableRenewers] = []
    max_lifetime_ms: int64 = 0


class CreateDelegationTokenResponse(Message, key=38, versions="1-3", flexible="2+"):
    """The answer to CreateDelegationToken."""

    error_code: int16 = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = field("", versions="3+")
    token_requester_principal_name: str = field("", versions="3+")
    issue_timestamp_ms: int64 = 0
    expiry_timestamp_ms: int64 = 0
    max_timestamp_ms: int64 = 0
    token_id: str = ""
    hmac: bytes = b""
    throttle_time_ms: int32 = 0


class RenewDelegationTokenRequest(Message, key=39, versions="1-2", flexible="2+"):
    """Let a token live longer."""

    hmac: bytes = b""
    renew_period_ms: int64 = 0


class RenewDelegationTokenResponse(Message, key=39, versions="1-2", flexible="2+"):
    """The answer to RenewDelegationToken."""

    error_code: int16 = 0
    expiry_timestamp_ms: int64 = 0
    throttle_time_ms: int32 = 0


class ExpireDelegationTokenRequest(Message, key=40, versions="1-2", flexible="2+"):
    """Set the end of a token; a negative period ends it at once."""

    hmac: bytes = b""
    expiry_time_period_ms: int64 = 0


class ExpireDelegationTokenResponse(Message, key=40, versions="1-2", flexible="2+"):
    """The answer to ExpireDelegationToken."""

    error_code: int16 = 0
    expiry_timestamp_ms: int64 = 0
    throttle_time_ms: int32 = 0


class DescribeDelegationTokenRequest(Message, key=41, versions="1-3", flexible="2+"):
    """The tokens of owners; null owners are all."""

    class DescribeDelegationTokenOwner(Struct):
        principal_type: str = ""
        principal_name: str = ""

    owners: list[DescribeDelegationTokenOwner] | None = []


class DescribeDelegationTokenResponse(Message, key=41, versions="1-3", flexible="2+"):
    """The answer to DescribeDelegationToken."""

    class DescribedDelegationTokenRenewer(Struct):
        principal_type: str = ""
        principal_name: str = ""

    class DescribedDelegationToken(Struct):
        principal_type: str = ""
        principal_name: str = ""
        token_requester_principal_type: str = field("", versions="3+")
        token_requester_principal_name: str = field("", versions="3+")
        issue_timestamp: int64 = 0
        expiry_timestamp: int64 = 0
        max_timestamp: int64 = 0
        token_id: str = ""
        hmac: bytes = b""
        renewers: list[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer] = []

    error_code: int16 = 0
    tokens: list[DescribedDelegationToken] = []
    throttle_time_ms: int32 = 0
