"""Keeps open the files whose slices an answer carries, while it waits behind other answers.

What is sent at once needs no pin: the outbox takes its own when it is given a slice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.broker.log.segment import FileSlice
from ottla.broker.ports import File
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.share_group import ShareFetchResponse

_FETCHED = (FetchResponse, ShareFetchResponse)


def pinned_files(response: Any) -> list[File]:
    """The files of a response's slices, each pinned as often as it is there; for `unpin`."""
    if type(response) not in _FETCHED:
        return []
    files = [
        part.records.file
        for topic in response.responses
        for part in topic.partitions
        if type(part.records) is FileSlice
    ]
    for file in files:
        file.pin()
    return files


def unpin(files: Iterable[File]) -> None:
    for file in files:
        file.unpin()
