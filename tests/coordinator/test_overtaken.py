"""What becomes of answers whose records are not durable yet when the group goes on."""

from __future__ import annotations

from typing import Any

from ottla.broker.coordinator.group.settings import GroupSettings
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import groups
from ottla.protocol.schema import Message
from tests.coordinator.simulation import SyncedLate

REBALANCE = int(ErrorCode.REBALANCE_IN_PROGRESS)
MEMBER_ID_REQUIRED = int(ErrorCode.MEMBER_ID_REQUIRED)
ASSIGNED = b"all of them"


class Scene:
    """A shard whose records become durable when the scene says so."""

    def __init__(self) -> None:
        self.late = SyncedLate(GroupSettings(initial_rebalance_delay_ms=0), 1)

    def asks(self, who: str, request: Message, version: int) -> None:
        self.late.send(who, request, version)

    def answers(self) -> dict[str, Any]:
        return dict(self.late.answers())

    def joins(self, who: str, member_id: str = "") -> dict[str, Any]:
        protocol = groups.JoinGroupRequest.JoinGroupRequestProtocol("range", b"")
        request = groups.JoinGroupRequest("g", 10_000, 60_000, member_id, None, "consumer")
        request.protocols = [protocol]
        self.asks(who, request, 5)
        return self.answers()

    def assigns(self, who: str, member_id: str, generation: int) -> dict[str, Any]:
        assignment = groups.SyncGroupRequest.SyncGroupRequestAssignment(member_id, ASSIGNED)
        request = groups.SyncGroupRequest("g", generation, member_id)
        request.assignments = [assignment]
        self.asks(who, request, 3)
        return self.answers()


def _with_one_member() -> tuple[Scene, str]:
    scene = Scene()
    member_id = scene.joins("one")["one"].member_id
    answers = scene.joins("one", member_id)
    assert answers["one"].generation_id == 1
    return scene, member_id


def test_a_member_id_and_a_generation_wait_for_no_sync() -> None:
    scene = Scene()
    first = scene.joins("one")["one"]
    second = scene.joins("one", first.member_id)["one"]

    assert scene.late.records == []
    assert first.error_code == MEMBER_ID_REQUIRED
    assert (second.error_code, second.generation_id) == (0, 1)


def test_an_assignment_waits_for_its_sync() -> None:
    scene, member_id = _with_one_member()
    before = scene.assigns("one", member_id, 1)
    scene.late.sync()

    assert before == {}
    assert scene.answers()["one"].assignment == ASSIGNED


def test_who_waits_for_an_assignment_is_told_of_the_next_rebalance() -> None:
    scene, member_id = _with_one_member()
    scene.assigns("one", member_id, 1)
    other_id = scene.joins("other")["other"].member_id
    scene.joins("other", other_id)
    scene.late.sync()
    answer = scene.answers()["one"]

    assert (answer.error_code, answer.assignment) == (REBALANCE, b"")
    answers = scene.joins("one", member_id)
    assert {who: one.generation_id for who, one in answers.items()} == {"one": 2, "other": 2}
