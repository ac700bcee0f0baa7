"""`ottla group why GROUP`: what the broker did to a group, and its reasons.

It asks the telemetry port of a running broker, which remembers the newest events since its start.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import urlopen

import click

DEFAULT_TELEMETRY = "127.0.0.1:9464"
ANSWER_SECONDS_MAX = 10.0
NOT_FOUND = 1
UNAVAILABLE = 69
"""EX_UNAVAILABLE of sysexits.h."""
OWN_FIELDS = ("wall_ms", "event", "group", "reason")
MS_PER_S = 1000


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Tell what happened to a group."""


@command.command(short_help="Print each event of GROUP, with its reason.")
@click.argument("group")
@click.option(
    "--telemetry",
    metavar="HOST:PORT",
    default=DEFAULT_TELEMETRY,
    show_default=True,
    help="The broker's ottla.telemetry.host and port; a URL with them does, too.",
)
def why(group: str, telemetry: str) -> int:
    """Print each rebalance, eviction, fencing and offset reset of GROUP, and each new member
    of a classic one, with its reason.

    A running broker is asked, which remembers the newest events since its start.
    """
    address = _address(telemetry)
    try:
        events = _events(address, group)
    except (OSError, HTTPException, ValueError) as error:
        cause = error.reason if isinstance(error, URLError) else error
        if isinstance(error, HTTPError | HTTPException | ValueError):
            cause = "what answers is no broker's telemetry"
        click.echo(
            f"ottla: no broker answers on {address}: {cause}. Name the broker's"
            " ottla.telemetry.host and port by --telemetry; its start-up lines say them.",
            err=True,
        )
        return UNAVAILABLE
    for event in events:
        click.echo(_line(event))
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


def _address(telemetry: str) -> str:
    """http://HOST:PORT of what a person may have copied from the start-up lines."""
    return "http://" + telemetry.removeprefix("http://").partition("/")[0]


def _events(address: str, group: str) -> list[dict[str, Any]]:
    url = f"{address}/events?group={quote(group, safe='')}"
    with urlopen(url, timeout=ANSWER_SECONDS_MAX) as answer:
        return [json.loads(line) for line in answer.read().splitlines()]


def _line(event: dict[str, Any]) -> str:
    moment = datetime.fromtimestamp(event["wall_ms"] / MS_PER_S)
    shown = " ".join(
        f"{name}={value}"
        for name, value in event.items()
        if name not in OWN_FIELDS and value is not None
    )
    time = moment.isoformat(sep=" ", timespec="milliseconds")
    line = f"{time}  {event['event']}: {event['reason']}  {shown}".rstrip()
    # Reasons and ids are a client's own text, which must not command the terminal.
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in line)
