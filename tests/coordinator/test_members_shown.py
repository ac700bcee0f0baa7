"""What the leader of a group is shown of its members."""

from __future__ import annotations

from ottla.broker.coordinator.group.settings import GroupSettings
from ottla.protocol.messages import groups
from tests.coordinator.shards import Lone

DELAY_MS = 50


def _join(instance_id: str | None) -> groups.JoinGroupRequest:
    protocol = groups.JoinGroupRequest.JoinGroupRequestProtocol("range", b"")
    request = groups.JoinGroupRequest("g", 10_000, 60_000, "", instance_id, "consumer")
    request.protocols = [protocol]
    return request


def test_static_members_come_first() -> None:
    """kafka-python's range assignor loses whoever stands before one that is not first or last."""
    lone = Lone(GroupSettings(initial_rebalance_delay_ms=DELAY_MS))
    lone.send("one", _join(None), 3)
    lone.send("static", _join("s"), 5)
    lone.send("two", _join(None), 3)
    lone.wait(10 * DELAY_MS)
    answers = dict(lone.answers())

    (leader,) = [one for one in answers.values() if one.members]
    assert leader is answers["one"]
    assert leader.members[0].member_id == answers["static"].member_id
    assert len(leader.members) == 3
