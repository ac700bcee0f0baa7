"""What is left to chance, by seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ottla.protocol.api import SERVED, ApiKey

A = TypeVar("A")
T = TypeVar("T")
NEWEST_SHARE = 0.45
"""So many requests have the newest version; the others any."""


class Chance:
    """Draws by a seed; the same for the same seed and area, on every machine."""

    def __init__(self, area: str, seed: int) -> None:
        # Strings seed by their digest, which no hash seed changes.
        self.rng = random.Random(f"{area} {seed}")

    def one(self, *values: T) -> T:
        return self.rng.choice(values)

    def of(self, values: Sequence[T]) -> T:
        return self.rng.choice(values)

    def happens(self, share: float) -> bool:
        return self.rng.random() < share

    def weighed(self, weights: Mapping[T, float]) -> T:
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def some(self, make: Callable[[], T], counts: Sequence[int] = (1, 1, 1, 2, 3)) -> list[T]:
        return [make() for _ in range(self.of(counts))]

    def up_to(self, end: int) -> int:
        return self.rng.randrange(end)

    def some_of(self, make: Callable[[A], T], given: A, counts: Sequence[int]) -> list[T]:
        """The same of what is made for something."""
        return [make(given) for _ in range(self.of(counts))]

    def version(self, api: ApiKey) -> int:
        served = SERVED[api]
        first = max(served.min_version, served.advertised_min_version)
        if self.happens(NEWEST_SHARE):
            return served.max_version
        return self.rng.randint(first, served.max_version)

    def any_version(self, api: ApiKey) -> int:
        served = SERVED[api]
        return self.rng.randint(served.min_version, served.max_version)
