"""Which partition of a coordinator's topic a key belongs to: its leader is the coordinator."""

from __future__ import annotations

from functools import lru_cache

REMEMBERED = 4096
REMEMBERED_LENGTH_MAX = 256
"""Every request of a group asks for its partition, and to hash 40 characters takes 6 us: so many
keys are remembered, none that is longer than this."""
_INT_BITS = 32
_INT_MIN = -(2**31)


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units, wrapped to a signed 32-bit number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value - (1 << _INT_BITS) if value >> (_INT_BITS - 1) else value


def partition_for(key: str, partition_count: int) -> int:
    """Kafka's Utils.abs of the hash, which makes 0 of the one number that has no opposite."""
    value = _remembered_hash(key) if len(key) <= REMEMBERED_LENGTH_MAX else java_hash(key)
    return (0 if value == _INT_MIN else abs(value)) % partition_count


_remembered_hash = lru_cache(REMEMBERED)(java_hash)
