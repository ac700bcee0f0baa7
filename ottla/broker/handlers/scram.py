"""DescribeUserScramCredentials: which users have credentials, without the credentials (KIP-554).

They are kept in the metadata, where a directory of Apache Kafka's may have some.
"""

from __future__ import annotations

from collections import Counter

from ottla.broker.handlers.context import Session
from ottla.protocol.errors import ErrorCode, cut_message
from ottla.protocol.messages.scram import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
Info = DescribeUserScramCredentialsResponse.CredentialInfo


def handle_describe_user_scram_credentials(
    session: Session, request: DescribeUserScramCredentialsRequest, version: int
) -> DescribeUserScramCredentialsResponse:
    """Mechanism and iterations of each; of all users for null, and for none named."""
    known: dict[str, list[Info]] = {}
    for credential in session.rooms.image.scram.values():
        info = Info(credential.mechanism, credential.iterations)
        known.setdefault(credential.name, []).append(info)
    asked = Counter(user.name for user in request.users or ())
    response = DescribeUserScramCredentialsResponse()
    for name in asked or known:
        result = Result(name, error_message=None)
        response.results.append(result)
        if asked[name] > 1:
            result.error_code = int(ErrorCode.DUPLICATE_RESOURCE)
            result.error_message = cut_message(
                "Cannot describe SCRAM credentials for the same user twice in a single request:"
                f" {name}"
            )
        elif name not in known:
            result.error_code = int(ErrorCode.RESOURCE_NOT_FOUND)
            result.error_message = cut_message(
                f"Attempt to describe a user credential that does not exist: {name}"
            )
        else:
            result.credential_infos = known[name]
    return response
