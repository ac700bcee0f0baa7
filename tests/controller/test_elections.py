"""One table: who leads, who is in sync and who is eligible after a change."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ottla.broker.controller.elections import Election, Rules, change_partition
from ottla.broker.metadata.delta import merge_change
from ottla.broker.metadata.image import PartitionImage

PLAIN = Rules(elr=False, min_insync_replicas=2, unclean_election=False)
ELR = Rules(elr=True, min_insync_replicas=2, unclean_election=False)
ONLINE, PREFERRED, UNCLEAN = Election.ONLINE, Election.PREFERRED, Election.UNCLEAN


@dataclass(frozen=True)
class Row:
    """`isr` is what the set becomes by the event; `alive` may lead."""

    says: str
    leader: int
    isr: list[int]
    alive: list[int]
    becomes: tuple[int, list[int], list[int], list[int]]
    rules: Rules = PLAIN
    election: Election = ONLINE
    old_isr: tuple[int, ...] = (1, 2, 3)
    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()


ROWS = [
    Row("nothing happens", 1, [1, 2, 3], [1, 2, 3], (1, [1, 2, 3], [], [])),
    Row("the leader stops", 1, [2, 3], [2, 3], (2, [2, 3], [], [])),
    Row("a follower stops", 1, [1, 3], [1, 3], (1, [1, 3], [], [])),
    Row("the leader is kept though not first", 3, [1, 2, 3], [1, 2, 3], (3, [1, 2, 3], [], [])),
    Row(
        "the preferred one takes over",
        3,
        [1, 2, 3],
        [1, 2, 3],
        (1, [1, 2, 3], [], []),
        election=PREFERRED,
    ),
    Row(
        "the preferred one lags, so the leader stays",
        3,
        [2, 3],
        [1, 2, 3],
        (3, [2, 3], [], []),
        election=PREFERRED,
        old_isr=(2, 3),
    ),
    Row("the last in sync stops: it is remembered", 1, [], [2], (-1, [1], [], []), old_isr=(1,)),
    Row(
        "somebody leads at any price",
        1,
        [],
        [3],
        (3, [3], [], []),
        election=UNCLEAN,
        old_isr=(1,),
    ),
    Row(
        "too few in sync: the one that left is eligible",
        1,
        [1],
        [1],
        (1, [1], [2], []),
        ELR,
        ONLINE,
        (1, 2),
    ),
    Row(
        "enough in sync: nobody need be eligible",
        1,
        [1, 3],
        [1, 3],
        (1, [1, 3], [], []),
        ELR,
        ONLINE,
        (1, 2, 3),
        (2,),
    ),
    Row(
        "all stop: all are eligible, the last leader is known",
        1,
        [],
        [],
        (-1, [], [1], [1]),
        ELR,
        ONLINE,
        (1,),
    ),
    Row(
        "an eligible one comes back", -1, [], [2], (2, [2], [1], [1]), ELR, ONLINE, (), (1, 2), (1,)
    ),
    Row(
        "only the last known leader comes back",
        -1,
        [],
        [1],
        (1, [1], [], [1]),
        ELR,
        ONLINE,
        (),
        (),
        (1,),
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.says)
def test_elections(row: Row) -> None:
    partition = PartitionImage(
        [1, 2, 3],
        list(row.old_isr),
        row.leader,
        5,
        5,
        [bytes(16)] * 3,
        list(row.elr),
        list(row.last_known),
        [],
        [],
    )

    record = change_partition(
        bytes(16),
        0,
        partition,
        isr=row.isr,
        rules=row.rules,
        election=row.election,
        acceptable=lambda broker_id: broker_id in row.alive,
    )
    after = partition if record is None else merge_change(partition, record)

    assert (after.leader, after.isr, after.elr, after.last_known_elr) == row.becomes
    assert (after.leader_epoch > 5) == (after.leader != row.leader)
    assert after.leader == -1 or after.leader in after.isr
