"""Transactional ids: who owns them, what is open, and what follows a decision."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from ottla.broker.coordinator.transaction.ending import begins_newer, begins_older
from ottla.broker.coordinator.transaction.initializing import Expected
from ottla.broker.coordinator.transaction.shard import Asker, TransactionSettings
from ottla.broker.coordinator.transaction.states import FOLLOWERS, TransactionState
from ottla.broker.coordinator.transaction.transaction import EPOCH_MAX, Transaction
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.coordinator_records import TransactionLogValue
from tests.coordinator.transactions import ID, TIMEOUT_MS, Lone

T0, T1 = ("t", 0), ("t", 1)
LAST = EPOCH_MAX - 1

E, ON, PC, PA, CC, CA = TransactionState
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
WRONG = ErrorCode.INVALID_TXN_STATE
FENCED = ErrorCode.PRODUCER_FENCED


def _in_state(state: TransactionState, epoch: int = 5) -> Transaction:
    return Transaction(ID, 7, epoch, TIMEOUT_MS, state, previous_producer_id=7)


def _outcome_of(begins: object, state: TransactionState, epoch: int, committed: bool) -> object:
    assert callable(begins)
    try:
        return begins(_in_state(state), 7, epoch, committed=committed)
    except KafkaError as error:
        return error.code


OLDER = {
    (E, True): WRONG, (E, False): WRONG,
    (ON, True): True, (ON, False): True,
    (PC, True): BUSY, (PC, False): WRONG,
    (PA, True): WRONG, (PA, False): BUSY,
    (CC, True): False, (CC, False): WRONG,
    (CA, True): WRONG, (CA, False): False,
}  # fmt: skip
NEWER = {
    (E, True): WRONG, (E, False): True,
    (ON, True): True, (ON, False): True,
    (PC, True): BUSY, (PC, False): BUSY,
    (PA, True): BUSY, (PA, False): BUSY,
    (CC, True): WRONG, (CC, False): True,
    (CA, True): WRONG, (CA, False): True,
}  # fmt: skip
REPEATED = {
    (E, True): FENCED, (E, False): FENCED,
    (ON, True): FENCED, (ON, False): FENCED,
    (PC, True): BUSY, (PC, False): BUSY,
    (PA, True): BUSY, (PA, False): BUSY,
    (CC, True): False, (CC, False): WRONG,
    (CA, True): WRONG, (CA, False): False,
}  # fmt: skip


@pytest.mark.parametrize(("state", "committed"), list(product(TransactionState, (True, False))))
def test_each_cell_of_the_table_of_ends(state: TransactionState, committed: bool) -> None:
    assert _outcome_of(begins_older, state, 5, committed) == OLDER[state, committed]
    assert _outcome_of(begins_newer, state, 5, committed) == NEWER[state, committed]
    assert _outcome_of(begins_newer, state, 4, committed) == REPEATED[state, committed]
    assert _outcome_of(begins_older, state, 4, committed) == FENCED
    ending = state in (PC, PA)
    assert _outcome_of(begins_newer, state, 6, committed) == (BUSY if ending else FENCED)


def test_another_producer_id_is_no_fencing() -> None:
    for begins in (begins_older, begins_newer):
        with pytest.raises(KafkaError) as raised:
            begins(_in_state(ON), 8, 5, committed=True)
        assert raised.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_every_state_has_followers_and_can_be_reached() -> None:
    assert FOLLOWERS.keys() == set(TransactionState)
    assert set().union(*FOLLOWERS.values()) == set(TransactionState)


def test_an_id_is_new_once_and_then_in_its_next_epoch() -> None:
    lone = Lone()
    lone.init()
    first = lone.answer()
    lone.init()
    second = lone.answer()

    assert (first.producer_epoch, second.producer_epoch) == (0, 1)
    assert first.producer_id == second.producer_id


def test_the_decision_is_answered_and_its_markers_are_due() -> None:
    lone = Lone()
    asker = lone.begun(T0, T1)
    lone.end(asker)

    ended = lone.answer()
    assert (ended.error_code, ended.producer_epoch) == (0, asker.producer_epoch + 1)
    (due,) = lone.due
    assert (due.places, due.committed, due.producer_epoch) == ((T0, T1), True, 1)
    assert lone.shard.transactions[ID].state is PC
    lone.write_markers()
    assert lone.shard.transactions[ID].state is CC
    assert not lone.shard.transactions[ID].partitions


def test_the_older_protocol_keeps_its_epoch() -> None:
    lone = Lone()
    asker = lone.begun(T0, version=0)
    lone.end(asker, is_newer=False)
    lone.write_markers()
    lone.answers.clear()
    lone.add(asker, T0, version=0)

    assert lone.answer().codes == [ErrorCode.NONE]
    assert lone.producer() == asker


def test_the_next_transaction_waits_for_the_markers() -> None:
    lone = Lone()
    asker = lone.begun(T0)
    lone.end(asker)
    following = lone.producer()
    lone.answers.clear()
    lone.add(following, T1)
    assert not lone.answers
    lone.write_markers()

    assert lone.answer().codes == [ErrorCode.NONE]
    assert lone.shard.holds(following, T1)
    assert not lone.shard.holds(following, T0)


def test_who_waits_too_long_asks_again() -> None:
    lone = Lone(TransactionSettings(wait_ms=100))
    asker = lone.begun(T0)
    lone.end(asker)
    lone.answers.clear()
    lone.add(lone.producer(), T1)
    lone.pass_ms(60)
    lone.add(lone.producer(), T1, who="second")
    lone.pass_ms(40)

    assert lone.answer().codes == [BUSY]
    lone.write_markers()
    assert [who for who, _ in lone.answers] == ["second"]


def test_nobody_waits_where_the_setting_says_so() -> None:
    lone = Lone(TransactionSettings(wait_ms=0))
    lone.end(lone.begun(T0))
    lone.answers.clear()
    lone.add(lone.producer(), T1)

    assert lone.answer().codes == [BUSY]


def test_who_waits_is_sent_away_with_the_shard() -> None:
    lone = Lone()
    lone.end(lone.begun(T0))
    lone.answers.clear()
    lone.add(lone.producer(), T1)
    lone.unload()

    assert lone.answer().codes == [ErrorCode.NOT_COORDINATOR]


def test_to_initialize_aborts_what_is_open_and_is_answered_afterwards() -> None:
    lone = Lone()
    zombie = lone.begun(T0)
    lone.init()
    assert not lone.answers
    (due,) = lone.due
    assert (due.committed, due.producer_epoch) == (False, 1)
    lone.write_markers()

    assert lone.answer().producer_epoch == 2
    assert [one.event for one in lone.told] == ["transaction_aborted"]
    lone.add(zombie, T0)
    assert lone.answer().codes == [FENCED]
    lone.end(zombie)
    assert lone.answer().error_code == FENCED
    assert lone.told[-1].event == "transaction_producer_fenced"


def test_a_zombie_cannot_abort_what_its_follower_has_open() -> None:
    lone = Lone()
    lone.init()
    zombie = lone.producer()
    asker = lone.begun(T0)
    lone.init(expected=Expected(*zombie[1:]))

    assert lone.answer().error_code == FENCED
    assert lone.shard.holds(asker, T0)
    assert not lone.due


def test_its_own_producer_goes_on_after_an_abort_in_the_epoch_of_the_abort() -> None:
    lone = Lone()
    asker = lone.begun(T0)
    lone.init(expected=Expected(*asker[1:]))
    lone.write_markers()

    assert lone.answer().producer_epoch == 1


def test_a_lost_answer_is_given_again() -> None:
    lone = Lone()
    lone.init()
    first = Expected(*lone.producer()[1:])
    lone.init(expected=first)
    lone.init(expected=first)

    assert [answer.producer_epoch for _, answer in lone.answers] == [0, 1, 1]
    lone.answers.clear()
    lone.init()
    lone.init(expected=first)
    assert lone.answers[-1][1].error_code == FENCED


def test_used_up_epochs_bring_another_producer_id() -> None:
    lone = Lone()
    lone.init()
    first = _set_epoch(lone, LAST)
    lone.answers.clear()
    lone.init()

    answer = lone.answer()
    assert (answer.producer_epoch, answer.producer_id) == (0, first.producer_id + 1)


def test_the_last_epoch_of_the_newer_protocol_ends_with_another_producer_id() -> None:
    lone = Lone()
    lone.init()
    asker = _set_epoch(lone, LAST)
    lone.answers.clear()
    lone.add(asker, T0)
    lone.end(asker)
    ended = lone.answers[-1][1]
    assert (ended.producer_id, ended.producer_epoch) == (asker.producer_id + 1, 0)
    (due,) = lone.due
    assert (due.producer_id, due.producer_epoch) == (asker.producer_id, EPOCH_MAX)
    lone.answers.clear()
    lone.add(Asker(ID, ended.producer_id, 0), T1)
    assert not lone.answers, "its id is not in force yet"
    lone.write_markers()
    assert lone.answer().codes == [ErrorCode.NONE]
    lone.end(Asker(ID, ended.producer_id, 0), committed=False)
    lone.write_markers()
    lone.answers.clear()
    lone.end(asker)
    assert lone.answer().error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_repeated_end_of_the_last_epoch_is_told_the_new_producer() -> None:
    lone = Lone()
    lone.init()
    asker = _set_epoch(lone, LAST)
    lone.add(asker, T0)
    lone.end(asker)
    lone.write_markers()
    lone.answers.clear()
    lone.end(asker)

    ended = lone.answer()
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (
        0,
        asker.producer_id + 1,
        0,
    )


def _set_epoch(lone: Lone, epoch: int) -> Asker:
    known = lone.shard.transactions[ID]
    lone.shard.transactions[ID] = replace(known, producer_epoch=epoch)
    return lone.producer()


def test_what_is_open_for_too_long_is_aborted_and_its_producer_fenced() -> None:
    lone = Lone()
    asker = lone.begun(T0)
    lone.pass_ms(TIMEOUT_MS)
    lone.abort_timed_out()
    assert not lone.due
    lone.pass_ms(1)
    lone.abort_timed_out()
    (due,) = lone.due
    assert not due.committed
    lone.write_markers()
    lone.add(asker, T0)

    assert lone.answer().codes == [FENCED]
    (told, _) = lone.told
    assert (told.event, told.reason) == (
        "transaction_aborted",
        "it was open for transaction.timeout.ms",
    )


@pytest.mark.parametrize("committed", [True, False])
def test_a_decision_survives_a_crash_and_its_markers_are_due_again(committed: bool) -> None:
    lone = Lone()
    asker = lone.begun(T0, T1)
    lone.end(asker, committed=committed)
    (before,) = lone.due
    lone.crash()

    assert lone.due == [before]
    lone.write_markers()
    assert lone.shard.transactions[ID].state is (CC if committed else CA)
    lone.crash()
    assert not lone.due


def test_what_was_open_stays_open_over_a_crash() -> None:
    lone = Lone()
    asker = lone.begun(T0, T1)
    lone.crash()

    assert lone.shard.holds(asker, T1)
    lone.end(asker)
    assert lone.answer().error_code == 0


@pytest.mark.parametrize("is_newer", [True, False])
def test_late_markers_of_an_older_decision_change_nothing(is_newer: bool) -> None:
    lone = Lone()
    asker = lone.begun(T0)
    lone.end(asker, is_newer=is_newer)
    (late,) = lone.due
    lone.write_markers()
    asker = lone.producer()
    lone.add(asker, T0)
    lone.end(asker, committed=False, is_newer=is_newer)
    before = list(lone.records)
    lone.due[:] = [late]
    lone.write_markers()

    assert lone.records == before
    assert lone.shard.transactions[ID].state is PA


def test_the_last_epoch_belongs_to_nobody() -> None:
    lone = Lone()
    lone.init()
    asker = _set_epoch(lone, EPOCH_MAX)
    lone.answers.clear()
    lone.add(asker, T0)
    lone.end(asker, committed=False)

    (_, added), (_, ended) = lone.answers
    assert added.codes == [FENCED]
    assert ended.error_code == FENCED


def test_ids_that_nobody_uses_are_forgotten_but_not_what_is_open() -> None:
    lone = Lone(TransactionSettings(expiration_ms=1000))
    lone.init(name="idle")
    asker = lone.begun(T0)
    lone.pass_ms(1000)
    lone.remove_expired()

    assert list(lone.shard.transactions) == [ID]
    assert lone.told[-1].group_id == "idle"
    assert lone.shard.holds(asker, T0)
    lone.crash()
    assert list(lone.shard.transactions) == [ID]


def test_a_partition_is_verified_only_while_it_is_in() -> None:
    lone = Lone()
    asker = lone.begun(T0)
    lone.verify(asker, T0, T1)

    assert lone.answer().codes == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
    lone.verify(asker._replace(producer_epoch=9), T0)
    assert lone.answer().codes == [FENCED]
    lone.verify(asker._replace(transactional_id="nobody"), T0)
    assert lone.answer().codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


def test_what_is_in_already_writes_no_record() -> None:
    lone = Lone()
    asker = lone.begun(T0)
    count = len(lone.records)
    lone.add(asker, T0)

    assert lone.answer().codes == [ErrorCode.NONE]
    assert len(lone.records) == count


def test_to_fence_the_last_epoch_brings_another_producer_id() -> None:
    lone = Lone()
    lone.init()
    asker = _set_epoch(lone, LAST)
    lone.add(asker, T0)
    lone.answers.clear()
    lone.init()
    (due,) = lone.due
    assert (due.producer_id, due.producer_epoch) == (asker.producer_id, EPOCH_MAX)
    lone.write_markers()

    answer = lone.answer()
    assert (answer.producer_id, answer.producer_epoch) == (asker.producer_id + 1, 1)


def test_without_producer_ids_nothing_is_begun_that_needs_one() -> None:
    lone = Lone()
    lone.init()
    asker = _set_epoch(lone, LAST)
    lone.add(asker, T0)
    lone.answers.clear()
    lone.are_ids_used_up = True
    lone.end(asker)
    lone.init()
    lone.pass_ms(TIMEOUT_MS + 1)
    lone.abort_timed_out()

    assert [answer.error_code for _, answer in lone.answers] == [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ] * 2
    assert lone.shard.holds(asker, T0)
    assert not lone.told
    lone.are_ids_used_up = False
    lone.abort_timed_out()
    assert len(lone.due) == 1


def test_a_state_that_is_none_is_corrupt() -> None:
    lone = Lone()
    lone.init()
    (record,) = lone.records
    assert isinstance(record.value, TransactionLogValue)
    record.value.transaction_status = 7

    with pytest.raises(KafkaError) as raised:
        lone.shard.apply(record, 0)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
