"""Who wants to authenticate where nobody is asked hears at once that this cannot be."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ottla.broker.handlers.sasl import WAY_OUT
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.testing.embedded import BrokerThread
from tests.handlers.rooms import House


@pytest.mark.parametrize("version", [0, 1])
async def test_no_mechanism_is_to_be_had(house: House, version: int) -> None:
    answer = await house.ask(SaslHandshakeRequest("PLAIN"), version)

    assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_no_token_is_looked_at(house: House, version: int) -> None:
    answer = await house.ask(SaslAuthenticateRequest(b"\0user\0password"), version)

    assert (answer.error_code, answer.auth_bytes) == (ErrorCode.ILLEGAL_SASL_STATE, b"")
    assert answer.error_message == WAY_OUT


def test_a_client_with_a_password_names_the_cause() -> None:
    said: list[str] = []
    with BrokerThread() as broker:
        settings: dict[str, Any] = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "user",
            "sasl.password": "password",
            "error_cb": lambda error: said.append(str(error)),
        }
        client = AdminClient(settings)
        deadline_s = time.monotonic() + 20
        while not said and time.monotonic() < deadline_s:
            with pytest.raises(KafkaException):
                client.list_topics(timeout=1)
            client.poll(0.1)

    assert "Request not valid in current SASL state" in said[0]
