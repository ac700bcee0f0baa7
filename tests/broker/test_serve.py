"""`ottla serve` as a person starts it: what is said when it cannot."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ottla.broker import serve


def test_a_taken_port_is_named_with_who_may_have_it_and_the_ways_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = [f"listeners=PLAINTEXT://127.0.0.1:{port}", f"log.dirs={tmp_path}/data"]
        arguments = [word for one in settings for word in ("--override", one)]
        status = serve.main([*arguments, "--override", "ottla.telemetry.port=-1"])

    assert status == serve.EX_UNAVAILABLE
    assert capsys.readouterr().err == (
        f"ottla: cannot listen on 127.0.0.1:{port}: Address already in use. Another broker may have"
        " the port, Ottla or Kafka; `ss -ltnp` names who has. Stop that one, or choose another"
        " port: listeners=PLAINTEXT://localhost:9192.\n"
    )
    assert not (tmp_path / "data").exists()
