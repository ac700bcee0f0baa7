"""Producers that pause, come back, repeat and time out, a broker that stops: invariants T1-T8, I1.

    python -m tests.transactions.simulation --seeds 1000 [--first K]
    python -m tests.transactions.simulation --first 42         one, with its story if it fails

Real rooms on a simulated disk, in virtual time; everything is drawn from the seed. Requests are
lost, delayed and doubled, and their answers too; what is delayed arrives when its sender has long
given it up (KB6), perhaps in the next transaction. With the older protocol that is safe only behind
a new epoch, so its producers ask for one when they have given anything up, as clients do.

While it goes on:
  I1  nothing is in a log twice, and a repeated batch has the offset that it had;
  T2  what is aborted, or not asked to be committed, is never seen; the last stable offset is where
      the first open transaction begins;
  T4  a request of an epoch that is over is refused;
  T3  whatever is open in a partition is known to its coordinator.
When it is quiet, the timeouts over:
  T1  all of a transaction is seen or nothing, and what was acknowledged is;
  T3  nobody waits, nothing is open;
  T8  the offsets of a group are those of transactions that are committed.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import random
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from ottla.broker.coordinator.pruning import prune
from ottla.broker.handlers.answers import CloseConnection, Pending
from ottla.broker.handlers.served import HANDLERS
from ottla.protocol.api import SERVED
from ottla.protocol.codec import decoder, encoder
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import transactions
from ottla.protocol.messages.offsets import DeleteRecordsRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.producer_ids import InitProducerIdResponse
from ottla.protocol.messages.topics import DeleteTopicsRequest
from ottla.protocol.records.batch import iterate_headers
from ottla.protocol.records.control import read_marker
from ottla.testing.disk import Fault, SimDisk
from ottla.testing.platter import CrashMode
from tests.coordinator.asking import ask, through_wire
from tests.transactions.simulated_client import (
    GROUPS,
    INPUT,
    PARTITIONS,
    TOPICS,
    Client,
    Place,
    Work,
    asker_of,
    story_of,
)
from tests.transactions.steady import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    SteadyHouse,
    codes_of,
    committed_offset,
    fetch,
    headers_of,
    rest,
    run,
    seen,
    values_of,
)

API_OF = {api.request: api for api in SERVED.values()}
UNSYNCED = "notes"
"""Its records are not synced one by one: a power loss may take them until a marker is durable."""
RETIRED = "parts"
"""Its oldest segments are deleted when it has grown."""
REDUNDANT_MIN = 10
"""Records of a coordinator's partition that may be out of date."""
PATIENCE_S = 60.0
"""How long a client waits for an answer before it takes it for lost."""
CALM_S = 60.0


@dataclass
class Faults:
    """Chances in 1/1,000; the swarm draws some of them to be never."""

    lost_answer: int
    delayed: int
    doubled: int
    paused: int
    replaced: int
    restarted: int
    crashed: int
    remade: int
    trimmed: int
    retired: int
    full: int
    slowest_sync_ms: int

    @classmethod
    def drawn(cls, rng: random.Random) -> Faults:
        def chance(most: int) -> int:
            return rng.choice((0, rng.randrange(most + 1)))

        return cls(
            lost_answer=chance(120),
            delayed=chance(120),
            doubled=chance(120),
            paused=chance(60),
            replaced=chance(30),
            restarted=chance(120),
            crashed=chance(300),
            remade=chance(60),
            trimmed=chance(100),
            retired=chance(150),
            full=chance(150),
            slowest_sync_ms=rng.choice((0, 3, 40, 200)),
        )


class _Line:
    """The end of a connection's line: it hears of one answer."""

    def __init__(self, told: Callable[[Any], None]) -> None:
        self._told = told

    def answered(self, answer: Pending) -> None:
        self._told(answer.response)

    def failed(self, answer: Pending, error: Exception) -> None:
        raise error

    def refused(self, answer: Pending, closing: CloseConnection) -> None:
        raise closing


class World:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.faults = Faults.drawn(self.rng)
        self.story: list[str] = []
        self.works: list[Work] = []
        self.floors: dict[str, tuple[int, int]] = {}
        self.initialized: dict[str, tuple[int, int]] = {}
        self.bases: dict[tuple[bytes, bytes], int] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.lossy: set[bytes] = set()
        """Values that a power loss may have taken."""
        self.house: SteadyHouse | None = None
        self.life = 0
        self.is_calm = False
        self.counter = 0
        self._disk: SimDisk | None = None
        self._faults: list[Fault] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[asyncio.Future[Any], None] = {}
        self.up = asyncio.Event()
        self._failure: BaseException | None = None

    def tell(self, line: str) -> None:
        now_ms = round(asyncio.get_running_loop().time() * 1000)
        self.story.append(f"{now_ms:>7} {line}")

    def happens(self, chance: int) -> bool:
        return not self.is_calm and self.rng.randrange(1000) < chance

    # its life

    async def run(self, rounds: int = 2) -> None:
        self.tell(f"{self.faults}")
        await self.start()
        await self._set_up()
        for _ in range(rounds):
            self.is_calm = False
            names = [f"p{number}" for number in range(self.rng.randrange(1, 5))]
            for name in names:
                self.spawn(Client(self, name, is_newer=self.rng.random() < 0.5).live())
            self.spawn(self._disturb())
            self.spawn(self._look())
            await self._wait(self.rng.uniform(5, 25))
            self.is_calm = True
            self.tell("calm")
            async with asyncio.timeout(600):
                while self._tasks:
                    await self._wait(1)
            await self._wait(CALM_S)
            await self.check_quiet()
        assert self.house is not None
        await self.house.__aexit__()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and task.exception() is not None:
                self._failure = self._failure or task.exception()

        task.add_done_callback(done)

    async def _wait(self, seconds: float) -> None:
        """The jobs of the broker run meanwhile."""
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until:
            await rest(min(0.5, until - asyncio.get_running_loop().time()))
            if self._failure is not None:
                raise self._failure
            if self.house is not None:
                rooms = self.house.rooms
                now = rooms.transactions.now()
                rooms.replicas.expire_waiters()
                rooms.transactions.perform_all(
                    lambda shard, now=now: shard.abort_timed_out(now)  # type: ignore[misc]
                )
                self.house.check_open()
                list(prune(rooms.groups, REDUNDANT_MIN))
                list(prune(rooms.transactions, REDUNDANT_MIN))

    async def start(self) -> None:
        house = SteadyHouse(
            {}, self.rng, disk=self._disk, slowest_sync_ms=self.faults.slowest_sync_ms
        )
        await house.__aenter__()
        self.house = house
        self._disk = house.disk
        house.check_open()
        self.up.set()

    async def _stop(self, *, loses_power: bool) -> None:
        """Whoever waits for an answer hears nothing."""
        house, self.house = self.house, None
        assert house is not None
        self.up.clear()
        self.life += 1
        for fault in self._faults:
            fault.times = 0  # a partition that finds no room at a start is not opened
        if loses_power:
            mode = self.rng.choice([mode for mode in CrashMode if mode is not CrashMode.PROCESS])
            self.tell(f"the power is lost: {mode.name}")
            self._disk = house.disk.crash(self.rng, mode)
            unsynced = self.topic_ids[UNSYNCED]
            self.lossy |= {value for topic_id, value in self.bases if topic_id == unsynced}
        else:
            self.tell("the broker stops")
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_result(None)
        await house.__aexit__()
        await rest(self.rng.choice((0.01, 1, 15)))
        await self.start()
        self.tell("the broker has started")

    async def _set_up(self) -> None:
        assert self.house is not None
        await self.house.make_coordinator_topics()
        for topic in (*TOPICS, INPUT):
            await self._make(topic)

    async def _make(self, topic: str) -> None:
        assert self.house is not None
        configs = {"internal.segment.bytes": "1500"}
        if topic == UNSYNCED:
            configs["flush.messages"] = "1000"
        elif topic == RETIRED:
            configs["retention.bytes"] = "4000"
        partitions = 8 if topic == INPUT else PARTITIONS
        self.topic_ids[topic] = await self.house.create(
            topic, partitions=partitions, configs=configs
        )

    # what happens to it

    async def _disturb(self) -> None:
        while not self.is_calm:
            await rest(self.rng.uniform(0.05, 1))
            if self.happens(self.faults.restarted):
                await self._stop(loses_power=False)
            elif self.happens(self.faults.crashed):
                await self._stop(loses_power=True)
            elif self.happens(self.faults.remade):
                await self._remake(self.rng.choice(TOPICS))
            elif self.happens(self.faults.trimmed):
                await self._trim(self.rng.choice(TOPICS), self.rng.randrange(PARTITIONS))
            elif self.happens(self.faults.retired):
                self._retire()
            elif self.happens(self.faults.full):
                self._fill()

    def _retire(self) -> None:
        """The job of retention, which gives way to nobody here."""
        assert self.house is not None
        logs = self.house.rooms.logs
        logs.checkpoint_recovery_points()
        for index in range(PARTITIONS):
            partition = self.house.rooms.replicas.get(RETIRED, index)
            if partition is None:
                continue
            log = partition.log
            while segments := logs.deletions.retire(log):
                logs.deletions.set_aside(log, segments)
                if not logs.deletions.retired(log, segments):
                    break
            self.house.rooms.replicas.reconsider(RETIRED, index)
            self.tell(f"{RETIRED}-{index} begins at {log.log_start_offset}, by its size")

    def _fill(self) -> None:
        """There is no room for the next appends of a topic."""
        assert self.house is not None
        topic = self.rng.choice((*TOPICS, TRANSACTION_STATE, CONSUMER_OFFSETS))
        times = self.rng.choice((1, 2, 5))
        index = self.rng.randrange(PARTITIONS)
        self.tell(f"no room for {times} writes of {topic}-{index}")
        path = f"/{topic}-{index}/00"  # not what a partition is made of
        fault = self.house.disk.inject("pwrite", errno.ENOSPC, path=path, times=times)
        self._faults.append(fault)

    async def _remake(self, topic: str) -> None:
        assert self.house is not None
        self.tell(f"{topic} is deleted")
        await ask(self.house, DeleteTopicsRequest(topic_names=[topic]), 5)
        await rest(self.rng.choice((0, 0.01, 0.3)))
        await self._make(topic)
        self.tell(f"{topic} is made again")

    async def _trim(self, topic: str, index: int) -> None:
        assert self.house is not None
        log = self.house.partition(topic, index).log
        offset = self.rng.randrange(log.log_start_offset, log.high_watermark + 1)
        kind = DeleteRecordsRequest
        part = kind.DeleteRecordsPartition(index, offset)
        await ask(self.house, kind([kind.DeleteRecordsTopic(topic, [part])], 1000), 2)
        self.tell(f"{topic}-{index} begins at {offset}")

    async def _look(self) -> None:
        """A reader, now and then."""
        while not self.is_calm:
            await rest(self.rng.uniform(0.05, 2))
            if self.house is not None:
                await self._read(self.rng.choice(TOPICS), self.rng.randrange(PARTITIONS))

    # requests

    async def send(self, who: Client, request: Any, version: int) -> Any:
        """The answer; None if it is not known what has become of the request."""
        raw = _encoded(request, version)
        if self.happens(self.faults.delayed):
            self.tell(f"{who} delayed: {story_of(request)}")
            self._later(who, type(request), raw, version)
            who.left_behind += 1
            return None
        if self.happens(self.faults.doubled):
            self._later(who, type(request), raw, version)
            who.left_behind += 1
        future = self._deliver(who, type(request), raw, version)
        self._waiting[future] = None
        try:
            async with asyncio.timeout(PATIENCE_S):
                answer = await future
        except TimeoutError:
            raise AssertionError(f"T3: no answer to {who}: {story_of(request)}") from None
        finally:
            self._waiting.pop(future, None)
        if answer is None:
            self.tell(f"{who} lost: {story_of(request)}")
            return None
        if self.happens(self.faults.lost_answer):
            self.tell(f"{who} lost the answer: {story_of(request)} -> {codes_of(answer)}")
            return None
        self.tell(f"{who} {story_of(request)} -> {codes_of(answer)}")
        return answer

    def _later(self, who: Client, kind: Any, raw: bytes, version: int) -> None:
        async def deliver() -> None:
            await rest(self.rng.choice((0.001, 0.02, 0.1, 0.3, 1, 3, 12)))
            if not self.is_calm:
                future = self._deliver(who, kind, raw, version)
                self._waiting[future] = None
                answer = await future
                self._waiting.pop(future, None)
                shown = "lost" if answer is None else codes_of(answer)
                request, _ = decoder(kind, version)(memoryview(bytearray(raw)), 0)
                self.tell(f"{who} much later: {story_of(request)} -> {shown}")

        self.spawn(deliver())

    def _deliver(self, who: Client, kind: Any, raw: bytes, version: int) -> asyncio.Future[Any]:
        """As a connection does it; the frame is another's when the handler has returned."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        life, house = self.life, self.house
        if house is None:
            loop.call_later(0.05, _forget, future)
            return future
        floor = self._floor(who.name, kind)
        frame = bytearray(raw)
        request, _ = decoder(kind, version)(memoryview(frame), 0)
        kept, _ = decoder(kind, version)(memoryview(bytes(raw)), 0)

        def told(response: Any) -> None:
            if life != self.life:
                if not future.done():
                    future.set_result(None)
                return
            answer = through_wire(response, version)
            try:
                self._observe(who, kept, version, answer, floor)
            except AssertionError as error:
                self._failure = self._failure or error
            if not future.done():
                future.set_result(answer)

        answer = HANDLERS[API_OF[kind].key](house.session, request, version)
        frame[:] = bytes(len(frame))
        if isawaitable(answer):

            async def wait() -> None:
                told(await answer)

            house._spawn(wait(), "answer")
        elif isinstance(answer, Pending):
            if answer.response is None:
                answer.line = _Line(told)
            else:
                told(answer.response)
        else:
            told(answer)
        return future

    def _floor(self, name: str, kind: Any) -> tuple[int, int] | None:
        """Whose requests are heard. A partition learns from the marker that a transaction is over,
        and until then takes batches for it: who has one on its way does not commit."""
        return self.initialized.get(name) if kind is ProduceRequest else self.floors.get(name)

    def _observe(
        self, who: Client, request: Any, version: int, answer: Any, floor: tuple[int, int] | None
    ) -> None:
        """An answer has left the broker. `floor` was the producer when the request arrived."""
        codes = codes_of(answer)
        if isinstance(request, ProduceRequest):
            self._observe_batch(request, answer)
        if isinstance(answer, InitProducerIdResponse | transactions.EndTxnResponse):
            producer = answer.producer_id, answer.producer_epoch
            if not codes[0] and producer[0] >= 0:
                self.floors[who.name] = max(producer, self.floors.get(who.name, producer))
                if isinstance(answer, InitProducerIdResponse):
                    self.initialized[who.name] = self.floors[who.name]
        asker = asker_of(request)
        if floor is None or asker is None or asker >= floor or any(codes):
            return
        is_end = isinstance(request, transactions.EndTxnRequest)
        is_repeated = is_end and version >= 5 and asker == (floor[0], floor[1] - 1)
        assert is_repeated, f"T4: {asker} was heard, but {floor} is: {story_of(request)}"

    def _observe_batch(self, request: ProduceRequest, answer: Any) -> None:
        (topic,), (answered,) = request.topic_data, answer.responses
        (data,), (part,) = topic.partition_data, answered.partition_responses
        assert data.records is not None
        if part.error_code:
            return
        topic_id = topic.topic_id if any(topic.topic_id) else self.topic_ids[topic.name]
        for offset, value in values_of(data.records):
            base = part.base_offset + offset
            known = self.bases.setdefault((topic_id, value), base)
            if known != base and value in self.lossy:
                self.bases[topic_id, value] = base
            elif known != base:
                # Whoever deletes a topic while a batch waits may see it in the next one.
                raise AssertionError(f"I1: {value!r} is at {known} and at {base}")

    # what is seen

    async def _read(self, topic: str, index: int) -> dict[bytes, int]:
        """Reads a partition as both kinds of readers do, and checks what must always hold."""
        life, topic_id = self.life, self.topic_ids[topic]
        house = self.house
        assert house is not None
        everything = await self._collect(house, topic, index, committed=False)
        committed = await self._collect(house, topic, index, committed=True)
        if life != self.life or topic_id != self.topic_ids[topic]:
            return {}
        if everything is None or committed is None:
            return {}
        values = [value for _, value in everything]
        assert len(set(values)) == len(values), f"I1: twice in {topic}-{index}: {values}"
        visible = {value: offset for offset, value in committed}
        assert len(visible) == len(committed), f"I1: seen twice in {topic}-{index}"
        self._check_order(f"{topic}-{index}", values)
        for work in self.works:
            if not work.may_be_committed:
                shown = work.tried & visible.keys()
                assert not shown, f"T2: {work} is seen in {topic}-{index}: {shown}"
        return visible

    def _check_order(self, where: str, values: list[bytes]) -> None:
        last: dict[bytes, int] = {}
        for value in values:
            name, number = value.rsplit(b".", 1)
            assert last.get(name, -1) < int(number), f"I1: out of order in {where}: {values}"
            last[name] = int(number)

    async def _collect(
        self, house: SteadyHouse, topic: str, index: int, *, committed: bool
    ) -> list[tuple[int, bytes]] | None:
        """(offset, value) of what a reader sees in pieces of some size; None if it cannot."""
        partition = house.rooms.replicas.get(topic, index)
        if partition is None:
            return None
        offset = partition.log.log_start_offset
        max_bytes = self.rng.choice((1, 200, 1000, 1 << 20))
        records: list[tuple[int, bytes]] = []
        while True:
            found = await fetch(
                house, topic, index, offset, committed=committed, max_bytes=max_bytes
            )
            if found.error_code:
                return None
            if not found.records:
                break
            data = bytes(found.records)
            records += seen(found, offset)
            offset = [header for _, header in iterate_headers(data)][-1].last_offset + 1
        self._check_stable(partition.log)
        end = found.last_stable_offset if committed else found.high_watermark
        assert offset >= end, f"T2: {topic}-{index} gives nothing at {offset}, its end is {end}"
        return records

    def _check_stable(self, log: Any) -> None:
        """The last stable offset is the first of what is open, by what lies in the log."""
        upper = log.high_watermark
        if log.log_start_offset == upper:
            return
        opened: dict[int, int] = {}
        for header, batch in headers_of(log):
            if header.base_offset >= upper:
                break
            if header.is_control:
                marker = read_marker(batch)
                if marker is not None:
                    opened.pop(marker.producer_id, None)
            elif header.is_transactional:
                opened.setdefault(header.producer_id, max(header.base_offset, log.log_start_offset))
        # Of one that begins with records that were deleted the rest is held back all the same.
        opened |= {
            producer_id: log.log_start_offset
            for offset, producer_id in log.producer_state.open_transactions.items()
            if offset < log.log_start_offset
        }
        expected = min(opened.values(), default=upper)
        found = max(log.last_stable_offset, log.log_start_offset)
        assert found == expected, (
            f"T2: {log.topic}-{log.partition} is stable up to {found}, not {expected}"
        )

    # the end of a round

    async def check_quiet(self) -> None:
        house = self.house
        assert house is not None
        listed = await ask(house, transactions.ListTransactionsRequest(), 1)
        unended = [
            (one.transactional_id, one.transaction_state)
            for one in listed.transaction_states
            if one.transaction_state not in ("Empty", "CompleteCommit", "CompleteAbort")
        ]
        assert not listed.error_code, ErrorCode(listed.error_code)
        assert not unended, f"T3: never ended: {unended}"
        visible: dict[bytes, Place] = {}
        for partition in house.rooms.replicas:
            log = partition.log
            assert log.last_stable_offset == log.high_watermark, f"T3: {partition} is held back"
            assert not partition.commit_waiters, f"T3: {partition}"
            assert not partition.durable_waiters, f"T3: {partition}"
        for topic in TOPICS:
            for index in range(PARTITIONS):
                for value in await self._read(topic, index):
                    visible[value] = topic, index
        shown = {work: self._check_whole(house, work, visible) for work in self.works}
        await self._check_offsets(house, shown)

    def _check_whole(
        self, house: SteadyHouse, work: Work, visible: dict[bytes, Place]
    ) -> bool | None:
        """Whether a transaction is seen; None if nothing of it could be."""
        found: dict[bytes, bool] = {}
        for value, (topic_id, place) in work.written.items():
            if self.topic_ids[place[0]] != topic_id or value in self.lossy:
                continue
            log = house.partition(*place).log
            if self.bases[topic_id, value] >= log.log_start_offset:
                found[value] = value in visible
        if work.is_committed:
            missing = [value for value, one in found.items() if not one]
            assert not missing, f"T1: {work} is committed, but not seen are {missing}"
            return True
        if not work.may_be_committed:
            return False
        if not found:
            return None
        assert len(set(found.values())) == 1, f"T1: {work} is torn: {found}"
        return next(iter(found.values()))

    async def _check_offsets(self, house: SteadyHouse, shown: dict[Work, bool | None]) -> None:
        for group in GROUPS:
            for name in {work.producer for work in self.works}:
                allowed = {-1}
                for work, is_seen in shown.items():
                    offsets = work.offsets.get(group)
                    if work.producer != name or not offsets:
                        continue
                    if is_seen is None:
                        allowed |= offsets
                    elif is_seen:
                        allowed = offsets
                index = int(name[1:])
                code, offset = await committed_offset(house, group, INPUT, index)
                assert not code, f"T8: {group} of {name}: {ErrorCode(code).name}"
                assert offset in allowed, f"T8: {group} of {name} is {offset}, not {allowed}"


def _forget(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)


def _encoded(message: Any, version: int) -> bytes:
    out = bytearray()
    encoder(type(message), version)(message, out, [])
    return bytes(out)


def run_seed(seed: int, rounds: int = 2) -> World:
    """One world, to its end; AssertionError says which invariant it broke."""
    world: World | None = None

    async def scenario() -> World:
        nonlocal world
        world = World(seed)
        try:
            await world.run(rounds)
        finally:
            mine = asyncio.current_task()
            left = [task for task in asyncio.all_tasks() if task is not mine]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        return world

    try:
        return run(scenario())
    except BaseException as error:
        story = [] if world is None else world.story
        error.add_note("\n".join([f"seed {seed}:", *story]))
        raise


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.transactions.simulation")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args(arguments)
    began = time.monotonic()
    works = 0
    for seed in range(options.first, options.first + options.seeds):
        works += len(run_seed(seed).works)
    print(  # noqa: T201
        f"{options.seeds} seeds from {options.first}, {works} transactions:"
        f" no violation in {time.monotonic() - began:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
