"""Leader epochs: Kafka's answers, and its file."""

from __future__ import annotations

import pytest

from ottla.broker.log.checkpoints import MalformedFile
from ottla.broker.log.leader_epochs import LeaderEpochs
from tests.log.logs import append, flush, new_disk, open_log


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    made = LeaderEpochs()
    for epoch, start in entries:
        made.assign(epoch, start)
    return made


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, (-1, -1)),
        (-2, (-2, 10)),
        (-(2**31), (-(2**31), 10)),
        (0, (0, 10)),  # below all known: that epoch, and the start of the first
        (2, (2, 20)),
        (3, (2, 20)),  # between: the one before, and where it ends
        (4, (4, 30)),
        (7, (7, 99)),  # the newest ends with the log
        (8, (-1, -1)),
    ],
)
def test_where_an_epoch_ends(epoch: int, answer: tuple[int, int]) -> None:
    assert epochs((2, 10), (4, 20), (7, 30)).end_offset_for(epoch, 99) == answer


def test_an_empty_log_of_epoch_zero_answers_its_end() -> None:
    log = open_log(new_disk())
    assert log.end_offset_for_epoch(0) == (-1, -1)
    assert log.end_offset_for_epoch(-2) == (-1, -1)
    log.assign_epoch(0)

    assert log.end_offset_for_epoch(0) == (0, 0)
    assert log.end_offset_for_epoch(5) == (-1, -1)


def test_a_new_entry_replaces_those_it_contradicts() -> None:
    made = epochs((1, 10), (2, 20), (5, 30))
    made.assign(5, 40)
    assert made.entries == [(1, 10), (2, 20), (5, 30)]
    made.assign(6, 20)
    assert made.entries == [(1, 10), (6, 20)]
    made.assign(3, 5)

    assert made.entries == [(3, 5)]


def test_cutting_from_both_ends() -> None:
    made = epochs((1, 10), (2, 20), (5, 30))
    made.truncate_to(30)
    assert made.entries == [(1, 10), (2, 20)]
    made.start_at(15)
    assert made.entries == [(1, 15), (2, 20)]
    made.start_at(20)
    assert made.entries == [(2, 20)]
    assert [made.epoch_of(offset) for offset in (19, 20, 99)] == [-1, 2, 2]


def test_the_file_is_kafkas() -> None:
    data = b"0\n3\n0 48\n2 51\n8 57\n"
    made = LeaderEpochs.parse(data)

    assert made.entries == [(0, 48), (2, 51), (8, 57)]
    assert made.unwritten(100) is None
    made.assign(9, 60)
    assert made.unwritten(60) is None  # no record of it yet
    assert made.unwritten(61) == b"0\n4\n0 48\n2 51\n8 57\n9 60\n"


@pytest.mark.parametrize("rows", [b"1 5\n1 9\n", b"2 5\n1 9\n", b"1 5\n2 5\n", b"x 5\n2 6\n"])
def test_rows_that_do_not_ascend_are_malformed(rows: bytes) -> None:
    with pytest.raises(MalformedFile):
        LeaderEpochs.parse(b"0\n2\n" + rows)


def test_digits_of_other_scripts_are_malformed() -> None:
    """To take them for digits, as Python does, would end the start in an error nobody expects."""
    for row in ("\u00b2 5", "1 \u0665"):
        with pytest.raises(MalformedFile):
            LeaderEpochs.parse(f"0\n1\n{row}\n".encode())


@pytest.mark.parametrize("clean", [True, False])
def test_epochs_outlive_a_restart(clean: bool) -> None:
    disk = new_disk()
    log = open_log(disk)
    for epoch in (1, 1, 4):
        append(log, 2, epoch=epoch)
    flush(log)
    log.assign_epoch(6)
    append(log, epoch=6)
    log.close(clean)
    log = open_log(disk, clean=clean, recovery_point=6)

    assert log.latest_epoch == 6
    assert [log.end_offset_for_epoch(epoch) for epoch in (1, 4, 6)] == [(1, 4), (4, 6), (6, 7)]
    log.truncate_to(6)
    assert log.latest_epoch == 4
    assert log.end_offset_for_epoch(4) == (4, 6)


def test_a_malformed_file_costs_nothing_that_is_scanned() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, epoch=3)
    log.close()
    disk.corrupt("/data/orders-0/leader-epoch-checkpoint", 0, b"x")
    log = open_log(disk, clean=False)

    assert log.end_offset_for_epoch(3) == (3, 1)
