"""What is measured of a broker that is gone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.peers.servers import Server, ServerEnded


class Brief(Server):
    """Ends by itself, with a complaint."""

    name = "Brief"

    def command(self) -> list[str]:
        return [sys.executable, "-c", "print('no more room'); raise SystemExit(3)"]


def test_what_has_ended_takes_no_memory_and_no_time_but_is_an_error(tmp_path: Path) -> None:
    server = Brief(tmp_path)
    server.spawn()
    assert server.process is not None
    server.process.wait(20)

    for figure in (server.resident_mb, server.cpu_seconds):
        with pytest.raises(ServerEnded, match=r"(?s)Brief has ended with status 3:.*no more room"):
            figure()
    server.close()
