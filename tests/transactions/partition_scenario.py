"""The script of `scenario.py` with what producers, readers and coordinators ask of partitions."""

from __future__ import annotations

from typing import Unpack

from ottla.protocol.messages import offsets, producer_ids, transactions
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record
from tests.transactions.scenario import Claims, Line, Places, Producer, Script, places_shown

Markers = transactions.WriteTxnMarkersRequest
Data = ProduceRequest.PartitionProduceData
BYTES_MAX = 2**20
TIMEOUT_MS = 10_000


class PartitionScript(Script):
    """A script that also writes to partitions, and reads them. No two batches have one time."""

    def __init__(self, line: Line) -> None:
        super().__init__(line)
        self._times = [0]

    def produce(
        self,
        who: str,
        *partitions: int,
        version: int = 12,
        count: int = 1,
        sequence: int | None = None,
        transactional: bool = True,
        topic: str = "t",
        acks: int = -1,
        named: bool = True,
        once: bool = False,
        **claims: Unpack[Claims],
    ) -> None:
        """One batch for each partition. Unless `named` the request has no transactional id."""
        claim = self._claim(who, claims)
        sent = {
            index: claim.sequences.get((topic, index), 0) if sequence is None else sequence
            for index in partitions or (0,)
        }
        data = [
            Data(index, self._batch(claim, at, count=count, transactional=transactional))
            for index, at in sent.items()
        ]
        shown = [
            f"{topic}-{index} seq={at}{'' if count == 1 else f' x{count}'}"
            for index, at in sent.items()
        ]
        request = self._request(data, topic, claim.txn if named else None, version, acks)
        kind = "" if transactional else " not transactional"
        kind += "" if acks == -1 else f" acks={acks}"
        by = self._shown(claim) if named else self._names.producer(claim.pid, claim.epoch)
        answer = self._tell(who, request, version, f"{by} {', '.join(shown)}{kind}", once=once)
        if (claim.pid, claim.epoch) == (self.producers[who].pid, self.producers[who].epoch):
            for one in answer.responses[0].partition_responses:
                if not one.error_code:
                    claim.sequences[topic, one.index] = sent[one.index] + count

    def produce_mixed(
        self, who: str, *batches: tuple[int, str, bool], version: int = 12, named: bool = True
    ) -> None:
        """One request with batches of several producers: (partition, whose, transactional)."""
        data, shown = [], []
        for index, whose, transactional in batches:
            claim = self.producers[whose]
            at = claim.sequences.get(("t", index), 0)
            data.append(Data(index, self._batch(claim, at, transactional=transactional)))
            kind = "" if transactional else " not transactional"
            shown.append(f"t-{index} {self._names.producer(claim.pid, claim.epoch)} seq={at}{kind}")
        txn = self.producers[who].txn if named else None
        request = self._request(data, "t", txn, version, -1)
        self._tell(who, request, version, f"{txn or 'null'} {', '.join(shown)}")

    def fetch(
        self,
        partition: int = 0,
        *,
        committed: bool = True,
        offset: int = 0,
        size: int = BYTES_MAX,
    ) -> None:
        one = FetchRequest.FetchPartition(partition, fetch_offset=offset, partition_max_bytes=size)
        asked = FetchRequest.FetchTopic(self._names.on_wire("t"), partitions=[one])
        request = FetchRequest(max_bytes=BYTES_MAX, isolation_level=int(committed), topics=[asked])
        kind = "committed" if committed else "uncommitted"
        kind += "" if size == BYTES_MAX else f" max={size}"
        self._tell("reader", request, 12, f"t-{partition} from {offset} {kind}")

    def list_offset(
        self, *, committed: bool = True, timestamp: int = -1, since: int | None = None
    ) -> None:
        """`since`: the time of one of the batches that were sent, in their order."""
        shown = f"timestamp={timestamp}" if since is None else f"time of batch {since}"
        timestamp = timestamp if since is None else self._times[since]
        one = offsets.ListOffsetsRequest.ListOffsetsPartition(0, -1, timestamp)
        asked = offsets.ListOffsetsRequest.ListOffsetsTopic(self._names.on_wire("t"), [one])
        request = offsets.ListOffsetsRequest(-1, int(committed), [asked])
        kind = "committed" if committed else "uncommitted"
        self._tell("reader", request, 7, f"t-0 {shown} {kind}")

    def describe_producers(self, partition: int = 0, topic: str = "t") -> None:
        topics = producer_ids.DescribeProducersRequest.TopicRequest
        asked = topics(self._names.on_wire(topic), [partition])
        request = producer_ids.DescribeProducersRequest([asked])
        self._tell("admin", request, 0, f"{topic}-{partition}")

    def mark(
        self,
        pid: int,
        epoch: int,
        *,
        commit: bool = False,
        places: Places | None = None,
        coordinator_epoch: int = 0,
        version: int = 2,
        transaction_version: int = 0,
    ) -> None:
        """WriteTxnMarkers, as a coordinator sends it or an administrator who ends a transaction."""
        asked = {"t": [0]} if places is None else places
        topics = [
            Markers.WritableTxnMarkerTopic(self._names.on_wire(name), list(chosen))
            for name, chosen in asked.items()
        ]
        one = Markers.WritableTxnMarker(pid, epoch, commit, topics, coordinator_epoch)
        one.transaction_version = transaction_version
        shown = f"{self._names.producer(pid, epoch)} {'commit' if commit else 'abort'}"
        shown += f" {places_shown(self._names, asked)} coordinator={coordinator_epoch}"
        if version >= 2:
            shown += f" tv={transaction_version}"
        self._tell("broker", Markers([one]), version, shown)

    # inside

    def _batch(
        self, claim: Producer, sequence: int, *, transactional: bool, count: int = 1
    ) -> memoryview:
        self._times.append(max(self._times[-1] + 1, self._line.now_ms()))
        batch = build_batch(
            [Record(0, self._times[-1], None, b"v")] * count,
            producer_id=claim.pid,
            producer_epoch=claim.epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        return memoryview(batch)

    def _request(
        self, data: list[Data], topic: str, txn: str | None, version: int, acks: int
    ) -> ProduceRequest:
        asked = ProduceRequest.TopicProduceData(self._names.on_wire(topic))
        asked.partition_data = data
        if version >= 13:
            asked.topic_id = self._line.topic_id(asked.name)
        own = None if txn is None else self._names.on_wire(txn)
        return ProduceRequest(own, acks, TIMEOUT_MS, [asked])
