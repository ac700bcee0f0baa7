"""A shard alone: virtual time, answers by name, and every record that it wrote."""

from __future__ import annotations

import random
from typing import Any

from ottla.broker.coordinator.group import describing
from ottla.broker.coordinator.group.consumer_heartbeat import check_request
from ottla.broker.coordinator.group.inspection import describe, fetch_offsets, list_groups
from ottla.broker.coordinator.group.joining import Caller
from ottla.broker.coordinator.group.settings import GroupSettings
from ottla.broker.coordinator.group.shard import GroupShard
from ottla.broker.coordinator.group.topics import ImageTopics
from ottla.broker.coordinator.outcome import CoordinatorRecord, Moment, Outcome, Reply, Told
from ottla.broker.handlers.groups import with_protocol_name
from ottla.broker.metadata.image import EMPTY_IMAGE, PartitionImage, TopicImage, TopicsImage
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages import groups
from ottla.protocol.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.schema import Message
from tests.coordinator.asking import through_wire

START_WALL_MS = 1_704_067_200_000
TOPIC_ID = bytes(range(16))
PARTITIONS = 8
GROUP = "g"
REDUNDANT_MIN = 20


class KnownTopics:
    """Topics by name, as an image; there are no brokers in it, and no racks."""

    def __init__(self, topics: dict[str, tuple[bytes, int]]) -> None:
        self.image = EMPTY_IMAGE
        for name, (topic_id, partitions) in topics.items():
            self.put(name, partitions, topic_id)

    def put(self, name: str, partitions: int, topic_id: bytes | None = None) -> None:
        """A topic is made with an id that its name makes up, or has more partitions."""
        known = self.image.topics.by_name.get(name)
        if topic_id is None:
            topic_id = known.topic_id if known else name.encode().rjust(16, b"\0")
        one = PartitionImage([1], [1], 1, 0, 0, [bytes(16)], [], [], [], [])
        topic = TopicImage(name, topic_id, dict.fromkeys(range(partitions), one))
        self._replace({**self.image.topics.by_name, name: topic})

    def remove(self, name: str) -> None:
        self._replace({key: one for key, one in self.image.topics.by_name.items() if key != name})

    def id_of(self, name: str) -> bytes:
        return self.image.topics.by_name[name].topic_id

    def _replace(self, by_name: dict[str, TopicImage]) -> None:
        by_id = {topic.topic_id: topic for topic in by_name.values()}
        offset = self.image.offset + 1
        self.image = self.image._replace(topics=TopicsImage(by_name, by_id), offset=offset)


class Named:
    """A reply that notes who was answered what, as it comes through the wire."""

    def __init__(self, name: str, into: list[tuple[str, Any]], version: int) -> None:
        self.name = name
        self._into = into
        self._version = version

    def complete(self, response: Any) -> None:
        if isinstance(response, groups.JoinGroupResponse):
            response = with_protocol_name(response, self._version)
        self._into.append((self.name, through_wire(response, self._version)))


class Lone:
    """One shard and its shell, which appends everything at once."""

    def __init__(self, settings: GroupSettings | None = None, seed: int = 1) -> None:
        self.settings = GroupSettings() if settings is None else settings
        self.topics = KnownTopics({"t": (TOPIC_ID, PARTITIONS)})
        self.group_configs: dict[str, dict[str, str]] = {}
        self.monotonic_ms = 0
        self.records: list[CoordinatorRecord] = []
        self.told: list[Told] = []
        self._answers: list[tuple[str, Any]] = []
        self._rng = random.Random(seed)
        self.shard = self.new_shard()

    @property
    def now(self) -> Moment:
        return Moment(self.monotonic_ms, START_WALL_MS + self.monotonic_ms)

    def new_shard(self) -> GroupShard:
        return GroupShard(
            settings=lambda: self.settings,
            topics=ImageTopics(lambda: self.topics.image),
            group_config=lambda group_id: self.group_configs.get(group_id, {}),
            rng=self._rng,
        )

    def replayed(self) -> GroupShard:
        """Another shard, of the same records."""
        shard = self.new_shard()
        for record in self.records:
            shard.apply(record, self.now.wall_ms)
        return shard

    def prune(self) -> None:
        """What the shell does when most records are out of date."""
        if len(self.records) >= 2 * self.shard.record_count + REDUNDANT_MIN:
            anew = self.shard.written_anew(self.now, range(len(self.records)))
            if anew is not None:
                self.records = self.records[anew.begins_at :] + anew.outcome.records

    def crash(self) -> None:
        """What is not in the records is gone, and nobody is answered."""
        self.shard = self.replayed()
        self._perform(self.shard.loaded(self.now))
        self._perform(self.shard.forget_gone(self.now))

    # what a script asks of its target

    def send(self, who: str, request: Message, version: int) -> None:
        request = through_wire(request, version)
        self.send_for(Named(who, self._answers, version), who, request, version)

    def send_for(self, reply: Reply, who: str, request: Message, version: int) -> None:
        """Does a handler's work, too, as far as a group sees it."""
        shard, now = self.shard, self.now
        caller = Caller(who, "/127.0.0.1", version)
        match request:
            case groups.JoinGroupRequest():
                self._perform(shard.join(caller, request, reply, now))
            case groups.SyncGroupRequest():
                self._perform(shard.sync(caller, request, reply, now))
            case groups.HeartbeatRequest():
                self._perform(shard.heartbeat(request, reply, now))
            case groups.LeaveGroupRequest():
                self._perform(shard.leave(caller, request, reply, now))
            case groups.OffsetCommitRequest():
                self._perform(shard.commit_offsets(caller, request, reply, now))
            case groups.OffsetDeleteRequest():
                self._perform(shard.delete_offsets(request, reply, now))
            case groups.OffsetFetchRequest():
                (group,) = request.groups
                reply = Wrapped(reply, lambda one: groups.OffsetFetchResponse(groups=[one]))
                stable = request.require_stable
                reply.complete(fetch_offsets(shard, group, require_stable=stable))
            case groups.DescribeGroupsRequest():
                reply = Wrapped(reply, lambda one: groups.DescribeGroupsResponse(groups=[one]))
                reply.complete(describe(shard, request.groups[0], version))
            case ConsumerGroupHeartbeatRequest():
                try:
                    check_request(request, version, self.settings.assignors)
                except KafkaError as error:
                    refused = ConsumerGroupHeartbeatResponse(
                        error_code=int(error.code), error_message=error.message
                    )
                    reply.complete(refused)
                else:
                    self._perform(shard.consumer_heartbeat(caller, request, reply, now))
            case ConsumerGroupDescribeRequest():
                reply = Wrapped(reply, lambda one: ConsumerGroupDescribeResponse(groups=[one]))
                reply.complete(describing.describe(shard, request.group_ids[0]))
            case groups.ListGroupsRequest():
                found = list_groups(shard.groups.values(), request)
                reply.complete(groups.ListGroupsResponse(groups=found))
            case groups.DeleteGroupsRequest():
                reply = Wrapped(reply, lambda one: groups.DeleteGroupsResponse(results=[one]))
                self._perform(shard.delete_group(request.groups_names[0], reply, now))
            case _:
                raise AssertionError(request)

    def answers(self) -> list[tuple[str, Any]]:
        self.wait(0)
        answers = list(self._answers)
        self._answers.clear()
        return answers

    def wait(self, ms: int) -> None:
        """Virtual time passes, and whatever is due on the way happens when it is."""
        end_ms = self.monotonic_ms + ms
        while (next_ms := self.shard.next_deadline_ms()) is not None and next_ms <= end_ms:
            self.monotonic_ms = max(next_ms, self.monotonic_ms)
            self._perform(self.shard.expire(self.now))
        self.monotonic_ms = end_ms

    def expire_offsets(self) -> None:
        self._perform(self.shard.expire_offsets(self.now))

    def delete_topic(self, name: str) -> None:
        self.topics.remove(name)
        self._perform(self.shard.topics_deleted([name], self.now))
        self.shard.topics_changed([name], any_new=False)

    def make_topic(self, name: str, partitions: int) -> None:
        self.put_topic(name, partitions)

    def remove_topic(self, name: str) -> None:
        self.delete_topic(name)

    def topic_id(self, name: str) -> bytes:
        return self.topics.id_of(name)

    def set_group(self, key: str, value: str) -> None:
        self.group_configs.setdefault(GROUP, {})[key] = value

    def put_topic(self, name: str, partitions: int, topic_id: bytes | None = None) -> None:
        """A topic is made, or has more partitions."""
        is_new = name not in self.topics.image.topics.by_name
        self.topics.put(name, partitions, topic_id)
        self.shard.topics_changed([name], any_new=is_new)

    def events(self) -> list[str]:
        return [told.event for told in self.told]

    def _perform(self, outcome: Outcome) -> None:
        self.records += outcome.records
        self.told += outcome.told
        for answer in (*outcome.answers, *outcome.answers_now):
            answer.leave()
        for work in outcome.work:
            self._perform(work.done(work.run(), self.now))


class Wrapped:
    """A reply that is given one part of a response, and passes on the whole."""

    def __init__(self, reply: Reply, wrap: Any) -> None:
        self._reply = reply
        self._wrap = wrap

    def complete(self, response: Any) -> None:
        self._reply.complete(self._wrap(response))
