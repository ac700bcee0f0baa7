"""The codecs: what Java and librdkafka write is read, and no payload makes more than its limit."""

from __future__ import annotations

import random
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path

import cramjam
import lz4.frame
import pytest
import snappy
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records import compression
from ottla.protocol.records.batch import check_crc
from ottla.protocol.records.codecs import Codec
from ottla.protocol.records.compression import compress, decompress, decompress_into_map
from ottla.protocol.records.record import Record, iterate_records
from tests.records import bombs

MIB = 1024 * 1024
TEXT = b"".join(b"%d squared is %d. " % (number, number * number) for number in range(9000))
COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
JAVA = Path(__file__).parent.parent / "golden" / "java" / "batches" / "expected.hex"


def refusal(codec: int, data: bytes, limit: int) -> ErrorCode:
    """Why it is refused, in both ways the same."""
    with pytest.raises(KafkaError) as caught:
        decompress(codec, data, limit=limit)
    code, told = caught.value.code, str(caught.value)
    del caught  # and what its frames hold
    if limit:  # no map is empty
        with pytest.raises(KafkaError) as caught:
            decompress_into_map(codec, data, limit=limit)
        assert (caught.value.code, str(caught.value)) == (code, told)
    return code


def mapped(codec: int, data: bytes | bytearray, limit: int) -> bytes:
    plain, size = decompress_into_map(codec, data, limit=limit)
    with plain:
        return plain[:size]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    "data", [b"", b"a", TEXT, bytes(300_000), random.Random(1).randbytes(70_000)]
)
def test_round_trip_up_to_exactly_the_limit(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)

    assert decompress(codec, packed, limit=len(data)) == data
    assert mapped(codec, packed, max(len(data), 1)) == data
    assert decompress(codec, memoryview(bytearray(packed)), limit=len(data) + 1) == data
    if data:
        assert refusal(codec, packed, len(data) - 1) is ErrorCode.MESSAGE_TOO_LARGE


@given(st.sampled_from(list(Codec)), st.binary(max_size=2000), st.integers(1, 50))
@settings(max_examples=50, deadline=None)
def test_any_bytes_come_back(codec: Codec, piece: bytes, times: int) -> None:
    data = piece * times

    assert decompress(codec, compress(codec, data), limit=len(data)) == data


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        *((Codec.GZIP, level) for level in compression.GZIP_LEVELS),
        *((Codec.LZ4, level) for level in compression.LZ4_LEVELS),
        *((Codec.ZSTD, level) for level in (-131072, -7, -1, 0, 1, 3, 9, 19, 22)),
    ],
)
def test_every_level_of_kafka_is_taken(codec: Codec, level: int) -> None:
    assert decompress(codec, compress(codec, TEXT, level), limit=MIB) == TEXT


def test_levels_are_not_all_the_same() -> None:
    for codec, low, high in [(Codec.GZIP, 1, 9), (Codec.LZ4, 9, 12), (Codec.ZSTD, -50, 19)]:
        assert len(compress(codec, TEXT, high)) < len(compress(codec, TEXT, low))


def test_java_batches_are_read() -> None:
    pattern = "".join(f"{number * number % 9973:04d}" for number in range(250))
    base = 1_700_000_000_000
    expected = [
        Record(100, base, b"k0", b"v0", (("h", b"x"), ("null", None))),
        Record(101, base + 7, None, None),
        Record(102, base - 3, b"big", pattern.encode() * 70),
        Record(103, base + 5, b"", b""),
        Record(104, base + 5, b"k4", b"v4"),
    ]
    names = []
    for line in JAVA.read_text(encoding="ascii").splitlines():
        name, content = line.split()
        names.append(name)
        batch = memoryview(bytes.fromhex(content))

        assert check_crc(batch)
        assert list(iterate_records(batch)) == expected
    assert names == ["gzip", "snappy", "lz4", "zstd"]


def test_raw_snappy_of_librdkafka_is_read() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))

    assert decompress(Codec.SNAPPY, raw, limit=len(TEXT)) == TEXT
    assert refusal(Codec.SNAPPY, raw, len(TEXT) - 1) is ErrorCode.MESSAGE_TOO_LARGE
    assert refusal(Codec.SNAPPY, b"", MIB) is ErrorCode.CORRUPT_MESSAGE


def test_snappy_is_framed_as_java_frames_it() -> None:
    packed = compress(Codec.SNAPPY, bytes(40_000))

    assert packed[:16] == bytes.fromhex("82534e4150505900 00000001 00000001")
    first = int.from_bytes(packed[16:20], "big")
    assert snappy.uncompress(packed[20 : 20 + first]) == bytes(32 * 1024)


def test_lz4_blocks_are_independent() -> None:
    """Java's reader refuses frames whose blocks depend on each other."""
    for level in (None, 1, 9, 17):
        info = lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT, level))

        assert not info["block_linked"]
        assert not info["content_checksum"]


@pytest.mark.parametrize(
    "options",
    [
        {"block_linked": True},
        {"block_linked": False, "store_size": False},
        {"content_checksum": True, "block_checksum": True},
        {"block_size": lz4.frame.BLOCKSIZE_MAX4MB, "compression_level": 9},
    ],
)
def test_lz4_frames_of_any_kind_are_read(options: dict[str, int]) -> None:
    packed = lz4.frame.compress(TEXT, **options)

    assert decompress(Codec.LZ4, packed, limit=len(TEXT)) == TEXT


def test_zstd_without_content_size_and_in_several_frames() -> None:
    writer = cramjam.zstd.Compressor()
    writer.compress(TEXT)
    streamed = bytes(writer.finish())
    skipped = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"skip"

    assert decompress(Codec.ZSTD, streamed, limit=len(TEXT)) == TEXT
    assert decompress(Codec.ZSTD, streamed * 2, limit=2 * len(TEXT)) == TEXT * 2
    assert decompress(Codec.ZSTD, skipped + streamed + skipped, limit=len(TEXT)) == TEXT


def test_gzip_members_follow_each_other_and_garbage_is_passed_over() -> None:
    packed = compress(Codec.GZIP, TEXT)

    assert decompress(Codec.GZIP, packed * 3, limit=3 * len(TEXT)) == TEXT * 3
    assert decompress(Codec.GZIP, packed + b"garbage", limit=MIB) == TEXT
    assert decompress(Codec.GZIP, packed + bytes(100), limit=MIB) == TEXT
    assert refusal(Codec.GZIP, packed * 3, 3 * len(TEXT) - 1) is ErrorCode.MESSAGE_TOO_LARGE
    assert refusal(Codec.GZIP, packed + packed[:-1], MIB) is ErrorCode.CORRUPT_MESSAGE


def test_gzip_members_of_any_size_fill_a_map() -> None:
    """A member's end, and the end of a part of it, may fall on each other."""
    piece = compression._GZIP_PIECE_BYTES
    for size in (piece - 1, piece, piece + 1, 3 * piece):
        packed = compress(Codec.GZIP, bytes(size)) + compress(Codec.GZIP, TEXT)

        assert mapped(Codec.GZIP, packed, size + len(TEXT)) == bytes(size) + TEXT
        with pytest.raises(KafkaError, match="hold more than"):
            mapped(Codec.GZIP, packed, size + len(TEXT) - 1)


def test_codecs_without_a_name_are_refused() -> None:
    for codec in (5, 6, 7):
        assert refusal(codec, TEXT, MIB) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", COMPRESSING)
def test_every_prefix_is_refused(codec: Codec) -> None:
    packed = compress(codec, TEXT[:5000])
    for size in range(len(packed)):
        if codec is Codec.SNAPPY and size == 16:
            assert decompress(codec, packed[:16], limit=MIB) == b""
        else:
            assert refusal(codec, packed[:size], MIB) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", COMPRESSING)
def test_mutations_are_read_or_refused(codec: Codec) -> None:
    rng = random.Random(7)
    packed = compress(codec, TEXT[:5000])
    for _ in range(1500):
        damaged = bytearray(packed)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(rng.choice((24, len(damaged))))] = rng.randrange(256)
        try:
            plain = decompress(codec, damaged, limit=MIB)
        except KafkaError:
            refusal(codec, bytes(damaged), MIB)
            continue

        assert len(plain) <= MIB
        assert mapped(codec, damaged, MIB) == plain


@pytest.mark.parametrize("name", bombs.TOO_LARGE)
def test_a_bomb_is_too_large(name: str) -> None:
    codec, payload = bombs.TOO_LARGE[name]
    tracemalloc.start()
    try:
        code = refusal(codec, payload, 2 * MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert code is ErrorCode.MESSAGE_TOO_LARGE
    # The output up to the limit, and what is copied of the payload.
    assert peak < 5 * MIB + len(payload)


@pytest.mark.parametrize("name", bombs.LIARS)
def test_a_lie_about_a_size_makes_no_memory(name: str) -> None:
    codec, payload = bombs.LIARS[name]
    tracemalloc.start()
    try:
        code = refusal(codec, payload, 64 * MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert code is ErrorCode.CORRUPT_MESSAGE
    assert peak < MIB + 4 * len(payload)


MEASURE = """
import sys
from pathlib import Path
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.compression import decompress

def peak_kib():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])

payloads = [(int(path.name[0]), path.read_bytes()) for path in Path(sys.argv[1]).iterdir()]
before = peak_kib()
refused = 0
for codec, payload in payloads:
    try:
        decompress(codec, payload, limit=16 << 20)
    except KafkaError:
        refused += 1
print(refused, (peak_kib() - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_resident_memory_stays_near_the_limit(tmp_path: Path) -> None:
    """What the codecs' own libraries take is not traced, so a process of its own is measured."""
    payloads = [*bombs.TOO_LARGE.values(), *bombs.LIARS.values()]
    for index, (codec, payload) in enumerate(payloads):
        (tmp_path / f"{codec}-{index}").write_bytes(payload)
    result = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path)],
        cwd=Path(__file__).parent.parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    refused, growth_mib = map(int, result.stdout.split())

    assert refused == len(payloads)
    assert growth_mib < 64


def test_random_bytes_are_no_zlib_stream_either() -> None:
    with pytest.raises(KafkaError):
        decompress(Codec.GZIP, zlib.compress(TEXT), limit=MIB)
