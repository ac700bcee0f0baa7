"""Answers as lines of a trace."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import groups, offsets, produce, producer_ids, transactions
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.records.batch import BatchHeader, read_header
from ottla.protocol.records.record import Record, iterate_records
from ottla.protocol.schema import Struct
from tests.transactions.names import Names

MARKERS = {0: "abort", 1: "commit"}
_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")


class Silence:
    """No answer came."""

    __slots__ = ()


def code(number: int) -> str:
    return f"{number} {ErrorCode(number).name}"


def codes_of(answer: Any) -> Iterator[int]:
    """Every error code in an answer, however deep."""
    for name in getattr(answer, "__slots__", ()):
        value = getattr(answer, name)
        if name.endswith("error_code"):
            yield value
        elif isinstance(value, Struct):
            yield from codes_of(value)
        elif isinstance(value, list):
            for one in value:
                if isinstance(one, Struct):
                    yield from codes_of(one)


def batches_of(records: Any) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """The whole batches of what a Fetch brought."""
    view = memoryview(bytes(records or b""))
    position = 0
    while len(view) - position >= 61:
        header = read_header(view, position)
        if position + header.size > len(view):
            return
        yield header, list(iterate_records(view[position : position + header.size]))
        position += header.size


def marker(record: Record) -> str:
    """A marker: its kind and the epoch of the coordinator who decided."""
    assert record.key is not None
    assert record.value is not None
    _version, kind = _MARKER_KEY.unpack(record.key)
    _version, coordinator_epoch = _MARKER_VALUE.unpack(record.value)
    return f"{MARKERS[kind]} coordinator={coordinator_epoch}"


def batch(names: Names, header: BatchHeader, records: list[Record]) -> str:
    """A batch by its offsets and producer; a marker by what it says."""
    who = names.producer(header.producer_id, header.producer_epoch)
    shown = f"{header.base_offset}-{header.last_offset} {who} seq={header.base_sequence}"
    if header.is_transactional:
        shown += " txn"
    if header.is_control:
        shown += f" {marker(records[0])}"
    return shown


def _result(names: Names, answer: Any) -> str:
    """An answer that is an error code and nothing more."""
    return code(answer.error_code)


def _initialised(names: Names, answer: producer_ids.InitProducerIdResponse) -> str:
    shown = names.producer(answer.producer_id, answer.producer_epoch)
    return f"{code(answer.error_code)} {shown}"


def _ended(names: Names, answer: transactions.EndTxnResponse) -> str:
    shown = code(answer.error_code)
    if answer.producer_id != -1 or answer.producer_epoch != -1:
        shown += f" {names.producer(answer.producer_id, answer.producer_epoch)}"
    return shown


def _added_topics(names: Names, topics: Any) -> str:
    found = [
        f"{names.place(topic.name, one.partition_index)}: {code(one.partition_error_code)}"
        for topic in topics
        for one in topic.results_by_partition
    ]
    return ", ".join(sorted(found)) or "nothing"


def _added(names: Names, answer: transactions.AddPartitionsToTxnResponse) -> str:
    if not answer.results_by_transaction and not answer.error_code:
        return _added_topics(names, answer.results_by_topic_v3_and_below)
    each = sorted(
        f"{names.shown(one.transactional_id) or repr('')}"
        f" [{_added_topics(names, one.topic_results)}]"
        for one in answer.results_by_transaction
    )
    return " ".join([code(answer.error_code), *each])


def _found(names: Names, answer: groups.FindCoordinatorResponse) -> str:
    if not answer.coordinators:
        node = "this broker" if answer.node_id >= 0 else str(answer.node_id)
        return f"{code(answer.error_code)} {answer.error_message!r} {node}"
    return "; ".join(
        f"{names.shown(one.key)!r} {code(one.error_code)} {one.error_message!r}"
        f" {'this broker' if one.node_id >= 0 else one.node_id}"
        for one in answer.coordinators
    )


def _offsets_added(names: Names, answer: transactions.TxnOffsetCommitResponse) -> str:
    found = [
        f"{names.place(topic.name, one.partition_index)}: {code(one.error_code)}"
        for topic in answer.topics
        for one in topic.partitions
    ]
    return ", ".join(found) or "nothing"


def _fetched_offsets(names: Names, answer: groups.OffsetFetchResponse) -> str:
    (group,) = answer.groups
    found = [
        f"{names.place(topic.name, one.partition_index)}: {one.committed_offset}"
        f" epoch={one.committed_leader_epoch} {one.metadata!r} {code(one.error_code)}"
        for topic in group.topics
        for one in topic.partitions
    ]
    return ", ".join([code(group.error_code), *sorted(found)])


def _deleted_offsets(names: Names, answer: groups.OffsetDeleteResponse) -> str:
    found = [code(one.error_code) for topic in answer.topics for one in topic.partitions]
    return " ".join([code(answer.error_code), *found])


def _deleted_groups(names: Names, answer: groups.DeleteGroupsResponse) -> str:
    return code(answer.results[0].error_code)


def _committed(names: Names, answer: groups.OffsetCommitResponse) -> str:
    return code(answer.topics[0].partitions[0].error_code)


def _produced(names: Names, answer: produce.ProduceResponse) -> str:
    parts = []
    for topic in answer.responses:
        for one in topic.partition_responses:
            shown = f"{one.index}: {code(one.error_code)}"
            if not one.error_code:
                shown += f" at {one.base_offset}"
            if one.error_message is not None:
                shown += f" {names.shown(one.error_message)!r}"
            parts.append(shown)
    return ", ".join(sorted(parts))


def _fetched(names: Names, answer: FetchResponse) -> str:
    (one,) = answer.responses[0].partitions
    aborted: Any = one.aborted_transactions
    if aborted is not None:
        found = [f"{names.pid(each.producer_id)} from {each.first_offset}" for each in aborted]
        aborted = f"[{', '.join(sorted(found))}]"
    found = [batch(names, header, records) for header, records in batches_of(one.records)]
    size = len(bytes(one.records or b""))  # type: ignore[arg-type]
    head = f"{code(one.error_code)} hw={one.high_watermark} lso={one.last_stable_offset}"
    return f"{head} aborted={aborted} {size} bytes [{'; '.join(found)}]"


def _listed_offset(names: Names, answer: offsets.ListOffsetsResponse) -> str:
    (one,) = answer.topics[0].partitions
    return f"{code(one.error_code)} {one.offset}"


def _producers(names: Names, answer: producer_ids.DescribeProducersResponse) -> str:
    (one,) = answer.topics[0].partitions
    found = sorted(
        f"{names.producer(each.producer_id, each.producer_epoch)} seq={each.last_sequence}"
        f" coordinator={each.coordinator_epoch} open={each.current_txn_start_offset}"
        for each in one.active_producers
    )
    return f"{code(one.error_code)} [{'; '.join(found)}]"


def _marked(names: Names, answer: transactions.WriteTxnMarkersResponse) -> str:
    found = [
        f"{names.pid(each.producer_id)} {names.place(topic.name, one.partition_index)}:"
        f" {code(one.error_code)}"
        for each in answer.markers
        for topic in each.topics
        for one in topic.partitions
    ]
    return ", ".join(sorted(found)) or "nothing"


def _described(names: Names, answer: transactions.DescribeTransactionsResponse) -> str:
    found = []
    for one in answer.transaction_states:
        started = "yes" if one.transaction_start_time_ms > 0 else one.transaction_start_time_ms
        places = sorted(names.place(t.topic, p) for t in one.topics for p in t.partitions)
        found.append(
            f"{names.shown(one.transactional_id)!r} {code(one.error_code)}"
            f" {one.transaction_state!r} {names.producer(one.producer_id, one.producer_epoch)}"
            f" timeout={one.transaction_timeout_ms} started={started} [{', '.join(places)}]"
        )
    return "; ".join(found) or "nothing"


def _listed(names: Names, answer: transactions.ListTransactionsResponse) -> str:
    found = sorted(
        f"{names.shown(one.transactional_id)} {names.pid(one.producer_id)} {one.transaction_state}"
        for one in answer.transaction_states
        if names.is_own(one.transactional_id)
    )
    unknown = f" unknown={sorted(answer.unknown_state_filters)}"
    return f"{code(answer.error_code)}{unknown} [{'; '.join(found)}]"


_SHOWN: dict[type[Any], Callable[[Names, Any], str]] = {
    NoneType: lambda names, answer: "closed",
    Silence: lambda names, answer: "no answer",
    groups.FindCoordinatorResponse: _found,
    groups.OffsetFetchResponse: _fetched_offsets,
    groups.OffsetDeleteResponse: _deleted_offsets,
    groups.DeleteGroupsResponse: _deleted_groups,
    groups.OffsetCommitResponse: _committed,
    groups.HeartbeatResponse: _result,
    producer_ids.InitProducerIdResponse: _initialised,
    producer_ids.DescribeProducersResponse: _producers,
    produce.ProduceResponse: _produced,
    FetchResponse: _fetched,
    offsets.ListOffsetsResponse: _listed_offset,
    transactions.AddPartitionsToTxnResponse: _added,
    transactions.AddOffsetsToTxnResponse: _result,
    transactions.EndTxnResponse: _ended,
    transactions.WriteTxnMarkersResponse: _marked,
    transactions.TxnOffsetCommitResponse: _offsets_added,
    transactions.DescribeTransactionsResponse: _described,
    transactions.ListTransactionsResponse: _listed,
}


def answered(names: Names, answer: Any) -> str:
    """One line; None is a connection that was closed without an answer."""
    return _SHOWN[type(answer)](names, answer)
