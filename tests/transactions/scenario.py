"""A script for transactions that reads like a conversation, and leaves a trace to compare.

`traces/*.txt` are what Apache Kafka 4.3.1 answered. A line is `who request fields -> answer`. A
producer is shown with the id and epoch that it claims to have, `pidA/0`. What a broker answers
while markers are being written is asked again until it answers something else, and not shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict, Unpack

from ottla.protocol.messages import groups, producer_ids, transactions
from ottla.protocol.schema import Message
from tests.transactions.names import NO_PID, Names
from tests.transactions.shown import answered

TIMEOUT_MS = 60_000
GROUP = "g"
Places = Mapping[str, Iterable[int]]
Add = transactions.AddPartitionsToTxnRequest
Init = producer_ids.InitProducerIdRequest


class Line(Protocol):
    """A way to a broker, for one conversation."""

    names: Names

    def ask(self, who: str, request: Message, version: int) -> Any:
        """The answer, None for a closed connection; retriable ones are asked again."""

    def ask_once(self, who: str, request: Message, version: int) -> Any: ...

    def now_ms(self) -> int: ...

    def make_topic(self, name: str, partitions: int) -> None: ...

    def remove_topic(self, name: str) -> None: ...

    def topic_id(self, name: str) -> bytes: ...

    def settle(self, txn: str) -> None:
        """Returns when no marker of this transactional id is on its way."""

    def expire(self, txn: str) -> None:
        """Returns when the broker has ended the transaction by itself."""


@dataclass
class Producer:
    """What a producer was told, and what it has sent to each partition in this epoch."""

    txn: str
    pid: int = NO_PID
    epoch: int = -1
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    def become(self, pid: int, epoch: int) -> None:
        if (pid, epoch) != (self.pid, self.epoch):
            self.sequences.clear()
        self.pid, self.epoch = pid, epoch


class Claims(TypedDict, total=False):
    """What a producer claims, where it is not what it is."""

    txn: str
    pid: int
    epoch: int


class Script:
    """One conversation. Producers are known by who speaks; A has the transactional id `x`."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._names = line.names
        self.producers: dict[str, Producer] = {}
        self.lines: list[str] = []

    def title(self, text: str) -> None:
        self.lines.append(f"# {text}")

    def topic(self, name: str, partitions: int = 2) -> None:
        self._line.make_topic(self._names.on_wire(name), partitions)

    def no_topic(self, name: str) -> None:
        self._line.remove_topic(self._names.on_wire(name))
        self.lines.append(f"  topic {name} is deleted")

    def find(self, *keys: str, version: int = 6, key_type: int = 1) -> None:
        own = [self._names.on_wire(key) for key in keys]
        if version >= 4:
            request = groups.FindCoordinatorRequest(coordinator_keys=own, key_type=key_type)
        else:
            request = groups.FindCoordinatorRequest(key=own[0], key_type=key_type)
        self._tell("A", request, version, f"{','.join(keys) or repr('')} type={key_type}")

    def init(
        self,
        who: str,
        txn: str | None = "x",
        *,
        version: int = 5,
        timeout_ms: int = TIMEOUT_MS,
        pid: int = NO_PID,
        epoch: int = -1,
        once: bool = False,
    ) -> None:
        """Without `pid` a producer begins; with it, it goes on. `once`: the first answer."""
        own = None if txn is None else self._names.on_wire(txn)
        shown = f"{'null' if txn is None else txn or repr('')} timeout={timeout_ms}"
        if (pid, epoch) != (NO_PID, -1):
            shown += f" {self._names.producer(pid, epoch)}"
        request = Init(own, timeout_ms, pid, epoch)
        answer = self._tell(who, request, version, shown, show=False, once=once)
        if _succeeded(answer):
            self._names.learn(answer.producer_id)
            producer = self.producers.setdefault(who, Producer(txn or ""))
            producer.txn = txn or ""
            producer.become(answer.producer_id, answer.producer_epoch)
        self._show(answer)

    def again(
        self, who: str, *, version: int = 5, once: bool = False, **claims: Unpack[Claims]
    ) -> None:
        """A producer that goes on with the id that it has, with a new epoch."""
        claim = self._claim(who, claims)
        self.init(who, claim.txn, version=version, pid=claim.pid, epoch=claim.epoch, once=once)

    def wear_out(self, who: str, *, to: int) -> None:
        """A producer is begun again and again, until it has this epoch."""
        producer = self.producers[who]
        own = self._names.on_wire(producer.txn)
        while producer.epoch < to:
            answer = self._line.ask(who, Init(own, TIMEOUT_MS), 4)
            assert _succeeded(answer), f"{producer.txn} cannot be initialised: {answer}"
            producer.become(answer.producer_id, answer.producer_epoch)
        self.lines.append(f"  {producer.txn} is initialised up to epoch {producer.epoch}")

    def add(
        self,
        who: str,
        places: Places | None = None,
        *,
        version: int = 3,
        once: bool = False,
        **claims: Unpack[Claims],
    ) -> None:
        claim = self._claim(who, claims)
        asked = {"t": [0]} if places is None else places
        request = Add(
            v3_and_below_transactional_id=self._names.on_wire(claim.txn),
            v3_and_below_producer_id=claim.pid,
            v3_and_below_producer_epoch=claim.epoch,
            v3_and_below_topics=self._topics(asked),
        )
        shown = f"{self._shown(claim)} {places_shown(self._names, asked)}"
        self._tell(who, request, version, shown, once=once)

    def batched(
        self, *asked: tuple[str, Places, Claims], verify: bool = False, version: int = 4
    ) -> None:
        """AddPartitionsToTxn as brokers send it: several producers at once."""
        request = Add()
        shown = ["verify" if verify else "add"]
        for who, places, claims in asked:
            claim = self._claim(who, claims)
            own = self._names.on_wire(claim.txn)
            one = Add.AddPartitionsToTxnTransaction(own, claim.pid, claim.epoch, verify)
            one.topics = self._topics(places)
            request.transactions = [*request.transactions, one]
            shown.append(f"{self._shown(claim)} {places_shown(self._names, places)}")
        self._tell("broker", request, version, ", ".join(shown))

    def add_offsets(
        self, who: str, group: str = GROUP, *, version: int = 3, **claims: Unpack[Claims]
    ) -> None:
        claim = self._claim(who, claims)
        own = self._names.on_wire(claim.txn), self._names.on_wire(group)
        request = transactions.AddOffsetsToTxnRequest(own[0], claim.pid, claim.epoch, own[1])
        self._tell(who, request, version, f"{self._shown(claim)} {group or repr('')}")

    def end(
        self,
        who: str,
        *,
        commit: bool = True,
        version: int = 5,
        once: bool = False,
        **claims: Unpack[Claims],
    ) -> None:
        """`once`: the first answer, and no waiting for the markers."""
        claim = self._claim(who, claims)
        own = self._names.on_wire(claim.txn)
        request = transactions.EndTxnRequest(own, claim.pid, claim.epoch, commit)
        shown = f"{self._shown(claim)} {'commit' if commit else 'abort'}"
        answer = self._tell(who, request, version, shown, show=False, once=once)
        if _succeeded(answer):
            self._names.learn(answer.producer_id)
            if version >= 5:
                self.producers[who].become(answer.producer_id, answer.producer_epoch)
            if not once:
                self._line.settle(own)
        self._show(answer)

    def describe(self, *txns: str) -> None:
        asked = txns or ("x",)
        request = transactions.DescribeTransactionsRequest([self._names.on_wire(t) for t in asked])
        shown = ",".join(one or repr("") for one in asked)
        answer = self._tell("admin", request, 0, shown, show=False)
        for one in answer.transaction_states:
            if not one.error_code:
                self._names.learn(one.producer_id)
        self._show(answer)

    def list_transactions(
        self,
        *,
        states: tuple[str, ...] = (),
        pids: tuple[int, ...] = (),
        duration: int = -1,
        pattern: str | None = None,
        version: int = 2,
    ) -> None:
        """ListTransactions; of the answer only this conversation's are shown."""
        request = transactions.ListTransactionsRequest([*states], [*pids], duration, pattern)
        shown = f"states={[*states]} pids=[{', '.join(self._names.pid(one) for one in pids)}]"
        shown += f" duration={duration}" if version >= 1 else ""
        shown += f" pattern={pattern!r}" if version >= 2 else ""
        self._tell("admin", request, version, shown)

    def expire(self, txn: str = "x") -> None:
        """The transaction outlives its timeout, and is aborted by the broker."""
        self._line.expire(self._names.on_wire(txn))
        self.lines.append(f"  {txn} is not ended in time")

    # inside

    def _tell(
        self,
        who: str,
        request: Message,
        version: int,
        shown: str,
        *,
        show: bool = True,
        once: bool = False,
    ) -> Any:
        ask = self._line.ask_once if once else self._line.ask
        answer = ask(who, request, version)
        name = type(request).__name__.removesuffix("Request")
        self.lines.append(f"{who} {name} v{version} {shown} ->")
        if show:
            self._show(answer)
        return answer

    def _show(self, answer: Any) -> None:
        self.lines[-1] += f" {answered(self._names, answer)}"

    def _claim(self, who: str, claims: Claims) -> Producer:
        own = self.producers.get(who, Producer("x"))
        claim = Producer(claims.get("txn", own.txn), own.pid, own.epoch, own.sequences)
        claim.pid = claims.get("pid", claim.pid)
        claim.epoch = claims.get("epoch", claim.epoch)
        return claim

    def _shown(self, claim: Producer) -> str:
        return f"{claim.txn or repr('')} {self._names.producer(claim.pid, claim.epoch)}"

    def _topics(self, places: Places) -> list[Add.AddPartitionsToTxnTopic]:
        return [
            Add.AddPartitionsToTxnTopic(self._names.on_wire(name), [*chosen])
            for name, chosen in places.items()
        ]


def _succeeded(answer: Any) -> bool:
    return getattr(answer, "error_code", None) == 0


def places_shown(names: Names, places: Places) -> str:
    found = (names.place(name, one) for name, chosen in places.items() for one in chosen)
    return f"[{', '.join(found)}]"
