"""Groups of every kind in a directory that goes from one broker to another.

`fill` leaves these in a broker, by requests of its own, so that members can vanish without a word:

    offsets     committed by nobody's member, with metadata, and by a transaction
    pending     an offset in a transaction that is still open
    left        a classic group whose member has left
    classic     two members, one of them static, with assignments and a commit
    consumer    two members by KIP-848, one of them static and subscribed by a pattern, and a commit
    share       a member that has acquired all, and accepted, released and rejected some of it
    altered     a share group without members, told where to begin

`seen` asks everything about them. `go_on` has the members that were left go on where the directory
was opened: what they are must be known there, so that nobody has to join or to be assigned again,
and what the share groups deliver must be what was left.
"""

from __future__ import annotations

import asyncio
import base64
import struct
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.client.connection import Connection
from ottla.protocol.messages import consumer_group, groups, share_group
from ottla.protocol.messages.configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.schema import Message, Struct, fields_of
from tests.peers import topics

TOPIC = "carried"
PARTITIONS = 2
SHARED = "carried-by-shares"
SHARED_RECORDS = 20
GROUPS = ("offsets", "pending", "left", "classic", "consumer")
SHARE_GROUPS = ("share", "altered")
ALTERED_START = 7
SESSION_MS = 300_000
TRANSACTION_MS = 900_000
WAIT_SECONDS_MAX = 40.0
PAUSE_S = 0.2
NOT_YET = (3, 14, 15, 16)
"""The topic is not known everywhere, or the coordinator is loading, not available, elsewhere."""
MEMBER_ID_REQUIRED = 79
UNSTABLE = 88
GROUP_RESOURCE = 32
ACCEPT, RELEASE, REJECT = 1, 2, 3
ACKNOWLEDGED = ((0, 4, ACCEPT), (5, 6, RELEASE), (7, 7, REJECT), (10, 11, ACCEPT))
LEFT_OVER = {5: 2, 6: 2, 8: 1, 9: 1, **dict.fromkeys(range(12, SHARED_RECORDS), 1)}
"""What is delivered again, and how often it was then delivered: what a member held and said nothing
of counts as new, for nothing was written of it."""


def _uuid(name: bytes) -> str:
    """A member id as Kafka's clients make them."""
    assert len(name) == 16
    return base64.urlsafe_b64encode(name).decode().rstrip("=")


SHARE_MEMBER = _uuid(b"member-of-shares")
LATER_MEMBER = _uuid(b"comes-only-later")
MODERN_MEMBERS = (_uuid(b"subscribes-names"), _uuid(b"static-with-regx"))


@dataclass
class Left:
    """What the members knew when they vanished, and clients that must not be gone before that."""

    generation: int = 0
    classic: dict[str, str | None] = field(default_factory=dict)
    """Member ids, and the instances of the static ones."""
    modern: list[ModernMember] = field(default_factory=list)
    share_epoch: int = 0
    clients: list[object] = field(default_factory=list)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    """Of the members' connections: a share group releases what was held by one that is closed."""


class Questions:
    """One connection to one broker; a question is asked until there is an answer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    async def to(cls, bootstrap: str) -> Questions:
        host, _, port = bootstrap.partition(":")
        return cls(await Connection.open(host, int(port), client_id="carried"))

    async def ask(self, request: Message, version: int, *, allowed: int = 0) -> Any:
        """The first answer that does not put it off. Raises AssertionError for an error that is
        not allowed."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            answer = await self._connection.request(request, version)
            codes = {code for code in _codes(answer) if code not in (0, allowed)}
            if not codes:
                return answer
            assert codes <= set(NOT_YET), f"{request} was answered {answer}"
            assert time.monotonic() < deadline, f"{request} is still answered {answer}"
            await asyncio.sleep(PAUSE_S)

    async def close(self) -> None:
        await self._connection.close()


@dataclass
class ModernMember:
    """A member by KIP-848: it tells with each heartbeat all that it is."""

    member: str
    instance: str | None
    topic: str | None
    pattern: str | None
    epoch: int = 0
    owned: list[Any] = field(default_factory=list)

    async def beat(self, questions: Questions) -> None:
        held = [
            consumer_group.ConsumerGroupHeartbeatRequest.TopicPartitions(
                one.topic_id, one.partitions
            )
            for one in self.owned
        ]
        request = consumer_group.ConsumerGroupHeartbeatRequest(
            "consumer",
            self.member,
            self.epoch,
            self.instance,
            None,
            SESSION_MS,
            [] if self.topic is None else [self.topic],
            self.pattern,
            "uniform",
            held,
        )
        answer = await questions.ask(request, 1)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = answer.assignment.topic_partitions


def _codes(answer: object) -> list[int]:
    """All error codes in an answer."""
    if isinstance(answer, list):
        return [code for one in answer for code in _codes(one)]
    if not isinstance(answer, Struct):
        return []
    found: list[int] = []
    for item in fields_of(type(answer)):
        value = getattr(answer, item.name)
        if item.name.endswith("error_code"):
            found.append(value)
        else:
            found += _codes(value)
    return found


def _plain(answer: object) -> Any:
    """An answer as dictionaries and sorted lists, which can be compared."""
    if isinstance(answer, list):
        return sorted((_plain(one) for one in answer), key=repr)
    if not isinstance(answer, Struct):
        return answer
    return {item.name: _plain(getattr(answer, item.name)) for item in fields_of(type(answer))}


async def _wait(what: str, is_so: Callable[[], Awaitable[bool]]) -> None:
    """Calls it until it says yes."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not await is_so():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        await asyncio.sleep(PAUSE_S)


def fill(bootstrap: str) -> Left:
    """Leaves the groups in a broker."""
    topics.create(bootstrap, {TOPIC: PARTITIONS, SHARED: 1})
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(SHARED_RECORDS):
        producer.produce(SHARED, b"%d" % number, partition=0)
        producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    left = Left()
    _commit_offsets(bootstrap, left)
    left.loop.run_until_complete(_fill(bootstrap, left))
    return left


def _commit_offsets(bootstrap: str, left: Left) -> None:
    """By nobody's member, by a transaction, and by one that stays open."""

    def reader(group: str) -> Consumer:
        return Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})

    alone = reader("offsets")
    place = TopicPartition(TOPIC, 0, 3, metadata="as far as the third", leader_epoch=0)
    alone.commit(offsets=[place], asynchronous=False)
    for group in ("offsets", "pending"):
        settings = {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"commits-{group}",
            "transaction.timeout.ms": TRANSACTION_MS,
            "log_level": 0,
        }
        producer = Producer(settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        consumer = reader(group)
        producer.send_offsets_to_transaction(
            [TopicPartition(TOPIC, 1, 5)], consumer.consumer_group_metadata(), 30
        )
        consumer.close()
        if group == "offsets":
            producer.commit_transaction(30)
        left.clients.append(producer)
    alone.close()


async def _fill(bootstrap: str, left: Left) -> None:
    questions = await Questions.to(bootstrap)
    left.clients.append(questions)
    await asyncio.gather(_leave_a_group(bootstrap), _fill_classic(bootstrap, left))
    await _fill_modern(questions, left)
    await _fill_altered(questions)
    await _fill_share(questions, left)


async def _join(
    bootstrap: str, group: str, instance: str | None, members: int
) -> tuple[Questions, Any]:
    """Joins on a connection of its own, until so many members are in the group."""
    questions = await Questions.to(bootstrap)
    subscription = groups.JoinGroupRequest.JoinGroupRequestProtocol(
        "range", struct.pack(">hi", 0, 1) + _text(TOPIC) + struct.pack(">i", -1)
    )
    request = groups.JoinGroupRequest(
        group, SESSION_MS, SESSION_MS, "", instance, "consumer", [subscription]
    )
    while True:
        answer = await questions.ask(request, 9, allowed=MEMBER_ID_REQUIRED)
        request.member_id = answer.member_id
        if answer.error_code == 0:
            is_leader = answer.leader == answer.member_id
            assert not is_leader or len(answer.members) == members, f"{answer}"
            return questions, answer


def _text(word: str) -> bytes:
    return struct.pack(">h", len(word)) + word.encode()


def _assignment(partitions: Sequence[int]) -> bytes:
    listed = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hi", 0, 1) + _text(TOPIC) + listed + struct.pack(">i", -1)


async def _sync(
    questions: Questions, group: str, joined: Any, instance: str | None, given: Sequence[str]
) -> None:
    """`given` are the members to assign to, if this one leads."""
    assignments = [
        groups.SyncGroupRequest.SyncGroupRequestAssignment(member, _assignment([index]))
        for index, member in enumerate(given)
    ]
    request = groups.SyncGroupRequest(
        group,
        joined.generation_id,
        joined.member_id,
        instance,
        "consumer",
        "range",
        assignments if joined.leader == joined.member_id else [],
    )
    await questions.ask(request, 5)


async def _leave_a_group(bootstrap: str) -> None:
    questions, joined = await _join(bootstrap, "left", None, 1)
    await _sync(questions, "left", joined, None, [joined.member_id])
    await _commit(questions, "left", joined.generation_id, joined.member_id, 2)
    identity = groups.LeaveGroupRequest.MemberIdentity(joined.member_id)
    await questions.ask(groups.LeaveGroupRequest("left", members=[identity]), 5)
    await questions.close()


async def _fill_classic(bootstrap: str, left: Left) -> None:
    instances = (None, "static-by-name")
    both = await asyncio.gather(
        *(_join(bootstrap, "classic", one, len(instances)) for one in instances)
    )
    ids = [joined.member_id for _, joined in both]
    left.classic = dict(zip(ids, instances, strict=True))
    left.generation = both[0][1].generation_id
    await asyncio.gather(
        *(
            _sync(questions, "classic", joined, instance, ids)
            for (questions, joined), instance in zip(both, instances, strict=True)
        )
    )
    await _commit(both[0][0], "classic", left.generation, ids[0], 4)
    for questions, _ in both:
        await questions.close()


async def _commit(
    questions: Questions, group: str, generation: int, member: str, offset: int
) -> None:
    part = groups.OffsetCommitRequest.OffsetCommitRequestPartition(0, offset, 0, f"by {group}")
    topic = groups.OffsetCommitRequest.OffsetCommitRequestTopic(TOPIC, partitions=[part])
    await questions.ask(groups.OffsetCommitRequest(group, generation, member, topics=[topic]), 9)


async def _fill_modern(questions: Questions, left: Left) -> None:
    plain = ModernMember(MODERN_MEMBERS[0], None, TOPIC, None)
    static = ModernMember(MODERN_MEMBERS[1], "static-by-pattern", None, f"{TOPIC}|x.*")

    async def is_settled() -> bool:
        await plain.beat(questions)
        await static.beat(questions)
        (group,) = (await questions.ask(_describe_modern(), 1)).groups
        assigned = [one.assignment.topic_partitions for one in group.members]
        return group.group_state == "Stable" and len(assigned) == 2 and all(assigned)

    await _wait("both have a partition", is_settled)
    left.modern = [plain, static]
    await _commit(questions, "consumer", plain.epoch, plain.member, 6)


def _describe_modern() -> Message:
    return consumer_group.ConsumerGroupDescribeRequest(["consumer"])


async def _beat_share(questions: Questions, group: str, member: str, epoch: int) -> Any:
    names = None if epoch < 0 else [SHARED]
    request = share_group.ShareGroupHeartbeatRequest(group, member, epoch, None, names)
    return await questions.ask(request, 1)


async def _enter_share(questions: Questions, group: str, member: str) -> int:
    """Joins until it has its partition; returns its epoch."""
    epoch = 0

    async def is_assigned() -> bool:
        nonlocal epoch
        answer = await _beat_share(questions, group, member, epoch)
        epoch = answer.member_epoch
        return answer.assignment is not None and bool(answer.assignment.topic_partitions)

    await _wait(f"{member} is assigned {SHARED}", is_assigned)
    return epoch


async def _topic_id(questions: Questions, name: str) -> bytes:
    asked = MetadataRequest([MetadataRequest.MetadataRequestTopic(name=name)])
    (found,) = (await questions.ask(asked, 12)).topics
    topic_id: bytes = found.topic_id
    return topic_id


async def _acquire(
    questions: Questions, group: str, member: str, count: int
) -> tuple[dict[int, int], int]:
    """Opens a session and takes what comes, until so much is there; (delivery counts by offset, the
    session's next epoch)."""
    counts: dict[int, int] = {}
    epoch = 0
    place = share_group.ShareFetchRequest.FetchTopic(
        await _topic_id(questions, SHARED), [share_group.ShareFetchRequest.FetchPartition(0)]
    )

    async def is_all() -> bool:
        nonlocal epoch
        request = share_group.ShareFetchRequest(
            group, member, epoch, 500, 1, max_records=500, batch_size=500, topics=[place]
        )
        answer = await questions.ask(request, 1)
        epoch += 1
        for topic in answer.responses:
            for one in topic.partitions[0].acquired_records:
                offsets = range(one.first_offset, one.last_offset + 1)
                counts.update(dict.fromkeys(offsets, one.delivery_count))
        return len(counts) >= count

    await _wait(f"{count} records of {group} are acquired", is_all)
    return counts, epoch


async def _fill_share(questions: Questions, left: Left) -> None:
    await _begin_at_the_earliest(questions)
    left.share_epoch = await _enter_share(questions, "share", SHARE_MEMBER)
    counts, epoch = await _acquire(questions, "share", SHARE_MEMBER, SHARED_RECORDS)
    assert counts == dict.fromkeys(range(SHARED_RECORDS), 1), f"{counts}"
    kinds = share_group.ShareAcknowledgeRequest
    part = kinds.AcknowledgePartition(
        0, [kinds.AcknowledgementBatch(first, last, [kind]) for first, last, kind in ACKNOWLEDGED]
    )
    place = kinds.AcknowledgeTopic(await _topic_id(questions, SHARED), [part])
    await questions.ask(kinds("share", SHARE_MEMBER, epoch, topics=[place]), 1)


async def _begin_at_the_earliest(questions: Questions) -> None:
    changes = IncrementalAlterConfigsRequest
    entry = changes.AlterableConfig("share.auto.offset.reset", 0, "earliest")
    resources = [
        changes.AlterConfigsResource(GROUP_RESOURCE, group, [entry]) for group in SHARE_GROUPS
    ]
    await questions.ask(changes(resources), 1)


async def _fill_altered(questions: Questions) -> None:
    await _enter_share(questions, "altered", SHARE_MEMBER)
    await _beat_share(questions, "altered", SHARE_MEMBER, -1)
    kinds = share_group.AlterShareGroupOffsetsRequest
    part = kinds.AlterShareGroupOffsetsRequestPartition(0, ALTERED_START)
    topic = kinds.AlterShareGroupOffsetsRequestTopic(SHARED, [part])
    await questions.ask(kinds("altered", [topic]), 0)


def seen(bootstrap: str) -> dict[str, Any]:
    """What is told of the groups, by question."""
    return asyncio.run(_seen(bootstrap))


async def _seen(bootstrap: str) -> dict[str, Any]:
    questions = await Questions.to(bootstrap)
    fetches = groups.OffsetFetchRequest
    everything = [fetches.OffsetFetchRequestGroup(one, topics=None) for one in GROUPS]
    shares = share_group.DescribeShareGroupOffsetsRequest
    all_shares = [
        shares.DescribeShareGroupOffsetsRequestGroup(one, topics=None) for one in SHARE_GROUPS
    ]
    classic = [one for one in GROUPS if one != "consumer"]
    asked: dict[str, tuple[Message, int]] = {
        "offsets": (fetches(groups=everything), 9),
        "classic": (groups.DescribeGroupsRequest(classic), 6),
        "consumer": (_describe_modern(), 1),
        "shares": (share_group.ShareGroupDescribeRequest(list(SHARE_GROUPS)), 1),
        "share offsets": (shares(all_shares), 1),
        # The last: groups whose coordinator has not begun to load are left out of it.
        "list": (groups.ListGroupsRequest(), 5),
    }
    try:
        told = {what: _plain(await questions.ask(*question)) for what, question in asked.items()}
        part = fetches.OffsetFetchRequestTopics(TOPIC, partition_indexes=[1])
        stable = fetches(
            groups=[fetches.OffsetFetchRequestGroup("pending", topics=[part])], require_stable=True
        )
        return {**told, "stable": _plain(await questions.ask(stable, 9, allowed=UNSTABLE))}
    finally:
        await questions.close()


def go_on(bootstrap: str, left: Left) -> str:
    """The members go on; says how many. Raises AssertionError if one is not known any more, or if
    the share groups deliver something else than was left."""
    return asyncio.run(_go_on(bootstrap, left))


async def _go_on(bootstrap: str, left: Left) -> str:
    questions = await Questions.to(bootstrap)
    try:
        for member, instance in left.classic.items():
            beat = groups.HeartbeatRequest("classic", left.generation, member, instance)
            await questions.ask(beat, 4)
        for modern in left.modern:
            before = modern.epoch
            await modern.beat(questions)
            assert modern.epoch == before, f"{modern} had epoch {before}"
        answer = await _beat_share(questions, "share", SHARE_MEMBER, left.share_epoch)
        assert answer.member_epoch == left.share_epoch, f"{answer}"
        counts, _ = await _acquire(questions, "share", SHARE_MEMBER, len(LEFT_OVER))
        assert counts == LEFT_OVER, f"share delivers {counts}, not {LEFT_OVER}"
        await _enter_share(questions, "altered", LATER_MEMBER)
        rest = range(ALTERED_START, SHARED_RECORDS)
        counts, _ = await _acquire(questions, "altered", LATER_MEMBER, len(rest))
        assert counts == dict.fromkeys(rest, 1), f"altered delivers {counts}"
        return f"{len(left.classic) + len(left.modern) + 1} members went on"
    finally:
        await questions.close()
