"""Slices of files whose answers wait behind other answers of their connection."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.log.segment import FileSlice
from ottla.broker.posix import PosixDisk, PosixFile
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.share_group import ShareFetchRequest, ShareFetchResponse
from tests.network.served import Parked, serving

RECORDS = bytes(range(256)) * 400
FETCH_VERSION = 4


def opened(tmp_path: Path) -> PosixFile:
    path = tmp_path / "0.log"
    path.write_bytes(RECORDS)
    return PosixDisk().open(str(path))


def fetched(file: PosixFile) -> FetchResponse:
    part = FetchResponse.PartitionData(records=FileSlice(file, 0, len(RECORDS)))
    return FetchResponse(responses=[FetchResponse.FetchableTopicResponse("t", partitions=[part])])


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_file_that_is_closed_while_its_slice_waits_is_sent(
    tmp_path: Path, at_once: bool
) -> None:
    file, parked, fetches = opened(tmp_path), Parked(), Parked()

    def fetch(session: Any, request: Any, version: int) -> Any:
        pending = fetches(session, request, version)
        return fetched(file) if at_once else pending

    async with serving({ApiKey.METADATA: parked, ApiKey.FETCH: fetch}) as served:
        raw = await served.connect()
        raw.send(MetadataRequest(), 1, correlation_id=1)
        raw.send(FetchRequest(), FETCH_VERSION, correlation_id=2)
        await fetches.arrived.acquire()
        if not at_once:
            fetches.pending[0].complete(fetched(file))
        await asyncio.sleep(0)
        file.close()
        (tmp_path / "0.log").unlink()
        parked.pending[0].complete(MetadataResponse())

        assert await raw.correlation_id() == 1
        assert (await raw.frame()).endswith(RECORDS)
        assert file.fileno() == -1
        raw.close()


async def test_a_connection_that_ends_lets_go_of_what_waits(tmp_path: Path) -> None:
    file, parked = opened(tmp_path), Parked()

    def fetch(session: Any, request: Any, version: int) -> ShareFetchResponse:
        part = ShareFetchResponse.PartitionData(records=FileSlice(file, 0, len(RECORDS)))
        topic = ShareFetchResponse.ShareFetchableTopicResponse(partitions=[part])
        parked.arrived.release()
        return ShareFetchResponse(responses=[topic])

    async with serving({ApiKey.METADATA: parked, ApiKey.SHARE_FETCH: fetch}) as served:
        raw = await served.connect()
        raw.send(MetadataRequest(), 1)
        raw.send(ShareFetchRequest(), 1)
        for _ in range(2):
            await parked.arrived.acquire()
        await asyncio.sleep(0)
        file.close()
        assert file.fileno() >= 0
        raw.writer.transport.abort()
        async with asyncio.timeout(10):
            while served.server.connections:
                await asyncio.sleep(0)

        assert file.fileno() == -1
