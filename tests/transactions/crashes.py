"""Power is lost after every call of the disk while transactions are written, and nothing is torn.

    python -m tests.transactions.crashes [--seeds N] [--at CALL --mode MODE --seed SEED]

A script of transactions in both protocols (records in two topics that are synced at once and in a
third that is not, offsets of a group; a commit, an abort, and a commit) runs once on the simulated
disk. Before each call that changes the disk the machine is crashed in each mode, and a broker
starts on what is left:

  * no partition is open for a transaction that its coordinator holds to be over, or does not know;
  * a commit that was acknowledged is whole where every record is synced, and everywhere once it is
    complete; one that was not acknowledged is whole or not there; of an abort nothing is seen;
  * what is decided comes to its end, and the producer goes on.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ottla.broker.coordinator.transaction.records import transaction_records
from ottla.broker.coordinator.transaction.states import AT_REST, TransactionState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.coordinator_records import TransactionLogKey, TransactionLogValue
from ottla.protocol.records.record import iterate_records
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.transactions.steady import (
    GROUP,
    TRANSACTION_STATE,
    Producer,
    SteadyHouse,
    committed_offset,
    headers_of,
    read,
    rest,
    run,
)

SYNCED = ("orders", "parts")
UNSYNCED = "notes"
SETTLED_S = 5.0


@dataclass
class Written:
    """One transaction of the script, and how far it has come."""

    producer: str
    records: dict[tuple[str, int], list[bytes]]
    offset: int
    committed: bool
    is_ended: bool = False
    """Its end was acknowledged."""
    is_asked: bool = False
    """Its end was asked for."""


@dataclass
class Crashed:
    """What a crash leaves, and what clients had been told by then."""

    at: int
    where: str
    mode: CrashMode
    seed: int
    disk: SimDisk
    told: list[Written]


PLACES = ((SYNCED[0], 0), (SYNCED[1], 1), (UNSYNCED, 0))
SCRIPT = (("old", False), ("new", True))


class Script:
    """Runs once; `told` is what its clients know."""

    def __init__(self, house: SteadyHouse) -> None:
        self._house = house
        self.told: list[Written] = []

    async def set_up(self) -> None:
        await self._house.make_coordinator_topics()
        for topic in SYNCED:
            await self._house.create(topic, partitions=2)
        await self._house.create(UNSYNCED, configs={"flush.messages": "1000"})

    async def run(self) -> None:
        for name, is_newer in SCRIPT:
            producer = Producer(self._house, name, is_newer)
            assert await producer.init() == 0
            for number, committed in enumerate((True, False, True)):
                await self._transact(producer, number, committed=committed)

    async def _transact(self, producer: Producer, number: int, *, committed: bool) -> None:
        records = {
            place: [f"{producer.name}-{number}-{place[0]}-{one}".encode() for one in range(2)]
            for place in PLACES
        }
        written = Written(producer.name, records, 100 + number, committed)
        self.told.append(written)
        if not producer.is_newer:
            assert await producer.add(*PLACES) == 0
        codes = [
            await producer.write(*place, value)
            for place, values in records.items()
            for value in values
        ]
        codes.append(await producer.commit_offset(GROUP, *_input_of(producer.name), written.offset))
        assert not any(codes), codes
        written.is_asked = True
        assert await producer.end(committed=committed) == 0
        written.is_ended = True


def _input_of(name: str) -> tuple[str, int]:
    """Each producer has its own place in the offsets of the group."""
    return SYNCED[0], [one for one, _ in SCRIPT].index(name)


@dataclass
class Sweep:
    """`choose` says in which modes, with how many seeds, a call is crashed."""

    choose: Callable[[int], list[tuple[CrashMode, int]]]
    calls: int = 0
    crashes: int = 0
    completions: int = 0
    """Crashes at which a transaction was decided and not over."""

    async def run(self) -> None:
        """Raises AssertionError, with the line that replays it, at the first broken promise."""
        left: list[Crashed] = []
        async with SteadyHouse({}, random.Random(1)) as house:
            script = Script(house)
            await script.set_up()
            first = house.disk.calls

            def before_call(count: int, call: str, path: str) -> None:
                told = [replace(one) for one in script.told]
                for mode, seed in self.choose(count - first):
                    rng = random.Random(f"{count - first} {mode.name} {seed}")
                    disk = house.disk.crash(rng, mode)
                    where = f"{call} {path}"
                    left.append(Crashed(count - first, where, mode, seed, disk, told))

            house.disk.before_call = before_call
            await script.run()
            await rest(SETTLED_S)
            self.calls = house.disk.calls - first
            house.disk.before_call = None
            before_call(house.disk.calls, "the end", "")
        while left:
            crashed = left.pop()
            self.crashes += 1
            try:
                await self._recover(crashed)
            except AssertionError as error:
                raise AssertionError(
                    f"{error}\n  crashed before call {crashed.at} ({crashed.where})\n"
                    f"  replay: python -m tests.transactions.crashes --at {crashed.at}"
                    f" --mode {crashed.mode.name} --seed {crashed.seed}"
                ) from error

    async def _recover(self, crashed: Crashed) -> None:
        rng = random.Random(crashed.at)
        async with SteadyHouse({}, rng, disk=crashed.disk) as house:
            house.check_open()
            complete = _completed(house)
            self.completions += any(
                one.state not in AT_REST and one.state is not TransactionState.ONGOING
                for _, shard in house.rooms.transactions.loaded()
                for one in shard.transactions.values()
            )
            for name, is_newer in SCRIPT:
                await self._go_on(house, name, is_newer=is_newer)
            await rest(SETTLED_S)
            house.check_open()
            for name, _ in SCRIPT:
                await _check(house, name, crashed.told, complete.get(name, 0))

    async def _go_on(self, house: SteadyHouse, name: str, *, is_newer: bool) -> None:
        """The producer comes back, and commits one more transaction."""
        producer = Producer(house, name, is_newer)
        assert await producer.init() == 0
        house.check_open()
        if not is_newer:
            assert await producer.add(*PLACES) == 0
        for place in PLACES:
            assert await producer.write(*place, f"{name}-after".encode()) == 0
        assert await producer.end(committed=True) == 0


def _completed(house: SteadyHouse) -> dict[str, int]:
    """How many transactions of each producer were over, and on the disk so, before this start."""
    completed: dict[str, int] = {}
    record_format = transaction_records(lambda: 2)
    for index in range(2):
        partition = house.partition(TRANSACTION_STATE, index)
        for header, batch in headers_of(partition.log):
            if header.partition_leader_epoch == partition.leader_epoch:
                continue
            for record in iterate_records(batch):
                decoded = record_format.decode(_bytes(record.key), _bytes(record.value))
                if decoded is None or decoded.value is None:
                    continue
                assert isinstance(decoded.key, TransactionLogKey)
                assert isinstance(decoded.value, TransactionLogValue)
                name = decoded.key.transactional_id
                state = TransactionState(decoded.value.transaction_status)
                if state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
                    completed[name] = completed.get(name, 0) + 1
    return completed


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


async def _check(house: SteadyHouse, name: str, told: list[Written], completed: int) -> None:
    visible = {place: [value for _, value in await read(house, *place)] for place in PLACES}
    for place, values in visible.items():
        assert len(set(values)) == len(values), f"I1: twice in {place}: {values}"
        log = house.partition(*place).log
        assert log.last_stable_offset == log.high_watermark, f"T3: {place} is held back"
        assert values[-1] == b"new-after", f"T1: {place} lacks what was written afterwards"
    expected = -1
    code, offset = await committed_offset(house, GROUP, *_input_of(name))
    assert not code, f"T8: {name}'s offset is {ErrorCode(code).name}"
    for number, written in enumerate(one for one in told if one.producer == name):
        is_over = number < completed
        found = {
            place: [value in visible[place] for value in values]
            for place, values in written.records.items()
            if place[0] in SYNCED or is_over
        }
        flat = [one for place in found.values() for one in place]
        label = f"{name} {number}: {found}"
        if not written.committed or not written.is_asked:
            assert not any(flat), f"T2: an abort is seen: {label}"
        elif written.is_ended:
            assert all(flat), f"T1: a commit is not whole: {label}"
        else:
            assert all(flat) or not any(flat), f"T1: torn: {label}"
        if any(flat):
            expected = written.offset
    assert offset == expected, f"T8: {name}'s offset is {offset}, not {expected}"


def every_way(seeds: int) -> Callable[[int], list[tuple[CrashMode, int]]]:
    """Each mode at each call; those in which chance decides with several seeds."""
    chance = {CrashMode.PREFIX, CrashMode.SUBSET, CrashMode.TORN}
    ways = [(mode, seed) for mode in CrashMode for seed in range(seeds if mode in chance else 1)]
    return lambda at: ways


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.transactions.crashes")
    parser.add_argument("--seeds", type=int, default=4, help="seeds for each mode of chance")
    parser.add_argument("--at", type=int, help="only before this call")
    parser.add_argument("--mode", choices=[mode.name for mode in CrashMode])
    parser.add_argument("--seed", type=int)
    options = parser.parse_args(arguments)
    choose = every_way(options.seeds)
    if options.at is not None:
        way = [(CrashMode[options.mode or "ALL_KEPT"], options.seed or 0)]

        def choose(at: int) -> list[tuple[CrashMode, int]]:
            return way if at == options.at else []

    sweep = Sweep(choose)
    began = time.monotonic()
    run(sweep.run())
    print(  # noqa: T201
        f"{sweep.calls} calls that change the disk, {sweep.crashes} crashes,"
        f" {sweep.completions} of them of a transaction that was decided and not over:"
        f" no violation in {time.monotonic() - began:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
