"""`preallocate`: a segment's file has its full size while it is written, and no longer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from tests.log.logs import DIRECTORY, RELAXED, append, flush, new_disk, offsets, open_log

CONFIG = replace(RELAXED, preallocate=True)


def sizes(disk_names: list[str]) -> list[str]:
    return [f"{DIRECTORY}/{name}" for name in disk_names if name.endswith(".log")]


def test_only_the_active_segment_has_its_full_size() -> None:
    disk = new_disk()
    log = open_log(disk, CONFIG)
    assert disk.open(f"{DIRECTORY}/{0:020d}.log").size() == CONFIG.segment_bytes
    while len(log.segments) < 3:
        append(log)
    *sealed, active = sizes(disk.list(DIRECTORY))

    assert disk.open(active).size() == CONFIG.segment_bytes
    assert [disk.open(path).size() for path in sealed] == [
        segment.size for segment in log.segments[:-1]
    ]
    assert sum(segment.size for segment in log.segments) == log.size_bytes
    flush(log)
    log.close()
    assert disk.open(active).size() == log.segments.active.size


def test_the_smallest_segment_is_made_and_takes_no_batch() -> None:
    disk = new_disk()
    log = open_log(disk, replace(CONFIG, segment_bytes=1))
    with pytest.raises(KafkaError) as caught:
        append(log)

    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    log.close()
    assert open_log(disk, log.config).recovery.clean


def test_the_end_is_found_after_a_clean_stop() -> None:
    disk = new_disk()
    log = open_log(disk, CONFIG)
    for _ in range(3):
        append(log)
    log.close()
    log = open_log(disk, CONFIG, high_watermark=3)

    assert log.recovery.clean
    assert append(log) == 3
    assert offsets(log) == [0, 1, 2]


def test_the_end_is_found_after_a_crash() -> None:
    disk = new_disk()
    log = open_log(disk, CONFIG)
    for _ in range(3):
        append(log)
    flush(log)
    log = open_log(disk, CONFIG, clean=False, recovery_point=3, high_watermark=3)

    assert log.log_end_offset == 3
    assert log.recovery.kept_aside == []
    assert log.recovery.damaged == []
    assert append(log) == 3
    assert [segment.base_offset for segment in log.segments] == [0]
