"""UpdateFeatures: a table of levels and kinds of updates, as Apache Kafka 4.3.1 answers them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ottla.broker.controller.feature_updates import LEVELS_WITH_NEW_RECORDS, update_features
from ottla.broker.controller.features import SUPPORTED_FEATURES
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.metadata.records import LATEST_METADATA_VERSION, LOWEST_METADATA_VERSION
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.features import UpdateFeaturesRequest
from ottla.protocol.messages.metadata_records import FeatureLevelRecord, RegisterBrokerRecord
from ottla.protocol.schema import Message
from tests.controller.clusters import applied

UP, SAFE, UNSAFE = 1, 2, 3
MV = "metadata.version"
Update = UpdateFeaturesRequest.FeatureUpdateKey


def _image(level: int, **others: int) -> MetadataImage:
    feature = RegisterBrokerRecord.BrokerFeature
    records: list[Message] = [
        FeatureLevelRecord(MV, level),
        RegisterBrokerRecord(
            broker_id=1, features=[feature(name, *known) for name, known in _SUPPORTED.items()]
        ),
    ]
    records += [FeatureLevelRecord(f"{name}.version", level) for name, level in others.items()]
    return applied(records)


_SUPPORTED = dict(SUPPORTED_FEATURES)


@dataclass(frozen=True)
class Row:
    level: int
    feature: str
    to: int
    kind: int
    says: str | None
    """What the refusal says; None if it is done."""


ROWS = [
    Row(30, MV, 30, UP, None),
    Row(30, MV, 30, SAFE, None),
    Row(22, MV, 30, UP, None),
    Row(22, MV, 30, SAFE, "Can't downgrade to a newer version."),
    Row(30, MV, 31, UP, "Local controller 1 only supports versions 7-30"),
    Row(30, MV, 6, SAFE, "Local controller 1 only supports versions 7-30"),
    Row(30, MV, 0, UNSAFE, "Local controller 1 only supports versions 7-30"),
    Row(30, MV, -1, UP, "A feature version cannot be less than 0."),
    Row(30, MV, 30, 0, "The controller does not support the given upgrade type."),
    Row(30, MV, 30, 4, "The controller does not support the given upgrade type."),
    Row(30, MV, 29, UP, "without setting the upgrade type to either safe or unsafe downgrade."),
    Row(30, MV, 29, SAFE, "downgrade from 30 to 29. Refusing to perform the requested"),
    Row(30, MV, 29, UNSAFE, "Unsafe metadata downgrade is not supported in this version."),
    Row(29, MV, 23, SAFE, None),
    Row(29, MV, 22, SAFE, "downgrade from 29 to 22. Refusing"),
    Row(10, MV, 8, UNSAFE, None),
    Row(30, "kraft.version", 2, UP, "Local controller 1 only supports versions 0-1"),
    Row(30, "kraft.version", 1, UP, "cannot be made dynamic"),
    Row(30, "kraft.version", 0, UP, None),
    Row(30, "nope", 1, UP, "Local controller 1 does not support this feature."),
    Row(30, "nope", 0, SAFE, "Feature nope not found."),
    Row(30, "", 1, UP, "Local controller 1 does not support this feature."),
]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_updates(row: Row) -> None:
    image = _image(row.level)
    request = UpdateFeaturesRequest(
        1000, [Update(row.feature, row.to, False, row.kind)], validate_only=False
    )

    records, response = update_features(image, request, version=2, node_id=1)

    if row.says is None:
        assert (response.error_code, response.error_message) == (0, None)
        after = applied(records, image) if records else image
        assert after.features.get(row.feature, 0) == row.to
    else:
        assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert (response.error_message or "").startswith(
            "The update failed for all features since the following feature had an error: "
        )
        assert row.says in (response.error_message or "")
        assert records == []


def test_a_downgrade_needs_a_range_without_new_records() -> None:
    for current in range(LOWEST_METADATA_VERSION, LATEST_METADATA_VERSION + 1):
        for level in range(LOWEST_METADATA_VERSION, current):
            request = UpdateFeaturesRequest(1000, [Update(MV, level, False, SAFE)])
            _, response = update_features(_image(current), request, version=2, node_id=1)
            between = range(level + 1, current + 1)
            expected = not any(one in LEVELS_WITH_NEW_RECORDS for one in between)
            assert (response.error_code == 0) == expected


def test_a_level_of_kafkas_can_be_given_up() -> None:
    """A directory of Apache Kafka keeps levels that are not served here, until they are lowered."""
    image = _image(30, share=1)
    request = UpdateFeaturesRequest(1000, [Update("share.version", 0, False, SAFE)])

    records, response = update_features(image, request, version=2, node_id=1)

    assert response.error_code == 0
    assert "share.version" not in applied(records, image).features


def test_all_or_nothing_and_dry() -> None:
    both = [Update(MV, 30), Update("nope", 1)]
    image = _image(22)
    for updates, validate_only, code, count in (
        (both, False, 95, 0),
        (both[:1], True, 0, 0),
        (both[:1], False, 0, 1),
    ):
        request = UpdateFeaturesRequest(1000, updates, validate_only)
        records, response = update_features(image, request, version=1, node_id=1)
        assert (response.error_code, len(records)) == (code, count)
        assert [one.feature for one in response.results] == ([] if code else [MV])


def test_version_0_says_downgrade_by_a_flag() -> None:
    for allowed, code in ((False, 95), (True, 0)):
        request = UpdateFeaturesRequest(1000, [Update(MV, 25, allowed)])
        _, response = update_features(_image(29), request, version=0, node_id=1)
        assert response.error_code == code


def test_another_broker_may_not_know_the_level() -> None:
    feature = RegisterBrokerRecord.BrokerFeature
    old = RegisterBrokerRecord(broker_id=2, features=[feature(MV, 7, 25)])
    request = UpdateFeaturesRequest(1000, [Update(MV, 30)])

    _, response = update_features(applied([old], _image(22)), request, version=2, node_id=1)

    assert (response.error_message or "").endswith("Broker 2 only supports versions 7-25")
