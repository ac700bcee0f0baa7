"""The classic protocol in every version: what a client says and hears that speaks no newer one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple, cast

import pytest

from ottla.broker.coordinator.group.classic import ClassicGroup
from ottla.broker.coordinator.group.settings import NEWCOMERS_MS
from ottla.broker.coordinator.group.shard import GroupShard
from ottla.protocol.api import SERVED, ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import groups
from ottla.protocol.schema import Message
from ottla.protocol.wire import ZERO_UUID
from ottla.testing.clock import SimClock
from tests.coordinator.asking import ask
from tests.handlers.rooms import House

GROUP, TOPIC, INSTANCE = "g", "t", "i"
SESSION_MS, REBALANCE_MS, RETENTION_MS = 10_000, 20_000, 5_000
LEADER_EPOCH = 7
REASON = "for a test"


class Client(NamedTuple):
    """The versions that a client speaks, by API."""

    join: int
    sync: int
    beat: int
    commit: int
    fetch: int
    leave: int


CLIENTS = [Client(n, min(n, 5), min(n, 4), min(n + 2, 10), n + 1, min(n, 5)) for n in range(10)]
APIS = Client(
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.LEAVE_GROUP,
)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    settings = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
    async with House(settings) as opened:
        await opened.create(TOPIC)
        await ask(opened, groups.FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        yield opened


def test_every_version_is_spoken() -> None:
    for key, versions in zip(APIS, zip(*CLIENTS, strict=True), strict=True):
        api = SERVED[ApiKey(key)]

        assert sorted(set(versions)) == list(range(api.min_version, api.max_version + 1)), api


@pytest.mark.parametrize("client", CLIENTS, ids=lambda one: f"JoinGroup-{one.join}")
async def test_a_life_in_one_version(house: House, client: Client) -> None:
    member_id = await _enters(house, client.join)
    await _is_assigned(house, client.sync, member_id)
    assert (await ask(house, _beat(member_id), client.beat)).error_code == 0
    await _commits(house, client.commit, member_id)
    await _fetches(house, client)
    await _leaves(house, client.leave, member_id)

    assert (await ask(house, _beat(member_id), client.beat)).error_code == 25


async def _enters(house: House, version: int) -> str:
    """From 4 on it is given its id and sent back; before 1 it says nothing of rebalances."""
    joined = await _join(house, version)
    if version >= 4:
        assert (joined.error_code, joined.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
        assert joined.protocol_name == (None if version >= 7 else "")
        joined = await _join(house, version, joined.member_id)
    member_id: str = joined.member_id
    member = _group(house).members[member_id]

    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, member_id)
    assert (joined.protocol_type, joined.protocol_name) == (_since(7, version, "test"), "range")
    assert [(one.member_id, one.metadata) for one in joined.members] == [(member_id, b"meta")]
    assert member.session_timeout_ms == SESSION_MS
    assert member.rebalance_timeout_ms == (REBALANCE_MS if version >= 1 else SESSION_MS)
    assert (REASON in _reason(house, "group_rebalances")) is (version >= 8)
    return member_id


async def _is_assigned(house: House, version: int, member_id: str) -> None:
    """From 5 on both sides say by which protocol."""
    synced = await ask(house, _sync(member_id), version)
    shown = (synced.error_code, synced.assignment, synced.protocol_type, synced.protocol_name)
    named = _since(5, version, "test"), _since(5, version, "range")
    other = await ask(house, _sync(member_id, protocol="other"), version)

    assert shown == (0, b"mine", *named)
    assert other.error_code == (23 if version >= 5 else 0)


async def _commits(house: House, version: int, member_id: str) -> None:
    """How long it is kept is said up to 4, the leader epoch from 6, the topic's id from 10 on."""
    committed = await ask(house, _commit(house, member_id), version)
    (topic,) = committed.topics
    offset = _shard(house).offsets.get(GROUP, TOPIC, 0)

    topic_id = _topic_id(house) if version >= 10 else ZERO_UUID
    assert (topic.name, topic.topic_id) == ("" if version >= 10 else TOPIC, topic_id)
    assert [one.error_code for one in topic.partitions] == [0]
    assert offset is not None
    assert (offset.offset, offset.metadata) == (5, "m")
    assert offset.leader_epoch == (LEADER_EPOCH if version >= 6 else -1)
    expires_ms = offset.commit_timestamp_ms + RETENTION_MS
    assert offset.expire_timestamp_ms == (expires_ms if version <= 4 else -1)


async def _fetches(house: House, client: Client) -> None:
    """One group up to 7, by names up to 9; the leader epoch is told from 5 on."""
    version = client.fetch
    request: groups.OffsetFetchRequest
    if version < 8:
        asked = groups.OffsetFetchRequest.OffsetFetchRequestTopic(TOPIC, [0])
        request = groups.OffsetFetchRequest(GROUP, [asked])
    else:
        topic = groups.OffsetFetchRequest.OffsetFetchRequestTopics(TOPIC, _topic_id(house), [0])
        one = groups.OffsetFetchRequest.OffsetFetchRequestGroup(GROUP, topics=[topic])
        request = groups.OffsetFetchRequest(groups=[one])
    answer = await ask(house, request, version)
    (found,) = answer.topics if version < 8 else answer.groups[0].topics
    (part,) = found.partitions

    assert found.name == ("" if version >= 10 else TOPIC)
    assert (part.error_code, part.committed_offset, part.metadata) == (0, 5, "m")
    told = version >= 5 and client.commit >= 6
    assert part.committed_leader_epoch == (LEADER_EPOCH if told else -1)


async def _leaves(house: House, version: int, member_id: str) -> None:
    """From 3 on as one of several, from 5 on with its reason."""
    left = await ask(house, _leave(member_id, version), version)

    assert left.error_code == 0
    each = [(one.member_id, one.group_instance_id, one.error_code) for one in left.members]
    assert each == ([(member_id, None, 0)] if version >= 3 else [])
    assert (REASON in _reason(house, "group_member_left")) is (version >= 5)
    # Before 3 it is the request's own error.
    again = await ask(house, _leave(member_id, version), version)
    assert again.error_code == (0 if version >= 3 else ErrorCode.UNKNOWN_MEMBER_ID)


@pytest.mark.parametrize("version", range(5, 10))
async def test_an_instance_comes_back(house: House, version: int) -> None:
    """From 9 on its answer may tell a leader not to assign; before, that it does not lead."""
    first = await _join(house, version, instance=INSTANCE)
    assert [one.group_instance_id for one in first.members] == [INSTANCE]
    assert (await ask(house, _sync(first.member_id), 3)).error_code == 0
    again = await _join(house, version, instance=INSTANCE)
    fenced = await _join(house, version, first.member_id, instance=INSTANCE)

    assert (again.error_code, again.generation_id) == (0, 1)
    assert again.skip_assignment is (version >= 9)
    assert again.leader == (again.member_id if version >= 9 else first.member_id)
    members = [(one.member_id, one.group_instance_id) for one in again.members]
    assert members == ([(again.member_id, INSTANCE)] if version >= 9 else [])
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


INSTANCES_SINCE = {
    ApiKey.SYNC_GROUP: 3,
    ApiKey.HEARTBEAT: 3,
    ApiKey.LEAVE_GROUP: 3,
    ApiKey.OFFSET_COMMIT: 7,
}


async def test_a_fenced_instance_is_told_so_in_every_version_that_has_instances(
    house: House,
) -> None:
    """One without them cannot even ask."""
    former = (await _join(house, 5, instance=INSTANCE)).member_id
    await _join(house, 5, instance=INSTANCE)
    for key, since in INSTANCES_SINCE.items():
        with pytest.raises(ValueError, match=r"group_instance_id|members"):
            await ask(house, _fenced(house, key, former), since - 1)
        for version in range(since, SERVED[key].max_version + 1):
            answer = await ask(house, _fenced(house, key, former), version)
            if key is ApiKey.LEAVE_GROUP:
                (answer,) = answer.members
                assert answer.group_instance_id == INSTANCE
            if key is ApiKey.OFFSET_COMMIT:
                ((answer,),) = [topic.partitions for topic in answer.topics]

            assert answer.error_code == ErrorCode.FENCED_INSTANCE_ID, (key, version)


def _fenced(house: House, key: ApiKey, member_id: str) -> Message:
    """A request of one whose instance has come back."""
    match key:
        case ApiKey.SYNC_GROUP:
            return _sync(member_id, instance=INSTANCE)
        case ApiKey.HEARTBEAT:
            return _beat(member_id, instance=INSTANCE)
        case ApiKey.LEAVE_GROUP:
            return _leave(member_id, 3, instance=INSTANCE)
        case _:
            return _commit(house, member_id, instance=INSTANCE)


def _since(first: int, version: int, value: str) -> str | None:
    return value if version >= first else None


async def _join(
    house: House, version: int, member_id: str = "", *, instance: str | None = None
) -> groups.JoinGroupResponse:
    protocol = groups.JoinGroupRequest.JoinGroupRequestProtocol("range", b"meta")
    request = groups.JoinGroupRequest(
        GROUP, SESSION_MS, REBALANCE_MS, member_id, instance, "test", [protocol], REASON
    )
    joining = asyncio.ensure_future(ask(house, request, version))
    await asyncio.sleep(0)
    cast(SimClock, house.rooms.clock).advance(NEWCOMERS_MS)
    async with asyncio.timeout(5):
        answer = await joining
    assert isinstance(answer, groups.JoinGroupResponse)
    return answer


def _sync(
    member_id: str, *, instance: str | None = None, protocol: str = "range"
) -> groups.SyncGroupRequest:
    mine = groups.SyncGroupRequest.SyncGroupRequestAssignment(member_id, b"mine")
    return groups.SyncGroupRequest(GROUP, 1, member_id, instance, "test", protocol, [mine])


def _beat(member_id: str, *, instance: str | None = None) -> groups.HeartbeatRequest:
    return groups.HeartbeatRequest(GROUP, 1, member_id, instance)


def _commit(
    house: House, member_id: str, *, instance: str | None = None
) -> groups.OffsetCommitRequest:
    request = groups.OffsetCommitRequest
    part = request.OffsetCommitRequestPartition(0, 5, LEADER_EPOCH, "m")
    topic = request.OffsetCommitRequestTopic(TOPIC, _topic_id(house), [part])
    return request(GROUP, 1, member_id, instance, RETENTION_MS, [topic])


def _leave(
    member_id: str, version: int, *, instance: str | None = None
) -> groups.LeaveGroupRequest:
    if version < 3:
        return groups.LeaveGroupRequest(GROUP, member_id)
    leaver = groups.LeaveGroupRequest.MemberIdentity(member_id, instance, REASON)
    return groups.LeaveGroupRequest(GROUP, members=[leaver])


def _shard(house: House) -> GroupShard:
    return house.rooms.groups.runner(GROUP)[1]


def _group(house: House) -> ClassicGroup:
    group = _shard(house).groups[GROUP]
    assert isinstance(group, ClassicGroup)
    return group


def _topic_id(house: House) -> bytes:
    return house.rooms.image.topics.by_name[TOPIC].topic_id


def _reason(house: House, event: str) -> str:
    """What was told of the only event of this name."""
    told = [one for one in house.rooms.groups.history.of_group(GROUP) if one.event == event]
    (one,) = told
    return one.reason
