"""Log lines as an operator and a log collector see them."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from ottla.broker.ports import Events
from ottla.broker.telemetry.logs import FIELD_CHARS_MAX, open_log, quiet_logger


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class BrokenPipe(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_events_are_json_where_nobody_looks() -> None:
    stream = io.StringIO()
    log: Events = open_log(stream=stream)

    log.info("isr_shrunk", partition="orders-3", removed=[2], path=b"/d")

    (line,) = lines(stream)
    assert list(line)[:3] == ["timestamp", "level", "event"]
    assert str(line.pop("timestamp")).endswith("Z")
    assert line == {
        "level": "info",
        "event": "isr_shrunk",
        "partition": "orders-3",
        "removed": [2],
        "path": "b'/d'",
    }


def test_what_clients_made_long_is_cut() -> None:
    stream = io.StringIO()
    open_log(stream=stream).info("topic_auto_created", topic="t", client_id="c" * 32767)

    (line,) = lines(stream)
    assert line["client_id"] == "c" * FIELD_CHARS_MAX + "..."


def test_events_are_plain_lines_in_a_terminal() -> None:
    stream = Terminal()

    open_log(stream=stream).warning("disk_full", dir="/d")

    assert "disk_full" in stream.getvalue()
    assert "\x1b[" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_a_clients_words_do_not_command_the_terminal() -> None:
    stream = io.StringIO()
    log = open_log(form="console", stream=stream)

    log.info("topic_created", client_id="\x1b[2J\x9b1m\u202e", more=["\x1b"], topic="caf\u00e9")

    (line,) = stream.getvalue().splitlines()
    assert line.isprintable()
    assert "client_id=\\x1b[2J\\x9b1m\\u202e" in line
    assert "topic=caf\u00e9" in line


def test_the_form_can_be_chosen() -> None:
    json_stream, console_stream = Terminal(), io.StringIO()

    open_log(form="json", stream=json_stream).info("a")
    open_log(form="console", stream=console_stream).info("a")

    assert lines(json_stream)[0]["event"] == "a"
    assert "\x1b[" not in console_stream.getvalue()


def test_only_events_of_the_level_are_written() -> None:
    stream = io.StringIO()
    log = open_log(level="warning", stream=stream)

    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")

    assert [line["event"] for line in lines(stream)] == ["c", "d"]


def test_a_broker_in_a_program_is_quiet_while_all_is_well(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = quiet_logger()
    log.info("started")
    log.warning("disk_full")

    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == [
        "disk_full"
    ]


def test_bound_fields_stand_in_every_event() -> None:
    stream = io.StringIO()
    log = open_log(level="debug", stream=stream).bind(node=1).bind(peer="x")

    log.debug("a", offset=5)

    line = lines(stream)[0]
    assert (line["node"], line["peer"], line["offset"]) == (1, "x", 5)


def test_an_exception_is_told_with_its_traceback() -> None:
    stream = io.StringIO()
    log = open_log(stream=stream)
    try:
        raise OSError("disk")
    except OSError:
        log.error("sync_failed", exc_info=True)

    assert "OSError: disk" in str(lines(stream)[0]["exception"])


def test_a_broken_stream_costs_lines_and_nothing_else() -> None:
    log = open_log(stream=BrokenPipe())

    log.info("a")
    log.error("b")

    assert log.lost_lines == 2


def test_structlog_is_not_imported_before_the_first_line() -> None:
    program = (
        "import sys; from ottla.broker.telemetry.logs import open_log;"
        "open_log().debug('quiet'); sys.exit('structlog' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
