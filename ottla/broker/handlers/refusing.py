"""What a request is answered that failed as a whole, if its answer names errors one by one.

Most answers have a place for an error at their top, which `Entry.error_response` fills in. The
others name one for each thing that the request asks for: a topic, a partition, a resource. REFUSALS
says of these how, as Apache Kafka's `getErrorResponse` does; without it the only answer to a full
disk, or to a broker that is stopping, would be the end of the connection.

Produce is not here: its handler refuses each partition itself, on the hot path.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from ottla.broker.controller.client_quotas import refused_quotas
from ottla.broker.controller.elect_leaders import refused_election
from ottla.broker.handlers.context import Session
from ottla.broker.handlers.log_dirs import refused_moves
from ottla.broker.handlers.table import Handler
from ottla.broker.handlers.topics import refused_deletion
from ottla.protocol.api import Api, ApiKey
from ottla.protocol.errors import KafkaError
from ottla.protocol.schema import Field, Struct, fields_of


@dataclass(slots=True, frozen=True)
class Each:
    """An answer for each element of a list that a request has.

    `names` are the fields by which both call it; for an element that is a name or a number itself,
    the one that has it. The error is the answer's, or that of each of those `within`. `rest` is
    what Kafka says of what is not known, where that is not the default.
    """

    asked: str
    answered: str
    names: tuple[str, ...]
    within: Each | None = None
    rest: tuple[tuple[str, Any], ...] = ()

    def fill(self, answer: Struct, request: Struct, version: int, error: KafkaError) -> None:
        """Puts the answers for one list of `request` into `answer`."""
        kind = _field(answer, self.answered).struct
        assert kind is not None, (answer, self)
        answers = [
            self._answer(kind(), element, version, error)
            for element in getattr(request, self.asked)
        ]
        setattr(answer, self.answered, answers)

    def _answer(self, answer: Any, element: Any, version: int, error: KafkaError) -> Any:
        is_name = not isinstance(element, Struct)
        for name in self.names:
            setattr(answer, name, element if is_name else getattr(element, name))
        for name, value in self.rest:
            setattr(answer, name, value)
        if self.within is not None:
            self.within.fill(answer, element, version, error)
        else:
            answer.error_code = int(error.code)
            if hasattr(answer, "error_message"):
                is_carried = version in _field(answer, "error_message").versions
                answer.error_message = error.message if is_carried else None
        return answer


Refuse = Callable[[Any, int, KafkaError], Any]
"""The answer to a request of that version which failed with that error."""

_INDEXED = Each("partitions", "partitions", ("partition_index",))
_NUMBERED = Each("partitions", "partitions", ("partition",))
_LISTED = Each("partition_indexes", "partitions", ("partition_index",))
_NAMED = Each("topics", "topics", ("name",), _INDEXED)
_RESOURCES = ("resource_type", "resource_name")
_SHARE_STATE = Each("topics", "results", ("topic_id",), _NUMBERED)
_NO_NODE = (("node_id", -1), ("port", -1))

REFUSALS: dict[ApiKey, Each | Refuse] = {
    ApiKey.LIST_OFFSETS: _NAMED,
    ApiKey.OFFSET_COMMIT: Each("topics", "topics", ("name", "topic_id"), _INDEXED),
    ApiKey.FIND_COORDINATOR: Each("coordinator_keys", "coordinators", ("key",), rest=_NO_NODE),
    ApiKey.DESCRIBE_GROUPS: Each("groups", "groups", ("group_id",)),
    ApiKey.CREATE_TOPICS: Each("topics", "topics", ("name",)),
    ApiKey.DELETE_TOPICS: refused_deletion,
    ApiKey.DELETE_RECORDS: Each(
        "topics",
        "topics",
        ("name",),
        Each("partitions", "partitions", ("partition_index",), rest=(("low_watermark", -1),)),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Each("topics", "topics", ("topic",), _NUMBERED),
    ApiKey.WRITE_TXN_MARKERS: Each(
        "markers", "markers", ("producer_id",), Each("topics", "topics", ("name",), _LISTED)
    ),
    ApiKey.TXN_OFFSET_COMMIT: _NAMED,
    ApiKey.DESCRIBE_CONFIGS: Each("resources", "results", _RESOURCES),
    ApiKey.ALTER_CONFIGS: Each("resources", "responses", _RESOURCES),
    ApiKey.ALTER_REPLICA_LOG_DIRS: refused_moves,
    ApiKey.CREATE_PARTITIONS: Each("topics", "results", ("name",)),
    ApiKey.DELETE_GROUPS: Each("groups_names", "results", ("group_id",)),
    ApiKey.ELECT_LEADERS: refused_election,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Each("resources", "responses", _RESOURCES),
    ApiKey.ALTER_CLIENT_QUOTAS: refused_quotas,
    ApiKey.DESCRIBE_PRODUCERS: Each("topics", "topics", ("name",), _LISTED),
    ApiKey.DESCRIBE_TRANSACTIONS: Each(
        "transactional_ids", "transaction_states", ("transactional_id",)
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Each("group_ids", "groups", ("group_id",)),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Each("topics", "topics", ("name",)),
    ApiKey.SHARE_GROUP_DESCRIBE: Each("group_ids", "groups", ("group_id",)),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.READ_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _SHARE_STATE,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Each("groups", "groups", ("group_id",)),
}


def refusing(api: Api, handle: Handler) -> Handler:
    """The handler itself, or one whose KafkaError becomes an answer that names what was asked."""
    refusal = REFUSALS.get(api.key)
    if refusal is None:
        return handle

    def refuse(request: Any, version: int, error: KafkaError) -> Any:
        if not isinstance(refusal, Each):
            return refusal(request, version, error)
        response = api.response()
        if version not in _field(response, refusal.answered).versions:
            raise error  # the answer has a place at its top in this version
        refusal.fill(response, request, version, error)
        return response

    async def awaited(work: Awaitable[Any], request: Any, version: int) -> Any:
        try:
            return await work
        except KafkaError as error:
            return refuse(request, version, error)

    def handled(session: Session, request: Any, version: int) -> Any:
        try:
            response = handle(session, request, version)
        except KafkaError as error:
            return refuse(request, version, error)
        return awaited(response, request, version) if isawaitable(response) else response

    return handled


def _field(struct: Struct, name: str) -> Field:
    return next(field for field in fields_of(type(struct)) if field.name == name)
