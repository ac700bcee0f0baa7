"""The settings in force in a running broker, asked of it as any client asks."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from typing import Any

from ottla.client.connection import Connection
from ottla.config.broker import BrokerConfig, Layers
from ottla.config.load import Loaded
from ottla.config.types import ConfigSource, written
from ottla.protocol.messages.configs import DescribeConfigsRequest
from ottla.protocol.messages.metadata import DescribeClusterRequest

ANSWER_SECONDS_MAX = 10.0
BROKER_RESOURCE = 4
DESCRIBE_CLUSTER_VERSION = 0
DESCRIBE_CONFIGS_VERSION = 4
ORIGINS = {
    ConfigSource.DYNAMIC_BROKER: "changed for this broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "changed for all brokers",
    ConfigSource.STATIC_BROKER: "start of the broker",
}
"""What is told of a value that is no default."""


class Unanswered(Exception):
    """A sentence on why there is no answer."""


def ask_running(addresses: Sequence[tuple[str, int]]) -> Loaded:
    """The settings that are no defaults of the first broker that answers, in the order given, with
    where they come from.

    Passwords are not told by a broker, and are missing. Raises Unanswered.
    """
    assert addresses
    silent = []
    for host, port in addresses:
        server = written(host, port)
        try:
            return asyncio.run(_ask(host, port))
        except TimeoutError:
            silent.append(f"{server} did not answer within {ANSWER_SECONDS_MAX:g} s")
        except OSError as error:
            silent.append(f"no broker answers on {server}: {_reason(error)}")
    raise Unanswered(
        f"{'; '.join(silent)}. Name a host and port of a broker's listeners; its start-up lines"
        " say them."
    )


def _reason(error: OSError) -> str:
    """What the system says, once: asyncio tells of the call, and of each address of a name."""
    numbers = set(re.findall(r"\[Errno (\d+)\]", str(error)))
    if len(numbers) == 1:
        return os.strerror(int(numbers.pop()))
    return error.strerror or str(error)


async def _ask(host: str, port: int) -> Loaded:
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        connection = await Connection.open(host, port, client_id="ottla-config")
        try:
            cluster = await connection.request(DescribeClusterRequest(), DESCRIBE_CLUSTER_VERSION)
            asked = DescribeConfigsRequest.DescribeConfigsResource(
                BROKER_RESOURCE, str(_broker_id(cluster, host, port)), None
            )
            answer = await connection.request(
                DescribeConfigsRequest([asked]), DESCRIBE_CONFIGS_VERSION
            )
        finally:
            await connection.close()
    (result,) = answer.results
    if result.error_code:
        raise Unanswered(f"{written(host, port)} answers: {result.error_message}")
    return _loaded(result.configs)


def _broker_id(cluster: Any, host: str, port: int) -> int:
    """Of who answers: the one of that address, or the first, who may be known by another."""
    if cluster.error_code or not cluster.brokers:
        raise Unanswered(f"{written(host, port)} names no broker: {cluster.error_message}")
    named = [one for one in cluster.brokers if (one.host, one.port) == (host, port)]
    broker_id: int = (named or cluster.brokers)[0].broker_id
    return broker_id


def _loaded(entries: list[Any]) -> Loaded:
    given: dict[str, str] = {}
    origins: dict[str, str] = {}
    for entry in entries:
        origin = ORIGINS.get(entry.config_source)
        if origin is not None and entry.value is not None:
            given[entry.name] = entry.value
            origins[entry.name] = origin
    return Loaded(config=BrokerConfig.assemble(Layers(static=given)), origins=origins)
