"""Is this broker ready: would a write with acks=all be answered now?

Ready means registered and in service, and a log dir in which a write and its sync succeed. The
probe writes a file of its own, because a topic for it would show to every client.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from ottla.broker.handlers.context import Rooms
from ottla.broker.ports import Disk

PROBE_FILE = ".ottla-probe"


class Readiness:
    def __init__(self, rooms: Rooms, disk: Disk, workers: Executor) -> None:
        self._rooms = rooms
        self._disk = disk
        self._workers = workers
        self._one_at_a_time = asyncio.Lock()

    async def unready(self) -> str | None:
        """Why a write would not be answered; None if it would."""
        rooms = self._rooms
        if not rooms.image.is_active(rooms.config.node_id):
            return "the broker is not in service yet"
        online = [path for path in rooms.logs.dirs if path not in rooms.logs.offline_dirs]
        if not online:
            return "no log dir is online"
        for path in online:  # records may need more room than the probe
            if path in rooms.reserves.short:
                return f"{path} is full: clients' records are refused there"
            if (error := rooms.logs.faults.refused_lately(path)) is not None:
                return f"{path} refused a write a moment ago: {error}"
        loop = asyncio.get_running_loop()
        try:
            async with self._one_at_a_time:
                for path in online:
                    await loop.run_in_executor(self._workers, self._write, f"{path}/{PROBE_FILE}")
        except OSError as error:
            return f"a write to a log dir failed: {error}"
        return None

    def _write(self, path: str) -> None:
        file = self._disk.open(path, create=True)
        try:
            file.pwrite(b"ready?", 0)
            file.sync()
        finally:
            file.close()
        self._disk.remove(path)
