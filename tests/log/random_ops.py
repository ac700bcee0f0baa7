"""Random operations beside a model, as a command.

    python -m tests.log.random_ops [--seed N] [--operations N]
    python -m tests.log.random_ops --seed N --life L [--steps 3,17,40]

A run consists of lives: a log with a configuration and a mix of operations of its own, which is
written to, read, cut, crashed and opened again some hundreds or thousands of times, on a simulated
disk with faults. A life that goes wrong is tried again with ever fewer of its steps, and the line
that repeats the shortest one found is printed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from struct import error as StructError

from ottla.broker.log.index import IndexCorrupt
from ottla.protocol.errors import KafkaError
from tests.log.faulty_model import FaultyModel

# Short lives meet more configurations, long ones more history.
LIFE_STEPS = (100, 300, 300, 1000)
# What a step that goes wrong may raise: of the model's, of the log's, of Python's.
FAILURES = (
    AssertionError,
    AttributeError,
    IndexCorrupt,
    KafkaError,
    LookupError,
    OSError,
    StructError,
    TypeError,
    ValueError,
)
# How long a failing life is shrunk.
SHRINK_SECONDS = 20.0


def lives(seed: int, operations: int) -> list[int]:
    """The number of steps of each life of a run."""
    rng = random.Random(seed)
    found: list[int] = []
    while operations > 0:
        found.append(min(rng.choice(LIFE_STEPS), operations))
        operations -= found[-1]
    return found


def live(seed: int, life: int, steps: Sequence[int]) -> tuple[FaultyModel, Exception | None]:
    """One life, by the numbers of its steps: the model of it, and what went wrong."""
    model = FaultyModel(f"{seed}/{life}")
    try:
        model.run(steps)
        model.check_all()
    except FAILURES as error:
        return model, error
    return model, None


def shrink(seed: int, life: int, steps: Sequence[int], seconds: float) -> list[int]:
    """The steps without as many as can be left out while the life still fails."""
    deadline = time.monotonic() + seconds
    kept = list(steps)
    size = len(kept) // 2
    while size and time.monotonic() < deadline:
        start = 0
        while start < len(kept) and time.monotonic() < deadline:
            fewer = kept[:start] + kept[start + size :]
            if live(seed, life, fewer)[1] is not None:
                kept = fewer
            else:
                start += size
        size //= 2
    return kept


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.log.random_ops")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--life", type=int, help="only this one")
    parser.add_argument("--steps", help="only these steps of it, with commas")
    options = parser.parse_args(arguments)
    chosen: list[tuple[int, Sequence[int]]]
    began = time.monotonic()
    done: Counter[str] = Counter()
    chosen = list(enumerate(map(range, lives(options.seed, options.operations))))
    if options.life is not None:
        numbers = map(int, options.steps.split(",")) if options.steps else chosen[options.life][1]
        chosen = [(options.life, list(numbers))]
    for life, steps in chosen:
        model, error = live(options.seed, life, steps)
        if error is not None:
            traceback.print_exception(error)
            until = list(steps)[: steps.index(model.step) + 1]
            shortest = shrink(options.seed, life, until, SHRINK_SECONDS)
            print(  # noqa: T201
                f"reproduce: python -m tests.log.random_ops --seed {options.seed} --life {life}"
                f" --steps {','.join(map(str, shortest))}",
                file=sys.stderr,
            )
            return 1
        done.update(steps=len(steps), lives=1, crashes=model.crashes)
    print(  # noqa: T201
        f"seed {options.seed}: {done['steps']} operations in {done['lives']} lives of a log,"
        f" {done['crashes']} crashes: no difference to the model"
        f" in {time.monotonic() - began:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
