"""ApiVersions: what is served, in which versions, and which features are in force.

The list of APIs is the table of `ottla.protocol.api`; nothing is in the answer that is not served.
"""

from __future__ import annotations

import re

from ottla.broker.handlers.context import Session
from ottla.protocol.api import SERVED, ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

SOFTWARE_NAMES_SINCE_VERSION = 3
ZERO_MIN_FEATURES_SINCE_VERSION = 4
"""Java clients up to 3.8 throw on a feature whose minimum is 0 (KAFKA-17011)."""

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

_API_KEYS = [
    ApiVersionsResponse.ApiVersion(int(api.key), api.advertised_min_version, api.max_version)
    for _, api in sorted(SERVED.items())
]


def handle_api_versions(
    session: Session, request: ApiVersionsRequest, version: int
) -> ApiVersionsResponse:
    """The served APIs, or INVALID_REQUEST with an empty list for an impossible software name."""
    if version >= SOFTWARE_NAMES_SINCE_VERSION and not (
        _SOFTWARE_NAME.fullmatch(request.client_software_name)
        and _SOFTWARE_NAME.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=int(ErrorCode.INVALID_REQUEST))
    response = ApiVersionsResponse(api_keys=_API_KEYS)
    if version >= SOFTWARE_NAMES_SINCE_VERSION:
        _fill_features(session, response, version)
    return response


def unsupported_version_response() -> ApiVersionsResponse:
    """The answer, in version 0, to an ApiVersions request of a version that we do not know.

    Its one entry tells the client with which version to ask again (KIP-511).
    """
    own = [entry for entry in _API_KEYS if entry.api_key == ApiKey.API_VERSIONS]
    return ApiVersionsResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=own)


def _fill_features(session: Session, response: ApiVersionsResponse, version: int) -> None:
    image = session.rooms.image
    own = image.cluster.brokers.get(session.rooms.config.node_id)
    supported = own.features if own is not None else {}
    response.supported_features = [
        ApiVersionsResponse.SupportedFeatureKey(name, lowest, highest)
        for name, (lowest, highest) in supported.items()
        if lowest > 0 or version >= ZERO_MIN_FEATURES_SINCE_VERSION
    ]
    response.finalized_features = [
        ApiVersionsResponse.FinalizedFeatureKey(name, level, level)
        for name, level in image.features.items()
    ]
    response.finalized_features_epoch = image.offset
