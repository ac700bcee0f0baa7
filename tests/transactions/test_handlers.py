"""Transactions over real rooms, in the order in which things may meet that the simulation does not
bring about by name."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.broker.coordinator.placement import partition_for
from ottla.broker.coordinator.transaction.states import NAMES, TransactionState
from ottla.broker.handlers.produce import ProduceAnswer, handle_produce
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import transactions
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.groups import OffsetCommitRequest
from ottla.protocol.messages.producer_ids import InitProducerIdRequest
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.protocol.records.codecs import Codec
from tests.coordinator.asking import ask
from tests.handlers.parked import Answers
from tests.transactions.steady import (
    CONSUMER_OFFSETS,
    GROUP,
    TRANSACTION_STATE,
    Inline,
    Producer,
    SteadyHouse,
    codes_of,
    committed_offset,
    headers_of,
    read,
    rest,
    run,
)

TOPIC = "t"
BOTH = pytest.mark.parametrize("is_newer", [False, True], ids=["older", "newer"])
Scenario = Callable[[SteadyHouse], Awaitable[None]]


def in_a_house(scenario: Scenario, **config: str) -> None:
    """Runs it in virtual time, with a topic of two partitions."""

    async def live() -> None:
        named = {name.replace("_", "."): value for name, value in config.items()}
        async with SteadyHouse(named, random.Random(5)) as house:
            await house.make_coordinator_topics()
            await house.create(TOPIC, partitions=2)
            await scenario(house)
            house.check_open()

    run(live())


async def begun(house: SteadyHouse, *, is_newer: bool, name: str = "x") -> Producer:
    """A producer with an id; in the older protocol both partitions are added."""
    producer = Producer(house, name, is_newer)
    assert await producer.init() == 0
    if not is_newer:
        assert await producer.add((TOPIC, 0), (TOPIC, 1)) == 0
    return producer


def version_of(producer: Producer) -> int:
    return 12 if producer.is_newer else 11


def state_of(house: SteadyHouse, name: str = "x") -> str:
    _, shard = house.rooms.transactions.runner(name)
    return NAMES[shard.transactions[name].state]


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await rest(0.001)


async def values(house: SteadyHouse, topic: str = TOPIC, index: int = 0) -> list[bytes]:
    return [value for _, value in await read(house, topic, index)]


# records that wait for the coordinator


@BOTH
def test_the_first_batches_of_a_transaction_keep_their_order(is_newer: bool) -> None:
    async def scenario(house: SteadyHouse) -> None:
        producer = await begun(house, is_newer=is_newer)
        plain = Producer(house, "-", is_newer)
        plain.take_up(await ask(house, InitProducerIdRequest(None, 60_000), 4))
        sent = []
        for number in range(5):
            one = producer.writing(TOPIC, 0, b"t%d" % number)
            sent.append(asyncio.ensure_future(ask(house, one, version_of(producer))))
            beside = plain.writing(TOPIC, 0, b"p%d" % number, is_plain=True)
            sent.append(asyncio.ensure_future(ask(house, beside, 12)))
        answers = await asyncio.gather(*sent)
        assert [codes_of(answer) for answer in answers] == [[0]] * 10
        assert await producer.end(committed=True) == 0
        await until(lambda: state_of(house) == "CompleteCommit")

        found = await values(house)
        assert [value for value in found if value.startswith(b"t")] == [
            b"t%d" % number for number in range(5)
        ]
        assert [value for value in found if value.startswith(b"p")] == [
            b"p%d" % number for number in range(5)
        ]

    in_a_house(scenario)


def test_batches_that_wait_are_refused_together_when_the_producer_is_none() -> None:
    async def scenario(house: SteadyHouse) -> None:
        zombie = await begun(house, is_newer=True)
        await begun(house, is_newer=True)
        requests = [zombie.writing(TOPIC, 0, b"z%d" % number) for number in range(3)]
        answers = await asyncio.gather(*(ask(house, one, 12) for one in requests))

        fenced = int(ErrorCode.INVALID_PRODUCER_EPOCH)
        assert [codes_of(answer) for answer in answers] == [[fenced]] * 3
        assert await values(house) == []

    in_a_house(scenario)


def test_a_batch_that_is_too_large_is_not_kept_for_the_coordinators_answer() -> None:
    """Which is told first, as Kafka does: one whose producer is none is refused for that."""

    async def scenario(house: SteadyHouse) -> None:
        zombie = await begun(house, is_newer=True)
        request = zombie.writing(TOPIC, 0, bytes(2_000_000))
        answer = handle_produce(house.session, request, 12)
        assert isinstance(answer, ProduceAnswer)
        assert not answer.held_bytes
        answer.line = Answers()
        await until(lambda: answer.response is not None)
        assert codes_of(answer.response) == [ErrorCode.MESSAGE_TOO_LARGE]

        later = zombie.writing(TOPIC, 1, bytes(2_000_000))
        await begun(house, is_newer=True)
        fenced = [int(ErrorCode.INVALID_PRODUCER_EPOCH)]
        assert codes_of(await ask(house, later, 12)) == fenced

    in_a_house(scenario)


def test_who_waits_behind_the_end_of_one_transaction_writes_in_the_next() -> None:
    """With the newer protocol, whose producer knows its next epoch when the decision is durable."""

    async def scenario(house: SteadyHouse) -> None:
        producer = await begun(house, is_newer=True)
        for number in range(10):
            assert await producer.write(TOPIC, 0, b"%d" % number) == 0
            assert await producer.commit_offset(GROUP, TOPIC, 0, number) == 0
            assert await producer.end(committed=number % 3 != 0) == 0
        await until(lambda: state_of(house).startswith("Complete"))

        assert await values(house) == [b"%d" % number for number in range(10) if number % 3]
        assert await committed_offset(house, GROUP, TOPIC, 0) == (0, 8)

    in_a_house(scenario)


# conversions


@BOTH
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_records_that_are_converted_are_in_their_transaction(is_newer: bool, codec: Codec) -> None:
    """The end is asked for while the last of them is being converted, which it overtakes: what
    comes to the log behind it is refused."""

    async def scenario(house: SteadyHouse) -> None:
        await house.create("zipped", configs={"compression.type": "lz4"})
        producer = await begun(house, is_newer=is_newer)
        if not is_newer:
            assert await producer.add(("zipped", 0)) == 0
        version = version_of(producer)
        requests = [
            producer.writing("zipped", 0, b"v%d" % number, codec=codec) for number in range(4)
        ]
        answers = await asyncio.gather(*(ask(house, one, version) for one in requests))
        assert [codes_of(answer) for answer in answers] == [[0]] * 4
        held = Held()
        house._workers = house.rooms.replicas.conversions.workers = held
        late = producer.writing("zipped", 0, b"late", codec=codec)
        writing = asyncio.ensure_future(ask(house, late, version))
        await asyncio.sleep(0)
        assert held.work
        ending = asyncio.ensure_future(producer.end(committed=True))
        await until(ending.done)
        assert state_of(house) == "PrepareCommit"
        held.let_go()
        (code,) = codes_of(await writing)
        await until(lambda: state_of(house) == "CompleteCommit")

        found = await values(house, "zipped")
        assert found[:4] == [b"v0", b"v1", b"v2", b"v3"]
        assert found[4:] == ([] if code else [b"late"])
        house.check_open()

    in_a_house(scenario)


class Held(Inline):
    """Work that is done when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.work: list[Callable[[], None]] = []
        self.is_open = False

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        if self.is_open:
            return super().submit(fn, *args, **kwargs)
        future: Any = super().submit(lambda: None).__class__()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except (KafkaError, OSError) as error:
                future.set_exception(error)

        self.work.append(work)
        return future

    def let_go(self) -> None:
        self.is_open = True
        for work in self.work:
            work()


# the disk


@BOTH
def test_a_transaction_is_over_when_its_markers_are_durable(is_newer: bool) -> None:
    """Whatever flush.messages says: else a power loss could bring back what is over."""

    async def scenario(house: SteadyHouse) -> None:
        await house.create("relaxed", configs={"flush.messages": "1000"})
        producer = await begun(house, is_newer=is_newer)
        if not is_newer:
            assert await producer.add(("relaxed", 0)) == 0
        assert await producer.write("relaxed", 0, b"v") == 0
        partition = house.partition("relaxed")
        assert partition.log.durable_end == 0
        assert await producer.end(committed=True) == 0
        seen = []
        async with asyncio.timeout(5):
            while state_of(house) != "CompleteCommit":
                seen.append(partition.log.durable_end)
                await rest(0.0005)

        assert partition.log.durable_end == partition.log.log_end_offset == 2
        assert 0 in seen

    in_a_house(scenario)


@BOTH
def test_a_marker_that_finds_no_room_is_written_later(is_newer: bool) -> None:
    async def scenario(house: SteadyHouse) -> None:
        producer = await begun(house, is_newer=is_newer)
        assert await producer.write(TOPIC, 0, b"v") == 0
        house.disk.inject("pwrite", errno.ENOSPC, path=f"/{TOPIC}-0/", times=3)
        assert await producer.end(committed=True) == 0
        await rest(0.3)
        assert state_of(house) == "PrepareCommit"
        assert await values(house) == []
        await until(lambda: state_of(house) == "CompleteCommit")

        assert await values(house) == [b"v"]

    in_a_house(scenario)


@BOTH
def test_a_marker_for_a_partition_without_a_leader_is_written_when_it_has_one(
    is_newer: bool,
) -> None:
    async def scenario(house: SteadyHouse) -> None:
        producer = await begun(house, is_newer=is_newer)
        assert await producer.write(TOPIC, 0, b"v") == 0
        assert await producer.write(TOPIC, 1, b"w") == 0
        await house.lose_leader(TOPIC, 0)
        assert await producer.end(committed=True) == 0
        await rest(2)
        assert state_of(house) == "PrepareCommit"
        assert await values(house, TOPIC, 1) == [b"w"]
        await house.raise_leader_epoch(TOPIC, 0)
        await until(lambda: state_of(house) == "CompleteCommit")

        assert await values(house) == [b"v"]

    in_a_house(scenario)


@pytest.mark.parametrize("topic", [TRANSACTION_STATE, CONSUMER_OFFSETS])
@pytest.mark.parametrize("passing", range(5))
@BOTH
def test_a_coordinator_without_room_loads_again_and_all_is_consistent(
    is_newer: bool, topic: str, passing: int
) -> None:
    """In the middle of a transaction, at each of its appends."""

    async def scenario(house: SteadyHouse) -> None:
        producer = await begun(house, is_newer=is_newer)
        index = partition_for("x" if topic == TRANSACTION_STATE else GROUP, 2)
        path = f"/{topic}-{index}/"
        house.disk.inject("pwrite", errno.ENOSPC, path=path, passing=passing, times=2)
        if not is_newer:
            assert await producer.add((TOPIC, 0), (TOPIC, 1)) == 0
        for number in range(3):
            assert await producer.write(TOPIC, 0, b"%d" % number) == 0
            house.check_open()
        assert await producer.commit_offset(GROUP, TOPIC, 0, 7) == 0
        code = await producer.end(committed=True)
        if code:
            # The first answer was lost with the state, and the retry cannot know.
            assert is_newer
            assert code == ErrorCode.PRODUCER_FENCED
        await until(lambda: state_of(house).startswith("Complete"))
        house.check_open()

        assert state_of(house) == "CompleteCommit"
        assert await values(house) == [b"0", b"1", b"2"]
        assert await committed_offset(house, GROUP, TOPIC, 0) == (0, 7)

    in_a_house(scenario)


@BOTH
def test_a_marker_that_was_tried_by_a_former_shard_does_not_end_the_next_transaction(
    is_newer: bool,
) -> None:
    """The shard is loaded again while a marker waits for room, and then two could write it."""

    async def scenario(house: SteadyHouse) -> None:
        producer = await begun(house, is_newer=is_newer)
        other = Producer(house, "y", is_newer)
        while partition_for(other.name, 2) != partition_for(producer.name, 2):
            other.name += "y"
        assert await producer.write(TOPIC, 0, b"a") == 0
        # The first loop fails now and in 100 ms, the second in 50 ms, and writes in 150 ms.
        house.disk.inject("pwrite", errno.ENOSPC, path=f"/{TOPIC}-0/", times=3)
        assert await producer.end(committed=True) == 0
        await rest(0.05)
        path = f"/{TRANSACTION_STATE}-{partition_for('x', 2)}/"
        house.disk.inject("pwrite", errno.ENOSPC, path=path)
        request = InitProducerIdRequest(other.name, 10_000)
        refused = await ask(house, request, 5)
        assert refused.error_code
        await until(lambda: state_of(house) == "CompleteCommit")
        if not is_newer:
            assert await producer.add((TOPIC, 0)) == 0
        assert await producer.write(TOPIC, 0, b"b") == 0
        await rest(1)

        assert house.partition(TOPIC).log.producer_state.open_transactions
        assert await values(house) == [b"a"]
        assert await producer.end(committed=False) == 0
        await until(lambda: state_of(house) == "CompleteAbort")
        assert await values(house) == [b"a"]

    in_a_house(scenario)


@BOTH
@pytest.mark.parametrize("is_followed", [False, True])
def test_a_decision_that_takes_too_long_keeps_its_markers(
    is_newer: bool, is_followed: bool
) -> None:
    """Its client is told to ask again, the sync comes late, and the transaction is ended."""

    async def scenario(house: SteadyHouse) -> None:
        producer = await begun(house, is_newer=is_newer)
        assert await producer.write(TOPIC, 0, b"v") == 0
        partition = house.partition(TRANSACTION_STATE, partition_for("x", 2))
        request = transactions.EndTxnRequest("x", producer.producer_id, producer.epoch, True)
        ending = asyncio.ensure_future(ask(house, request, 5 if is_newer else 3))
        while not partition.commit_waiters:
            await asyncio.sleep(0)
        following = []
        if is_followed:
            for number in range(8):
                request_id = InitProducerIdRequest(f"y{number}", 10_000)
                following.append(asyncio.ensure_future(ask(house, request_id, 5)))
            await asyncio.sleep(0)
        waiter = partition.commit_waiters.popleft()
        waiter.listener.failed(waiter.part, ErrorCode.REQUEST_TIMED_OUT)
        assert (await ending).error_code
        assert [answer.error_code for answer in await asyncio.gather(*following)] == [
            0 for _ in following
        ]
        if not is_followed:
            assert await values(house) == []
        await until(lambda: state_of(house) == "CompleteCommit")

        assert await values(house) == [b"v"]
        assert await producer.end(committed=True) == 0

    in_a_house(scenario)


# topics


@BOTH
def test_a_topic_that_is_deleted_in_a_transaction_holds_nobody_back(is_newer: bool) -> None:
    async def scenario(house: SteadyHouse) -> None:
        await house.create("gone")
        producer = await begun(house, is_newer=is_newer)
        if not is_newer:
            assert await producer.add(("gone", 0)) == 0
        assert await producer.write("gone", 0, b"a") == 0
        assert await producer.write(TOPIC, 0, b"b") == 0
        await ask(house, DeleteTopicsRequest(topic_names=["gone"]), 5)
        assert await producer.end(committed=True) == 0
        await until(lambda: state_of(house) == "CompleteCommit")

        assert await values(house) == [b"b"]

    in_a_house(scenario)


@BOTH
def test_a_topic_that_is_made_again_in_a_transaction_is_written_to_in_it(is_newer: bool) -> None:
    async def scenario(house: SteadyHouse) -> None:
        await house.create("gone")
        producer = await begun(house, is_newer=is_newer)
        if not is_newer:
            assert await producer.add(("gone", 0)) == 0
        assert await producer.write("gone", 0, b"a") == 0
        await ask(house, DeleteTopicsRequest(topic_names=["gone"]), 5)
        await house.create("gone")
        producer.sequences.clear()
        assert await producer.write("gone", 0, b"b") == 0
        assert house.partition("gone").log.last_stable_offset == 0
        assert await producer.end(committed=True) == 0
        await until(lambda: state_of(house) == "CompleteCommit")

        assert await values(house, "gone") == [b"b"]

    in_a_house(scenario)


# producer ids


def test_who_ends_a_transaction_and_keeps_its_id_needs_no_block() -> None:
    async def scenario(house: SteadyHouse) -> None:
        producer = await begun(house, is_newer=True)
        await producer.write(TOPIC, 0, b"a")
        while house.rooms.producer_ids.left:
            house.rooms.producer_ids.take()
        full = house.disk.inject("pwrite", errno.ENOSPC, path="__cluster_metadata", times=9)
        assert await producer.end(committed=True) == 0
        full.times = 0
        await until(lambda: state_of(house) == "CompleteCommit")

    in_a_house(scenario)


def test_an_id_that_waits_while_the_block_is_used_up_gets_one_of_the_next() -> None:
    """Its producer has used up its epochs, so that it is to have another id, and the last one of
    the block is given away while it waits for the end of what it has open."""

    async def scenario(house: SteadyHouse) -> None:
        producer = await begun(house, is_newer=False)
        _, shard = house.rooms.transactions.runner("x")
        shard.transactions["x"].producer_epoch = producer.epoch = 2**15 - 2
        assert await producer.add((TOPIC, 0)) == 0
        assert await producer.write(TOPIC, 0, b"v") == 0
        ids = house.rooms.producer_ids
        waiting = asyncio.ensure_future(ask(house, InitProducerIdRequest("x", 10_000), 5))
        await asyncio.sleep(0)
        while ids.left:
            ids.take()
        answer = await waiting
        for _ in range(20):
            if not answer.error_code:
                break
            assert answer.error_code in (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.CONCURRENT_TRANSACTIONS,
            )
            answer = await ask(house, InitProducerIdRequest("x", 10_000), 5)

        assert (answer.error_code, answer.producer_epoch) in ((0, 0), (0, 1))
        assert answer.producer_id > producer.producer_id
        assert await values(house) == []

    in_a_house(scenario)


# verification


def test_who_does_not_verify_takes_what_was_not_added() -> None:
    async def scenario(house: SteadyHouse) -> None:
        producer = Producer(house, "x", is_newer=False)
        assert await producer.init() == 0
        assert await producer.write(TOPIC, 0, b"v") == 0

        assert house.partition(TOPIC).log.producer_state.open_transactions
        assert await producer.add((TOPIC, 0)) == 0
        assert await producer.end(committed=True) == 0
        await until(lambda: state_of(house) == "CompleteCommit")
        assert await values(house) == [b"v"]

    in_a_house(scenario, transaction_partition_verification_enable="false")


@pytest.mark.parametrize(("version", "code"), [(9, 48), (11, 120)])
def test_who_verifies_refuses_what_was_not_added(version: int, code: int) -> None:
    async def scenario(house: SteadyHouse) -> None:
        producer = Producer(house, "x", is_newer=False)
        assert await producer.init() == 0
        answer = await ask(house, producer.writing(TOPIC, 0, b"v"), version)

        assert codes_of(answer) == [code]
        assert house.partition(TOPIC).log.log_end_offset == 0

    in_a_house(scenario)


def test_a_first_batch_that_does_not_begin_at_zero_is_told_the_log_start() -> None:
    async def scenario(house: SteadyHouse) -> None:
        await house.append(TOPIC, 0, [b"v", b"v"])
        house.partition(TOPIC).log.delete_records(1)
        producer = Producer(house, "x", is_newer=True)
        assert await producer.init() == 0
        producer.sequences[TOPIC, 0] = 3
        answer = await ask(house, producer.writing(TOPIC, 0, b"v"), 12)
        (part,) = answer.responses[0].partition_responses

        assert part.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (part.base_offset, part.log_start_offset) == (-1, 1)

    in_a_house(scenario)


# readers


@BOTH
@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_wakes_who_waits_for_what_is_committed(is_newer: bool, committed: bool) -> None:
    async def scenario(house: SteadyHouse) -> None:
        producer = await begun(house, is_newer=is_newer)
        assert await producer.write(TOPIC, 0, b"v") == 0
        part = FetchRequest.FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=60_000,
            min_bytes=1,
            isolation_level=1,
            topics=[FetchRequest.FetchTopic(TOPIC, partitions=[part])],
        )
        began = asyncio.get_running_loop().time()
        waiting = asyncio.ensure_future(ask(house, request, 12))
        await rest(1)
        assert not waiting.done()
        assert await producer.end(committed=committed) == 0
        answer = await waiting
        (found,) = answer.responses[0].partitions

        assert asyncio.get_running_loop().time() - began < 2
        assert found.last_stable_offset == found.high_watermark == 2
        aborted = [(one.producer_id, one.first_offset) for one in found.aborted_transactions]
        assert aborted == ([] if committed else [(producer.producer_id, 0)])

    in_a_house(scenario)


def _plain_commit(index: int, offset: int) -> OffsetCommitRequest:
    part = OffsetCommitRequest.OffsetCommitRequestPartition(index, offset)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(TOPIC, partitions=[part])
    return OffsetCommitRequest(GROUP, topics=[topic])


@BOTH
def test_an_offset_that_comes_behind_the_marker_of_its_transaction_is_refused(
    is_newer: bool,
) -> None:
    """The marker waits with others for the log of the group, which still has the transaction open:
    a commit that is delayed until then would be open there for good."""

    async def scenario(house: SteadyHouse) -> None:
        producer = await begun(house, is_newer=is_newer)
        assert await producer.commit_offset(GROUP, TOPIC, 0, 5) == 0
        late = producer.committing(GROUP, TOPIC, 0, 6)
        version = 5 if is_newer else 3
        beside: list[asyncio.Future[Any]] = []

        async def keep_the_log_busy() -> None:
            while state_of(house) != "CompleteCommit":
                beside.append(asyncio.ensure_future(ask(house, _plain_commit(1, 7), 8)))
                await rest(0.0002)

        busy = asyncio.ensure_future(keep_the_log_busy())
        await rest(0.01)
        assert await producer.end(committed=True) == 0
        answers = []
        while state_of(house) != "CompleteCommit":
            answers.append(asyncio.ensure_future(ask(house, late, version)))
            await rest(0.0002)
        await busy
        late_answers = await asyncio.gather(*answers)
        await asyncio.gather(*beside)
        codes = {code for answer in late_answers for code in codes_of(answer)}
        await rest(1)

        assert 0 not in codes
        assert await committed_offset(house, GROUP, TOPIC, 0) == (0, 5)
        group = house.partition(CONSUMER_OFFSETS, partition_for(GROUP, 2))
        assert not group.log.producer_state.open_transactions

    in_a_house(scenario)


def test_the_records_of_a_transaction_name_states_that_follow_each_other() -> None:
    async def scenario(house: SteadyHouse) -> None:
        producer = await begun(house, is_newer=True)
        assert await producer.write(TOPIC, 0, b"v") == 0
        assert await producer.end(committed=True) == 0
        await until(lambda: state_of(house) == "CompleteCommit")
        log = house.partition(TRANSACTION_STATE, partition_for("x", 2)).log

        assert len(headers_of(log)) == len(
            [
                TransactionState.EMPTY,
                TransactionState.ONGOING,
                TransactionState.PREPARE_COMMIT,
                TransactionState.COMPLETE_COMMIT,
            ]
        )

    in_a_house(scenario)
