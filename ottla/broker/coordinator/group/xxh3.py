"""XXH3 with 64 bits and seed 0, of bytes that are all there: Kafka's hash of a topic's shape.

It is written into the records of groups, so it must be the very number that Kafka computes. The
algorithm is Yann Collet's (BSD licence), from its specification: short inputs of 0, 1-3, 4-8 and
9-16 bytes each have a formula of their own, up to 128 and 240 bytes are mixed in pieces of 16, and
longer ones go through eight lanes in stripes of 64.
"""

from __future__ import annotations

from struct import Struct, unpack_from

_MASK = 0xFFFFFFFFFFFFFFFF
_PRIME32_1 = 0x9E3779B1
_PRIME32_2 = 0x85EBCA77
_PRIME32_3 = 0xC2B2AE3D
_PRIME64_1 = 0x9E3779B185EBCA87
_PRIME64_2 = 0xC2B2AE3D27D4EB4F
_PRIME64_3 = 0x165667B19E3779F9
_PRIME64_4 = 0x85EBCA77C2B2AE63
_PRIME64_5 = 0x27D4EB2F165667C5
_PRIME_MX1 = 0x165667919E3779F9
_PRIME_MX2 = 0x9FB21C651E98DF25

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE = 64
_LANES = Struct("<8Q")
_SECRET_STEP = 8
_STRIPES_PER_BLOCK = (192 - _STRIPE) // _SECRET_STEP


def xxh3_64(data: bytes) -> int:
    """The hash as a signed 64-bit number, as Java has it."""
    length = len(data)
    if length <= 16:
        value = _up_to_16(data, length)
    elif length <= 128:
        value = _up_to_128(data, length)
    elif length <= 240:
        value = _up_to_240(data, length)
    else:
        value = _long(data, length)
    return value - (1 << 64) if value >> 63 else value


def _up_to_16(data: bytes, length: int) -> int:
    if length > 8:
        flip1 = _u64(_SECRET, 24) ^ _u64(_SECRET, 32)
        flip2 = _u64(_SECRET, 40) ^ _u64(_SECRET, 48)
        low = _u64(data, 0) ^ flip1
        high = _u64(data, length - 8) ^ flip2
        return _avalanche((length + _swap64(low) + high + _fold(low, high)) & _MASK)
    if length >= 4:
        first, last = _u32(data, 0), _u32(data, length - 4)
        flip = _u64(_SECRET, 8) ^ _u64(_SECRET, 16)
        keyed = (last + (first << 32)) ^ flip
        return _rrmxmx(keyed, length)
    if length:
        first, middle, last = data[0], data[length >> 1], data[-1]
        combined = first << 16 | middle << 24 | last | length << 8
        return _avalanche64(combined ^ (_u32(_SECRET, 0) ^ _u32(_SECRET, 4)))
    return _avalanche64(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _up_to_128(data: bytes, length: int) -> int:
    total = length * _PRIME64_1 & _MASK
    for step in reversed(range((length - 1) // 32 + 1)):
        total += _mix16(data, 16 * step, 32 * step)
        total += _mix16(data, length - 16 * (step + 1), 32 * step + 16)
    return _avalanche(total & _MASK)


def _up_to_240(data: bytes, length: int) -> int:
    total = length * _PRIME64_1 & _MASK
    for step in range(8):
        total += _mix16(data, 16 * step, 16 * step)
    total = _avalanche(total & _MASK)
    for step in range(8, length // 16):
        total += _mix16(data, 16 * step, 16 * (step - 8) + 3)
    total += _mix16(data, length - 16, 136 - 17)
    return _avalanche(total & _MASK)


def _long(data: bytes, length: int) -> int:
    lanes = [
        _PRIME32_3,
        _PRIME64_1,
        _PRIME64_2,
        _PRIME64_3,
        _PRIME64_4,
        _PRIME32_2,
        _PRIME64_5,
        _PRIME32_1,
    ]
    stripes = (length - 1) // _STRIPE
    for stripe in range(stripes):
        within = stripe % _STRIPES_PER_BLOCK
        _accumulate(lanes, data, stripe * _STRIPE, within * _SECRET_STEP)
        if within == _STRIPES_PER_BLOCK - 1:
            _scramble(lanes)
    _accumulate(lanes, data, length - _STRIPE, 192 - _STRIPE - 7)
    total = length * _PRIME64_1 & _MASK
    for pair in range(4):
        low = lanes[2 * pair] ^ _u64(_SECRET, 11 + 16 * pair)
        high = lanes[2 * pair + 1] ^ _u64(_SECRET, 19 + 16 * pair)
        total += _fold(low, high)
    return _avalanche(total & _MASK)


def _accumulate(lanes: list[int], data: bytes, offset: int, secret_offset: int) -> None:
    values = _LANES.unpack_from(data, offset)
    keys = _LANES.unpack_from(_SECRET, secret_offset)
    for lane, (value, key) in enumerate(zip(values, keys, strict=True)):
        keyed = value ^ key
        lanes[lane ^ 1] = (lanes[lane ^ 1] + value) & _MASK
        lanes[lane] = (lanes[lane] + (keyed & 0xFFFFFFFF) * (keyed >> 32)) & _MASK


def _scramble(lanes: list[int]) -> None:
    keys = _LANES.unpack_from(_SECRET, 192 - _STRIPE)
    for lane, key in enumerate(keys):
        value = lanes[lane]
        lanes[lane] = (value ^ value >> 47 ^ key) * _PRIME32_1 & _MASK


def _mix16(data: bytes, offset: int, secret_offset: int) -> int:
    low = _u64(data, offset) ^ _u64(_SECRET, secret_offset)
    high = _u64(data, offset + 8) ^ _u64(_SECRET, secret_offset + 8)
    return _fold(low, high)


def _fold(one: int, other: int) -> int:
    product = one * other
    return product & _MASK ^ product >> 64


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * _PRIME_MX1 & _MASK
    return value ^ value >> 32


def _avalanche64(value: int) -> int:
    """The end of XXH64, which the shortest inputs have kept."""
    value ^= value >> 33
    value = value * _PRIME64_2 & _MASK
    value ^= value >> 29
    value = value * _PRIME64_3 & _MASK
    return value ^ value >> 32


def _rrmxmx(value: int, length: int) -> int:
    value ^= _rotated(value, 49) ^ _rotated(value, 24)
    value = value * _PRIME_MX2 & _MASK
    value ^= (value >> 35) + length
    value = value * _PRIME_MX2 & _MASK
    return value ^ value >> 28


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _swap64(value: int) -> int:
    return int.from_bytes(value.to_bytes(8, "little"), "big")


def _u32(data: bytes, offset: int) -> int:
    found: int = unpack_from("<I", data, offset)[0]
    return found


def _u64(data: bytes, offset: int) -> int:
    found: int = unpack_from("<Q", data, offset)[0]
    return found
