"""The crash sweep: the proof that nothing acknowledged is lost.

    python -m tests.log.crash_sweep [--seeds N] [--nested] [--at CALL --mode MODE --seed SEED]

A workload of thirteen operations runs once on the simulated disk. Before each call that changes the
disk, and once more at the end, the machine is crashed in each mode, and what is left is started
again: nothing acknowledged may be missing or changed, offsets must be dense, a retried idempotent
batch must not be doubled, a second recovery must find nothing to do, and what the first one served
must survive a second loss of power. With --nested the recoveries themselves are crashed at every
call, too.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.broker.log.segment import SNAPSHOT_SUFFIX
from ottla.broker.log.waypoints import WAYPOINT_FILE
from ottla.protocol.errors import KafkaError
from ottla.protocol.wire import parse_uuid
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.log.crash_world import (
    LOG_DIR,
    Violation,
    World,
    batches_of,
    examine,
    require,
    retry_everything,
)

ORDERS = ("orders", 0)
OTHER = ("orders", 1)
BRIEF = ("brief", 0)
ORDERS_ID = parse_uuid("HkCIt-qdTvufbCVwHt-fjQ")
BRIEF_ID = parse_uuid("UfmCnMz1SaKP3C4ssqm89w")
SECOND_BRIEF_ID = parse_uuid("MkU3OEVBNTcwNTJENDM2Qg")

Tree = dict[str, tuple[int, bytes]]

# Modes in which chance decides are tried with several seeds.
_CHANCE = frozenset({CrashMode.PREFIX, CrashMode.SUBSET, CrashMode.TORN})


def begin(world: World) -> None:
    world.start()
    world.create(ORDERS, ORDERS_ID)


def append_idempotent(world: World) -> None:
    world.send(ORDERS, records=3, producer_id=1)
    world.send(ORDERS, records=1, producer_id=1)


def append_plain(world: World) -> None:
    world.send(ORDERS, records=2)


def mark(world: World) -> None:
    world.mark(ORDERS)
    world.send(ORDERS, records=1, producer_id=1)
    world.mark(ORDERS)
    world.send(ORDERS, records=1, producer_id=1)


def commit_a_group(world: World) -> None:
    world.append(ORDERS, records=2, producer_id=1)
    world.append(ORDERS, records=1)
    world.append(ORDERS, records=1, producer_id=2)
    world.flush(ORDERS)


def use_two_partitions(world: World) -> None:
    world.create(OTHER, ORDERS_ID)
    world.append(OTHER, records=2, producer_id=1)
    world.append(ORDERS, records=2, producer_id=2)
    world.flush(OTHER)
    world.flush(ORDERS)


def roll(world: World) -> None:
    first = len(world.log(ORDERS).segments)
    while len(world.log(ORDERS).segments) < first + 3:
        world.append(ORDERS, records=3)
        world.append(ORDERS, records=2, producer_id=1)
        world.flush(ORDERS)
    world.append(ORDERS, records=1)
    world.send(ORDERS, records=1, producer_id=1)
    world.mark(ORDERS)
    world.append(ORDERS, records=1, producer_id=1)


def retain(world: World) -> None:
    before = len(world.log(ORDERS).segments)
    world.apply_retention()
    assert before - len(world.log(ORDERS).segments) > 1, "names of several segments change at once"
    world.append(ORDERS, records=1, producer_id=2)
    world.clock.advance(2000)
    world.apply_retention()


def checkpoint(world: World) -> None:
    world.checkpoint()
    world.flush(ORDERS)
    world.checkpoint()


def delete_records(world: World) -> None:
    world.delete_records(ORDERS, world.log(ORDERS).log_start_offset + 4)
    world.checkpoint()


def die_and_recover(world: World) -> None:
    world.send(ORDERS, records=2)
    world.mark(ORDERS)
    world.die()
    world.start()
    world.send(ORDERS, records=1, producer_id=1)


def stop_and_start(world: World) -> None:
    world.stop()
    world.start()
    world.send(ORDERS, records=2, producer_id=2)
    world.send(OTHER, records=1)


def delete_and_create_again(world: World) -> None:
    world.create(BRIEF, BRIEF_ID)
    for _ in range(4):
        world.send(BRIEF, records=2, producer_id=1)
    world.checkpoint()
    world.delete(BRIEF)
    world.create(BRIEF, SECOND_BRIEF_ID)
    world.send(BRIEF, records=1, producer_id=1)
    world.clock.advance(2000)
    for removal in world.manager.deletions.due_directories():
        list(world.manager.deletions.remove_directory(removal))
    world.append(BRIEF, records=1)


WORKLOAD: list[Callable[[World], None]] = [
    begin,
    append_idempotent,
    append_plain,
    mark,
    commit_a_group,
    use_two_partitions,
    roll,
    retain,
    checkpoint,
    delete_records,
    die_and_recover,
    stop_and_start,
    delete_and_create_again,
]


@dataclass(slots=True)
class Sweep:
    """One run of the workload with a crash at every call."""

    disk: SimDisk
    seeds: int = 1
    nested: bool = False
    only_in: Callable[[World], None] | None = None
    only_at: int | None = None
    only_mode: CrashMode | None = None
    only_seed: int | None = None
    world_type: type[World] = World
    calls: int = 0
    crashes: int = 0
    nested_crashes: int = 0
    states: set[bytes] = field(default_factory=set)
    world: World = field(init=False)

    def run(self) -> None:
        """Raises Violation, with the line that replays it, at the first broken promise."""
        self.disk.make_dir(LOG_DIR)
        self.disk.sync_dir("/")
        first = self.disk.calls
        self.world = self.world_type(self.disk)
        operation = ""

        def before_call(count: int, call: str, path: str) -> None:
            self._crash_all_ways(count - first, f"{operation}: {call} {path}")

        for step in WORKLOAD:
            operation = step.__name__
            self.disk.before_call = before_call if self.only_in in (None, step) else None
            step(self.world)
        self.disk.before_call = None
        self.calls = self.disk.calls - first
        self._crash_all_ways(self.calls, "the end")

    def _crash_all_ways(self, at: int, where: str) -> None:
        if self.only_at not in (None, at):
            return
        for mode in CrashMode:
            if self.only_mode not in (None, mode):
                continue
            for seed in range(self.seeds if mode in _CHANCE else 1):
                if self.only_seed not in (None, seed):
                    continue
                try:
                    self._crash(at, mode, seed)
                except (AssertionError, OSError, KafkaError) as error:
                    raise Violation(
                        f"{error or type(error)}\n"
                        f"  crashed before call {at} ({where}), mode {mode.name}\n"
                        f"  replay: python -m tests.log.crash_sweep"
                        f" --at {at} --mode {mode.name} --seed {seed}"
                    ) from error

    def _crash(self, at: int, mode: CrashMode, seed: int) -> None:
        rng = random.Random(f"{at} {mode.name} {seed}")
        left = self.disk.crash(rng, mode)
        self.crashes += 1
        if mode is not CrashMode.PROCESS:
            # Different crashes often leave the same; each state is worth one look.
            identity = self._identity(left)
            if identity in self.states:
                return
            self.states.add(identity)
        if self.nested:
            self._crash_recovery(left, rng)
        self._recover(left, rng)

    def _recover(self, left: SimDisk, rng: random.Random) -> None:
        promises = self.world.promises
        manager = examine(left, promises)
        recovered = _partitions(left)
        served = {
            (log.topic, log.partition, header.base_offset): batch
            for log in manager.logs
            for header, batch in batches_of(log)
        }
        manager.unlock()
        again = left.crash(rng, CrashMode.PREFIX)
        second = examine(again, promises)
        after = {
            (log.topic, log.partition, header.base_offset): batch
            for log in second.logs
            for header, batch in batches_of(log)
        }
        require(
            served.items() <= after.items(),
            "what was served after recovery is gone after a second crash",
        )
        if manager.unclean_dirs:
            same = left.crash(rng, CrashMode.ALL_KEPT)
            examine(same, promises)
            changed = _difference(recovered, _partitions(same))
            require(not changed, "a second recovery changes", *changed)
        retry_everything(second, promises)

    def _crash_recovery(self, left: SimDisk, rng: random.Random) -> None:
        trial = left.crash(rng, CrashMode.PROCESS)
        modes = list(CrashMode)

        def before_call(count: int, call: str, path: str) -> None:
            self.nested_crashes += 1
            mode = modes[rng.randrange(len(modes))]
            examine(trial.crash(rng, mode), self.world.promises)

        trial.before_call = before_call
        examine(trial, self.world.promises)

    def _identity(self, disk: SimDisk) -> bytes:
        digest = hashlib.sha256()
        digest.update(b"%d %d" % (self.world.acknowledged, len(self.world.promises)))
        for path, (size, data) in disk.tree().items():
            digest.update(b"%s %d %d " % (path.encode(), size, len(data)))
            digest.update(data)
        return digest.digest()


def _partitions(disk: SimDisk) -> Tree:
    """The files of the partitions that a second recovery must leave as they are.

    Not compared are the checkpoints beside them, which lose the row of a partition set aside, and
    what carries a CRC and is believed only with it: producer snapshots, of which an unsound one
    goes when a start has a use for it, and waypoints.
    """
    return {
        path: file
        for path, file in disk.tree().items()
        if path.count("/") > 2 and not path.endswith(SNAPSHOT_SUFFIX) and WAYPOINT_FILE not in path
    }


def _difference(before: Tree, after: Tree) -> list[str]:
    return [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.log.crash_sweep")
    parser.add_argument("--seeds", type=int, default=8, help="seeds for each mode of chance")
    parser.add_argument("--nested", action="store_true", help="crash the recoveries, too")
    parser.add_argument("--at", type=int, help="only before this call")
    parser.add_argument("--mode", choices=[mode.name for mode in CrashMode])
    parser.add_argument("--seed", type=int)
    options = parser.parse_args(arguments)
    sweep = Sweep(
        SimDisk(),
        seeds=options.seeds if options.seed is None else options.seed + 1,
        nested=options.nested,
        only_at=options.at,
        only_mode=None if options.mode is None else CrashMode[options.mode],
        only_seed=options.seed,
    )
    began = time.monotonic()
    try:
        sweep.run()
    except Violation as violation:
        print(f"VIOLATION: {violation}", file=sys.stderr)  # noqa: T201
        return 1
    print(  # noqa: T201
        f"{len(WORKLOAD)} operations, {sweep.calls} calls that change the disk,"
        f" {sweep.crashes} crashes, {len(sweep.states)} different states after a loss of power,"
        f" {sweep.nested_crashes} crashes of recoveries, {sweep.world.acknowledged} batches"
        f" acknowledged: no violation in {time.monotonic() - began:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
