"""Takes back what a sequence has left on a broker that later ones could see."""

from __future__ import annotations

from ottla.protocol.api import ApiKey
from ottla.protocol.messages.configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.quotas import AlterClientQuotasRequest
from ottla.protocol.messages.topics import DeleteTopicsRequest
from tests.differences.peer import Peer
from tests.differences.playing import used
from tests.differences.requests import OWN, Sequence, requests_of

NAME_MAX = 249
TOPIC, LOGGER = 2, 8
DELETE = 1


def clean(peer: Peer, sequence: Sequence) -> None:
    """Deletes the topics, and takes back settings and quotas."""
    topics, _ = used(sequence)
    names = [_own(peer, name) for name in sorted(topics)]
    names = [name for name in names if len(name) <= NAME_MAX]
    if names:
        peer.ask(DeleteTopicsRequest(topic_names=names, timeout_ms=30_000), 5)
    _reset_settings(peer, sequence)
    _remove_quotas(peer, sequence)
    peer.close()


def _own(peer: Peer, name: str) -> str:
    return name.replace(OWN, peer.meanings.prefix)


def _reset_settings(peer: Peer, sequence: Sequence) -> None:
    changed = {
        (resource["resource_type"], resource["resource_name"], config["name"])
        for request in requests_of(sequence)
        if request.api in (ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS)
        for resource in request.body["resources"]
        if resource["resource_type"] not in (TOPIC, LOGGER)
        for config in resource["configs"]
    }
    asking = IncrementalAlterConfigsRequest
    for kind, name, key in sorted(changed):
        config = asking.AlterableConfig(key, DELETE, None)
        resource = asking.AlterConfigsResource(kind, _own(peer, name), [config])
        peer.ask(asking([resource]), 1)


def _remove_quotas(peer: Peer, sequence: Sequence) -> None:
    set_ = {
        (tuple((one["entity_type"], one["entity_name"]) for one in entry["entity"]), op["key"])
        for request in requests_of(sequence)
        if request.api is ApiKey.ALTER_CLIENT_QUOTAS
        for entry in request.body["entries"]
        for op in entry["ops"]
    }
    asking = AlterClientQuotasRequest
    for entity, key in sorted(set_, key=str):
        named = [
            asking.EntityData(kind, None if name is None else _own(peer, name))
            for kind, name in entity
        ]
        entry = asking.EntryData(named, [asking.OpData(key, 0.0, True)])
        peer.ask(asking([entry]), 1)
