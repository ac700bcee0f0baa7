"""Plays a sequence to both brokers, step by step, and compares what they answer.

Most requests are answered at once. Some wait by their nature (a fetch for records, a member for
the others): when neither broker has answered after a moment, both go on to the next step, and the
answers are compared when they come. One that has answered while the other has not for long is a
difference, too.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.groups import HeartbeatRequest
from tests.differences import settling
from tests.differences.comparing import Difference, Tree, normal
from tests.differences.known import Accepted, PartedError
from tests.differences.peer import SILENT, Answer, Peer
from tests.differences.requests import PARKED_MS, HangUp, Request, Sequence, requests_of

QUIET_SECONDS, BEHIND_SECONDS = 0.03, 0.03
"""What has not come after the first waits. Groups are asked for something else, which their
coordinator answers behind all that it had to do, and what has not come after the second waits."""
APART_SECONDS_MAX = 0.6
"""So much later than the other a broker may answer; less than a parked fetch waits."""
ANSWER_SECONDS_MAX = 8.0
AGAIN_SECONDS, AGAIN_MAX = 0.06, 25
"""What a broker shows may be late: it is asked again while the answers differ."""
RETRY_SECONDS, RETRIES_MAX = 0.01, 100
WAITING_GROUPS = frozenset((ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP))
NEVER_ANSWERED = frozenset(
    (
        (ApiKey.SYNC_GROUP, ErrorCode.UNKNOWN_MEMBER_ID),
        (ApiKey.JOIN_GROUP, ErrorCode.REBALANCE_IN_PROGRESS),
    )
)
"""By Kafka, where somebody has taken the member out meanwhile, or it has joined again."""
UNKNOWN_SERVER_ERROR = -1
ONLY_SHOW = frozenset(
    (
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.OFFSET_FETCH,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.FIND_COORDINATOR,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.METADATA,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    )
)
RETRIED = frozenset(
    (
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.PRODUCE,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.FIND_COORDINATOR,
    )
)
"""Clients try these again where the broker says that it is not the moment."""


class CannotGoOnError(Exception):
    """Kafka has not answered, or with UNKNOWN_SERVER_ERROR, which is a slip of its own: there is
    nothing to compare, and what it has done of the request is not known."""


@dataclass(slots=True)
class Duet:
    """Both brokers, and what has been compared so far."""

    kafka: Peer
    ottla: Peer
    accepted: Accepted
    requests: Counter[ApiKey] = field(default_factory=Counter)
    unanswered: int = 0
    _topics: set[str] = field(default_factory=set)
    _transactions: set[str] = field(default_factory=set)

    @property
    def peers(self) -> tuple[Peer, Peer]:
        return self.kafka, self.ottla

    def play(self, sequence: Sequence, prefix: str) -> Difference | None:
        """The first difference, if there is one."""
        began_ms = time.time_ns() // 1_000_000
        for peer in self.peers:
            peer.begin(prefix, began_ms)
        self._topics.clear()
        self._transactions.clear()
        try:
            for index, step in enumerate(sequence):
                if isinstance(step, HangUp):
                    for peer in self.peers:
                        peer.hang_up(step.who)
                    time.sleep(settling.RELEASED_SECONDS)
                    continue
                # Who waits says nothing meanwhile.
                if any(peer.waits(step[0].who) for peer in self.peers):
                    continue
                found = self._step(index, step)
                if found is not None:
                    return found
        except CannotGoOnError:
            self.unanswered += 1
        except PartedError:
            pass
        return None

    def _step(self, index: int, step: tuple[Request, ...]) -> Difference | None:
        for request in step:
            self._topics |= settling.names_of(request.body)
            self._transactions |= settling.transactions_of(request.body)
            self.requests[request.api] += 1
        if len(step) == 1 and not may_wait(step[0]) and is_heard(step[0]):
            found = self._answered(index, step[0])
        else:
            found = None
            for peer in self.peers:
                peer.write(step)
        return found or self._heard(index)

    def _answered(self, index: int, request: Request) -> Difference | None:
        """Asks one after the other, and compares."""
        kafka, ottla = (self._settled(peer, request) for peer in self.peers)
        difference = self._compare(index, request, kafka, ottla)
        if request.api not in ONLY_SHOW and not _is_plain_fetch(request):
            return difference
        for _ in range(AGAIN_MAX):
            if difference is None:
                return None
            time.sleep(AGAIN_SECONDS)
            kafka, ottla = (peer.answer(request) for peer in self.peers)
            difference = self._compare(index, request, kafka, ottla)
        return difference

    def _settled(self, peer: Peer, request: Request) -> Answer:
        answer = peer.answer(request)
        for _ in range(RETRIES_MAX):
            retriable = settling.error_codes(answer) & settling.RETRIABLE
            if request.api not in RETRIED or not retriable:
                break
            time.sleep(RETRY_SECONDS)
            answer = peer.answer(request)
        settling.settle(peer, request, sorted(self._topics), self._transactions)
        return answer

    def _compare(
        self, index: int, request: Request, kafka: Answer, ottla: Answer
    ) -> Difference | None:
        if kafka == SILENT:
            raise CannotGoOnError
        trees: list[Tree] = [
            normal(request, answer, peer.meanings, peer.port)
            for peer, answer in zip(self.peers, (kafka, ottla), strict=True)
        ]
        if self.accepted.same(request, *trees):
            return None
        if UNKNOWN_SERVER_ERROR in settling.error_codes(trees[0]):
            raise CannotGoOnError
        return Difference(index, request, *trees)

    def _heard(self, index: int) -> Difference | None:
        """Compares what comes of all that is waited for, until nothing more is to be expected."""
        if not any(peer.waits(who) for peer in self.peers for who in peer.lines):
            return None
        heard: tuple[dict[str, deque[tuple[Request, Answer]]], ...] = (
            defaultdict(deque),
            defaultdict(deque),
        )
        sent = last = time.monotonic()
        asked = False
        while True:
            for peer, answers in zip(self.peers, heard, strict=True):
                for who in list(peer.lines):
                    came = peer.hear(who)
                    answers[who].extend(came)
                    if came:
                        last = time.monotonic()
            found = self._compared_pairs(index, *heard)
            if found is not None:
                return found
            now = time.monotonic()
            ahead = [who for answers in heard for who, queue in answers.items() if queue]
            waiting = [
                line.waiting[0]
                for peer in self.peers
                for line in peer.lines.values()
                if line.waiting
            ]
            if not ahead and not waiting:
                return None
            if ahead and now - last > APART_SECONDS_MAX:
                return self._one_waits(index, *heard)
            at_once = [request for request in waiting if not may_wait(request)]
            if at_once and now - sent > ANSWER_SECONDS_MAX:
                raise CannotGoOnError
            if not ahead and not at_once and now - last > QUIET_SECONDS and not asked:
                if any(request.api in WAITING_GROUPS for request in waiting):
                    for peer in self.peers:
                        peer.ask(HeartbeatRequest(f"{peer.meanings.prefix}g", 1, "nobody"), 3)
                asked = True
                last = time.monotonic()
            elif not ahead and not at_once and asked and now - last > BEHIND_SECONDS:
                return None
            time.sleep(0.0005)

    def _compared_pairs(
        self,
        index: int,
        kafka: dict[str, deque[tuple[Request, Answer]]],
        ottla: dict[str, deque[tuple[Request, Answer]]],
    ) -> Difference | None:
        for who, answers in kafka.items():
            while answers and ottla[who]:
                request, theirs = answers.popleft()
                _, ours = ottla[who].popleft()
                found = self._compare(index, request, theirs, ours)
                if found is not None:
                    return found
        return None

    def _one_waits(
        self,
        index: int,
        kafka: dict[str, deque[tuple[Request, Answer]]],
        ottla: dict[str, deque[tuple[Request, Answer]]],
    ) -> Difference:
        for queue in kafka.values():
            if queue:
                request, answer = queue[0]
                tree = normal(request, answer, self.kafka.meanings, self.kafka.port)
                return Difference(index, request, tree, "it waits")
        request, answer = next(queue[0] for queue in ottla.values() if queue)
        tree = normal(request, answer, self.ottla.meanings, self.ottla.port)
        if (request.api, tree.get("error_code")) in NEVER_ANSWERED:
            raise CannotGoOnError
        return Difference(index, request, "it waits", tree)


def may_wait(request: Request) -> bool:
    if request.api in (ApiKey.FETCH, ApiKey.SHARE_FETCH):
        return bool(request.body.get("max_wait_ms", 0) >= PARKED_MS)
    return request.api in WAITING_GROUPS


def is_heard(request: Request) -> bool:
    return request.api is not ApiKey.PRODUCE or request.body["acks"] != 0


def _is_plain_fetch(request: Request) -> bool:
    return request.api is ApiKey.FETCH and request.body.get("session_epoch", -1) == -1


def used(sequence: Sequence) -> tuple[set[str], set[str]]:
    """The topics and the transactional ids of a sequence."""
    topics: set[str] = set()
    transactions: set[str] = set()
    for request in requests_of(sequence):
        topics |= settling.names_of(request.body)
        transactions |= settling.transactions_of(request.body)
    return topics, transactions
