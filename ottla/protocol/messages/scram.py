"""SCRAM credentials: read and change."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct
from ottla.protocol.wire import int8, int16, int32


class DescribeUserScramCredentialsRequest(Message, key=50, versions="0", flexible="0+"):
    """Mechanisms and iterations of users; null users are all."""

    class UserName(Struct):
        name: str = ""

    users: list[UserName] | None = []


class DescribeUserScramCredentialsResponse(Message, key=50, versions="0", flexible="0+"):
    """The answer to DescribeUserScramCredentials."""

    class CredentialInfo(Struct):
        mechanism: int8 = 0
        iterations: int32 = 0

    class DescribeUserScramCredentialsResult(Struct):
        user: str = ""
        error_code: int16 = 0
        error_message: str | None = ""
        credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo] = []

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = []


class AlterUserScramCredentialsRequest(Message, key=51, versions="0", flexible="0+"):
    """Set or delete credentials; the salted password comes, not the password."""

    class ScramCredentialDeletion(Struct):
        name: str = ""
        mechanism: int8 = 0

    class ScramCredentialUpsertion(Struct):
        name: str = ""
        mechanism: int8 = 0
        iterations: int32 = 0
        salt: bytes = b""
        salted_password: bytes = b""

    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []


class AlterUserScramCredentialsResponse(Message, key=51, versions="0", flexible="0+"):
    """The answer to AlterUserScramCredentials."""

    class AlterUserScramCredentialsResult(Struct):
        user: str = ""
        error_code: int16 = 0
        error_message: str | None = ""

    throttle_time_ms: int32 = 0
    results: list[AlterUserScramCredentialsResult] = []
