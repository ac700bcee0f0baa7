"""`ottla group why GROUP`: what the broker did to a group, and its reasons.

It asks the telemetry port of a running broker, which remembers the newest events since its start.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from http.client import OK, REQUEST_HEADER_FIELDS_TOO_LARGE, HTTPConnection, HTTPException
from typing import Any
from urllib.parse import quote

import click

from ottla.client.cli.addresses import ALLOWED, parse_address, parse_port
from ottla.config.types import written

OWN_HOST = "127.0.0.1"
DEFAULT_TELEMETRY = f"{OWN_HOST}:9464"
ANSWER_SECONDS_MAX = 10.0
NOT_FOUND = 1
UNAVAILABLE = 69
"""EX_UNAVAILABLE of sysexits.h."""
OWN_FIELDS = ("wall_ms", "event", "group", "reason")
MS_PER_S = 1000


def _address(
    _context: click.Context, _parameter: click.Parameter, telemetry: str
) -> tuple[str, int]:
    """Host and port of what a person may have copied from the start-up lines."""
    stated = telemetry.strip().removeprefix("http://").partition("/")[0]
    port = parse_port(telemetry.strip())
    address = parse_address(stated) if port is None else (OWN_HOST, port)
    if address is None:
        raise click.BadParameter(
            f"{telemetry}: {ALLOWED}, http://HOST:PORT, or a port of this machine."
        )
    return address


def _group(_context: click.Context, _parameter: click.Parameter, group: str) -> str:
    """A name that a group can have; what is no UTF-8 comes with surrogates."""
    try:
        group.encode()
    except UnicodeEncodeError as error:
        raise click.BadParameter("the name of a group is UTF-8.") from error
    return group


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Tell what happened to a group."""


@command.command(short_help="Print each event of GROUP, with its reason.")
@click.argument("group", callback=_group)
@click.option(
    "--telemetry",
    metavar="HOST:PORT",
    default=DEFAULT_TELEMETRY,
    show_default=True,
    callback=_address,
    help="The broker's ottla.telemetry.host and port; a URL with them does, too, and PORT alone is"
    " one of this machine. It is asked directly, whatever proxies are set.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object a line.")
def why(group: str, telemetry: tuple[str, int], as_json: bool) -> int:
    """Print each rebalance, eviction, fencing and offset reset of GROUP, and each new member
    of a classic one, with its reason.

    A running broker is asked, which remembers the newest events since its start. Times are UTC,
    as in its log; `wall_ms` of --json is milliseconds since 1970.
    """
    host, port = telemetry
    try:
        events = _events(host, port, group)
    except (OSError, HTTPException, ValueError) as error:
        is_foreign = isinstance(error, HTTPException | ValueError)
        cause = "what answers is no broker's telemetry" if is_foreign else error
        click.echo(
            f"ottla: no broker answers on http://{written(host, port)}: {cause}. Name the broker's"
            " ottla.telemetry.host and port by --telemetry; its start-up lines say them.",
            err=True,
        )
        return UNAVAILABLE
    for event in events:
        click.echo(json.dumps(event) if as_json else _line(event))
    if not events:
        click.echo(
            f"ottla: the broker remembers nothing of a group {group!r} since its start.", err=True
        )
        return NOT_FOUND
    return 0


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns the process's exit status."""
    try:
        status = command.main(list(arguments), prog_name="ottla group", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return int(status or 0)


def _events(host: str, port: int, group: str) -> list[dict[str, Any]]:
    path = f"/events?group={quote(group, safe='')}"
    connection = HTTPConnection(host, port, timeout=ANSWER_SECONDS_MAX)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.status == REQUEST_HEADER_FIELDS_TOO_LARGE:
            raise click.BadParameter(
                f"the name is too long to be asked for, {len(path)} characters with its escapes."
                " Without GROUP, /events tells of all groups.",
                param_hint="GROUP",
            )
        if answer.status != OK:
            raise HTTPException(answer.reason)
        return [json.loads(line) for line in answer.read().splitlines()]
    finally:
        connection.close()


def _line(event: dict[str, Any]) -> str:
    moment = datetime.fromtimestamp(event["wall_ms"] / MS_PER_S, UTC).replace(tzinfo=None)
    shown = " ".join(
        f"{name}={value}"
        for name, value in event.items()
        if name not in OWN_FIELDS and value is not None
    )
    time = moment.isoformat(timespec="milliseconds")
    line = f"{time}Z  {event['event']}: {event['reason']}  {shown}".rstrip()
    # Reasons and ids are a client's own text, which must not command the terminal.
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in line)
