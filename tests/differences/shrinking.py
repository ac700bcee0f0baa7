"""Makes a sequence that shows a difference shorter, by leaving out what it does not need.

First steps, many at once and then fewer; then what stands in lists inside of the requests. What is
left out is decided by trying: `differs` plays a shorter sequence, on topics that are new to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.differences.requests import HangUp, Sequence, Step

Differs = Callable[[Sequence], bool]


def shortened(sequence: Sequence, differs: Differs, tries_max: int) -> Sequence:
    """The shortest that is found with so many tries; the sequence itself shows the difference."""
    trial = _Trial(differs, tries_max)
    return trial.with_fewer_elements(trial.with_fewer_steps(sequence))


class _Trial:
    def __init__(self, differs: Differs, tries_max: int) -> None:
        self._differs = differs
        self._left = tries_max

    def _shows_it(self, sequence: Sequence) -> bool:
        if self._left == 0 or not sequence:
            return False
        self._left -= 1
        return self._differs(sequence)

    def with_fewer_steps(self, sequence: Sequence) -> Sequence:
        size = max(1, len(sequence) // 2)
        while True:
            before = sequence
            position = 0
            while position < len(sequence):
                fewer = sequence[:position] + sequence[position + size :]
                if self._shows_it(fewer):
                    sequence = fewer
                else:
                    position += size
            if size == 1 and sequence == before:
                return sequence
            size = max(1, size // 2)

    def with_fewer_elements(self, sequence: Sequence) -> Sequence:
        while True:
            for fewer in _without_one(sequence):
                if self._shows_it(fewer):
                    sequence = fewer
                    break
            else:
                return sequence


def _without_one(sequence: Sequence) -> Iterator[Sequence]:
    """The sequence with one element of one list in a request left out, in turn."""
    for index in reversed(range(len(sequence))):
        for step in _steps_without_one(sequence[index]):
            yield (*sequence[:index], step, *sequence[index + 1 :])


def _steps_without_one(step: Step) -> Iterator[Step]:
    if isinstance(step, HangUp):
        return
    for index, request in enumerate(step):
        if len(step) > 1:
            yield step[:index] + step[index + 1 :]
        for body in _bodies_without_one(request.body):
            yield (*step[:index], replace(request, body=body), *step[index + 1 :])


def _bodies_without_one(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for name, inner in value.items():
            for fewer in _bodies_without_one(inner):
                yield {**value, name: fewer}
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield value[:index] + value[index + 1 :]
            for fewer in _bodies_without_one(inner):
                yield [*value[:index], fewer, *value[index + 1 :]]
