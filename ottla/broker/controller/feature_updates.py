"""Feature levels go up and down: what UpdateFeatures writes and answers.

Pure: (image, request) -> (records, response). All of a request is done or nothing. A level is
raised by an upgrade alone and lowered by a downgrade alone; metadata.version is lowered only past
levels that changed no record, for what a later level wrote an earlier one would lose.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from ottla.broker.controller.features import SUPPORTED_FEATURES
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.metadata.records import KRAFT_VERSION, METADATA_VERSION
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.protocol.messages.metadata_records import FeatureLevelRecord
from ottla.protocol.schema import Message

Update = UpdateFeaturesRequest.FeatureUpdateKey
Result = UpdateFeaturesResponse.UpdatableFeatureResult

UPGRADE_TYPES_SINCE_VERSION = 1
RESULTS_UNTIL_VERSION = 1

LEVELS_WITH_NEW_RECORDS = (7, 8, 11, 13, 14, 15, 17, 23, 30)
"""The levels of metadata.version that brought records or fields which earlier ones do not know."""

CANNOT_LOWER = "Can't downgrade the version of this feature"


class UpgradeType(IntEnum):
    """What an update may do; KIP-584 and KIP-778."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def update_features(
    image: MetadataImage, request: UpdateFeaturesRequest, *, version: int, node_id: int
) -> tuple[list[Message], UpdateFeaturesResponse]:
    """Finalizes the levels asked for; of a feature that is named twice the last one counts."""
    updates = {one.feature: one for one in request.feature_updates}
    records: list[Message] = []
    try:
        for update in updates.values():
            record = _update(image, update, version, node_id)
            if record is not None:
                records.append(record)
    except KafkaError as error:
        said = "The update failed for all features since the following feature had an error:"
        return [], UpdateFeaturesResponse(
            error_code=int(error.code), error_message=f"{said} {error.message}"
        )
    response = UpdateFeaturesResponse(error_message=None)
    if version <= RESULTS_UNTIL_VERSION:
        response.results = [Result(name, error_message="NONE") for name in updates]
    return ([] if request.validate_only else records), response


def _update(
    image: MetadataImage, update: Update, version: int, node_id: int
) -> FeatureLevelRecord | None:
    name, level = update.feature, update.max_version_level
    kind = _kind(update, version)
    if kind is None:
        raise _invalid(name, level, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _invalid(name, level, "A feature version cannot be less than 0.")
    _check_supported(image, name, level, node_id)
    current = image.features.get(name, 0)
    if level < current and kind is UpgradeType.UPGRADE:
        without = "without setting the upgrade type to either safe or unsafe downgrade."
        raise _invalid(name, level, f"{CANNOT_LOWER} {without}")
    if level > current and kind is not UpgradeType.UPGRADE:
        raise _invalid(name, level, "Can't downgrade to a newer version.")
    if name == KRAFT_VERSION and level != current:
        _refuse_kraft_version(level, current)
    if name == METADATA_VERSION and level < current:
        _check_metadata_version(level, current, kind)
    return FeatureLevelRecord(name, level) if level != current else None


def _kind(update: Update, version: int) -> UpgradeType | None:
    if version < UPGRADE_TYPES_SINCE_VERSION:
        return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    return next((one for one in UpgradeType if one == update.upgrade_type), None)


def _check_supported(image: MetadataImage, name: str, level: int, node_id: int) -> None:
    """This node first, then every broker and controller that is registered; 0 is always known."""
    _check_range(SUPPORTED_FEATURES, f"Local controller {node_id}", name, level)
    for broker in image.cluster.brokers.values():
        _check_range(broker.features, f"Broker {broker.broker_id}", name, level)
    for controller in image.cluster.controllers.values():
        if controller.controller_id != node_id:
            _check_range(controller.features, f"Controller {controller.controller_id}", name, level)
    if name not in SUPPORTED_FEATURES and name not in image.features:
        raise _invalid(name, level, f"Feature {name} not found.")


def _check_range(supported: Mapping[str, tuple[int, int]], who: str, name: str, level: int) -> None:
    known = supported.get(name)
    if known is None:
        if level:
            raise _invalid(name, level, f"{who} does not support this feature.")
    elif not known[0] <= level <= known[1]:
        raise _invalid(name, level, f"{who} only supports versions {known[0]}-{known[1]}")


def _refuse_kraft_version(level: int, current: int) -> None:
    """Control records of the quorum say it, and this node writes them when it is formatted."""
    if level < current:
        raise _invalid(KRAFT_VERSION, level, f"{CANNOT_LOWER}.")
    reason = "The voters of this quorum are static, and cannot be made dynamic while it runs."
    raise _invalid(KRAFT_VERSION, level, reason)


def _check_metadata_version(level: int, current: int, kind: UpgradeType) -> None:
    if not any(level < one <= current for one in LEVELS_WITH_NEW_RECORDS):
        return
    said = f"Unsupported metadata.version downgrade from {current} to {level}."
    if kind is UpgradeType.UNSAFE_DOWNGRADE:
        why = "Unsafe metadata downgrade is not supported in this version."
    else:
        why = (
            "Refusing to perform the requested downgrade because it might delete metadata"
            " information."
        )
    raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{said} {why}")


def _invalid(name: str, level: int, reason: str) -> KafkaError:
    said = f"Invalid update version {level} for feature {name}."
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{said} {reason}")
