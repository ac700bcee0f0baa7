"""UpdateFeatures: finalized levels; which there are, ApiVersions tells."""

from __future__ import annotations

from ottla.broker.controller.feature_updates import update_features
from ottla.broker.handlers.context import Session
from ottla.broker.handlers.setting_history import change_settings
from ottla.protocol.messages.features import UpdateFeaturesRequest, UpdateFeaturesResponse


async def handle_update_features(
    session: Session, request: UpdateFeaturesRequest, version: int
) -> UpdateFeaturesResponse:
    """In force when it is answered, for all of the request or for nothing of it."""
    node_id = session.rooms.config.node_id
    return await change_settings(
        session,
        lambda image: update_features(image, request, version=version, node_id=node_id),
    )
