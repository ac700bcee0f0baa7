"""The four codecs of record batches, each with a hard limit on what it may put out.

    gzip    RFC 1952. Bytes behind the stream that begin no further member are passed over, as
            Java's reader does.
    snappy  xerial framing (what Java writes): 82 'SNAPPY' 00, int32 version, int32 compatible
            version, then per block an int32 length and a raw snappy block; or one raw snappy
            block (what librdkafka writes), told apart by the magic.
    lz4     LZ4 frames. Java's reader knows only independent blocks, so only those are written.
    zstd    frames, with or without their content size.

A payload's own word about its size never makes memory: a declared snappy length is checked
against what its bytes could hold at all, the others grow a buffer by doubling up to the limit,
so a payload costs at most about twice its output, and a bomb at most twice the limit.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Callable, Iterator

import cramjam

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.codecs import Codec
from ottla.protocol.records.crc import Buffer

# Kafka's limits of compression.gzip.level, compression.lz4.level and compression.zstd.level.
GZIP_LEVELS = range(1, 10)
LZ4_LEVELS = range(1, 18)
ZSTD_LEVELS = range(-131072, 23)

# Kafka's default lz4 level is 9, by which its writer means the fast compressor.
_LZ4_LEVEL_DEFAULT = 9
_LZ4_FAST = 0
# The library's own ceiling; it takes higher levels for this one, as Kafka's does.
_LZ4_LEVEL_MAX = 12
_ZSTD_LEVEL_DEFAULT = 3

# Java and librdkafka write one member a batch. Each member costs a copy of what is behind it,
# so their number is limited before the bytes are.
_GZIP_MEMBERS_MAX = 16
_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_WINDOW = 31

_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_SIZE = 32 * 1024
# The densest snappy element is a copy of 64 bytes in 3.
_SNAPPY_RATIO_MAX = 22

_BUFFER_SIZE_MIN = 64 * 1024
# Rust's name for an output slice that is full: the only failure that a larger buffer cures.
_OUTPUT_FULL = "failed to write whole buffer"

# What one call puts out that fills a map.
_GZIP_PIECE_BYTES = 1024 * 1024

_INT32 = struct.Struct(">i")


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """The data in that codec; `level` is Kafka's, within the codec's limits, None its default.

    Snappy has no levels and ignores one.
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            assert level is None or level in GZIP_LEVELS
            return zlib.compress(data, -1 if level is None else level, _GZIP_WINDOW)
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            return _compress_lz4(data, level)
        case Codec.ZSTD:
            assert level is None or level in ZSTD_LEVELS
            return bytes(
                cramjam.zstd.compress(data, _ZSTD_LEVEL_DEFAULT if level is None else level)
            )
    raise _unsupported(codec)


def decompress(codec: int, data: Buffer, *, limit: int) -> bytes:
    """The plain bytes, at most `limit` of them.

    Raises MESSAGE_TOO_LARGE where there are more, CORRUPT_MESSAGE where the codec cannot read
    the data, UNSUPPORTED_COMPRESSION_TYPE for a codec that Kafka has not assigned.
    """
    match codec:
        case Codec.NONE:
            if len(data) > limit:
                raise _too_large(codec, limit)
            return bytes(data)
        case Codec.GZIP:
            return _decompress_gzip(data, limit)
        case Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), limit)
        case Codec.LZ4:
            return _decompress_growing(codec, cramjam.lz4.decompress_into, data, limit)
        case Codec.ZSTD:
            return _decompress_growing(codec, cramjam.zstd.decompress_into, data, limit)
    raise _unsupported(codec)


def decompress_into_map(codec: int, data: Buffer, *, limit: int) -> tuple[mmap.mmap, int]:
    """Memory that begins with the plain bytes, and how many they are; the caller closes it.

    For who is not to hold up other threads: none of it is cleared, copied or given back while the
    interpreter's lock is held, which for 64 MiB takes tens of milliseconds. `limit` bytes of
    address space are asked for, and only as much memory as is written. Raises as `decompress`.
    """
    plain = mmap.mmap(-1, limit)
    try:
        match codec:
            case Codec.NONE:
                if len(data) > limit:
                    raise _too_large(codec, limit)
                size = plain.write(data)
            case Codec.GZIP:
                for part in _gzip_parts(data, limit, _GZIP_PIECE_BYTES):
                    plain.write(part)
                size = plain.tell()
            case Codec.SNAPPY:
                size = _fill_with_snappy(plain, memoryview(data), limit)
            case Codec.LZ4:
                size = _fill_whole(codec, cramjam.lz4.decompress_into, data, plain)
            case Codec.ZSTD:
                size = _fill_whole(codec, cramjam.zstd.decompress_into, data, plain)
            case _:
                raise _unsupported(codec)
    except KafkaError:
        plain.close()
        raise
    return plain, size


def _compress_xerial(data: Buffer) -> bytes:
    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    assert level is None or level in LZ4_LEVELS
    if level is None or level == _LZ4_LEVEL_DEFAULT:
        strength = _LZ4_FAST
    else:
        strength = min(level, _LZ4_LEVEL_MAX)
    writer = cramjam.lz4.Compressor(level=strength, content_checksum=False, block_linked=False)
    writer.compress(bytes(data))
    return bytes(writer.finish())


def _decompress_growing(
    codec: int, decompress_into: Callable[[Buffer, Buffer], int], data: Buffer, limit: int
) -> bytes:
    size = min(max(4 * len(data), _BUFFER_SIZE_MIN), limit)
    while True:
        buffer = bytearray(size)
        try:
            written = decompress_into(data, buffer)
        except cramjam.DecompressionError as error:
            if str(error) != _OUTPUT_FULL:
                raise _corrupt(codec, str(error)) from None
        else:
            return bytes(memoryview(buffer)[:written])
        if size == limit:
            raise _too_large(codec, limit)
        del buffer
        size = min(2 * size, limit)


def _fill_whole(
    codec: int, decompress_into: Callable[[Buffer, mmap.mmap], int], data: Buffer, plain: mmap.mmap
) -> int:
    try:
        return decompress_into(data, plain)
    except cramjam.DecompressionError as error:
        if str(error) == _OUTPUT_FULL:
            raise _too_large(codec, len(plain)) from None
        raise _corrupt(codec, str(error)) from None


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    parts = list(_gzip_parts(data, limit, limit + 1))
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _gzip_parts(data: Buffer, limit: int, part_bytes_max: int) -> Iterator[bytes]:
    rest = data
    left = limit
    for _ in range(_GZIP_MEMBERS_MAX):
        reader = zlib.decompressobj(_GZIP_WINDOW)
        is_full = True
        while is_full and not reader.eof:
            # zlib takes a maximum of 0 for none; the one byte more shows what is over the limit.
            wanted = min(left + 1, part_bytes_max)
            try:
                part = reader.decompress(rest, wanted)
            except zlib.error as error:
                raise _corrupt(Codec.GZIP, str(error)) from None
            if len(part) > left:
                raise _too_large(Codec.GZIP, limit)
            left -= len(part)
            yield part
            is_full = len(part) == wanted
            rest = reader.unconsumed_tail
        if not reader.eof:
            raise _corrupt(Codec.GZIP, "the stream ends early")
        rest = reader.unused_data
        if not rest.startswith(_GZIP_MAGIC):
            return
    raise _corrupt(Codec.GZIP, f"more than {_GZIP_MEMBERS_MAX} members")


def _decompress_snappy(data: memoryview, limit: int) -> bytes:
    parts: list[bytes] = []
    for block, _ in _snappy_blocks(data, limit):
        try:
            parts.append(bytes(cramjam.snappy.decompress_raw(block)))
        except cramjam.DecompressionError as error:
            raise _corrupt(Codec.SNAPPY, str(error)) from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _fill_with_snappy(plain: mmap.mmap, data: memoryview, limit: int) -> int:
    end = 0
    with memoryview(plain) as view:
        for block, size in _snappy_blocks(data, limit):
            with view[end : end + size] as room:
                try:
                    end += cramjam.snappy.decompress_raw_into(block, room)
                except cramjam.DecompressionError as error:
                    raise _corrupt(Codec.SNAPPY, str(error)) from None
    return end


def _snappy_blocks(data: memoryview, limit: int) -> Iterator[tuple[memoryview, int]]:
    """Each raw block, and the size that it says it has: together within the limit."""
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield data, _snappy_size(data, limit, limit)
        return
    if len(data) < len(_XERIAL_HEADER):
        raise _corrupt(Codec.SNAPPY, "the stream ends early")
    position = len(_XERIAL_HEADER)
    left = limit
    while position < len(data):
        if len(data) - position < _INT32.size:
            raise _corrupt(Codec.SNAPPY, "the stream ends early")
        (length,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        if length < 0 or length > len(data) - position:
            raise _corrupt(Codec.SNAPPY, f"a block claims {length} bytes")
        block = data[position : position + length]
        size = _snappy_size(block, left, limit)
        yield block, size
        left -= size
        position += length


def _snappy_size(block: memoryview, left: int, limit: int) -> int:
    try:
        size = int(cramjam.snappy.decompress_raw_len(block))
    except cramjam.DecompressionError as error:
        raise _corrupt(Codec.SNAPPY, str(error)) from None
    if size > _SNAPPY_RATIO_MAX * len(block):
        raise _corrupt(Codec.SNAPPY, f"a block claims to hold {size} bytes")
    if size > left:
        raise _too_large(Codec.SNAPPY, limit)
    return size


def _corrupt(codec: int, reason: str) -> KafkaError:
    name = Codec(codec).name.lower()
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Records cannot be read as {name}: {reason}")


def _too_large(codec: int, limit: int) -> KafkaError:
    name = Codec(codec).name.lower()
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"Records of codec {name} hold more than {limit} bytes"
    )


def _unsupported(codec: int) -> KafkaError:
    return KafkaError(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type id: {codec}"
    )
