"""UnregisterBroker: a broker that is gone for good is forgotten."""

from __future__ import annotations

from ottla.broker.controller.brokers import unregister
from ottla.broker.handlers.context import Session
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.broker_lifecycle import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


async def handle_unregister_broker(
    session: Session, request: UnregisterBrokerRequest, version: int
) -> UnregisterBrokerResponse:
    """This broker does not forget itself while it serves, which Apache Kafka does."""
    rooms = session.rooms
    try:
        await rooms.quorum.submit(
            lambda image: unregister(image, request.broker_id, node_id=rooms.config.node_id)
        )
    except KafkaError as error:
        return UnregisterBrokerResponse(
            error_code=int(error.code), error_message=error.message or ""
        )
    return UnregisterBrokerResponse(error_message=None)
