"""`ottla config`: every setting with its value, its origin, what it means, and whether it acts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from shutil import get_terminal_size

import click

from ottla.client.cli.addresses import ALLOWED, parse_address
from ottla.client.cli.running_config import Unanswered, ask_running
from ottla.config.broker import BrokerConfig
from ottla.config.catalogue import broker_keys, setting_key
from ottla.config.keys import Key, render
from ottla.config.load import Loaded, load
from ottla.config.topic import BROKER_KEY_OF, topic_defaults, topic_keys

HIDDEN = "(hidden)"
TABLE_COLUMNS_MIN = 120
"""A narrower terminal is shown the lines of a file: a table would break the keys."""
NOT_FOUND = 1
"""The status when no key fits the pattern, as grep's."""
UNAVAILABLE = 69
"""EX_UNAVAILABLE of sysexits.h."""
AT_A_START = (
    "this is what a start would take. Settings that were changed while a broker ran go before it:"
    " --bootstrap-server HOST:PORT shows them."
)


@dataclass(slots=True, frozen=True)
class Row:
    """One setting as it is shown."""

    scope: str
    name: str
    value: str | None
    origin: str
    acts: bool
    type: str
    allowed: str
    default: str | None
    dynamic: str
    sentence: str


def _addresses(
    _context: click.Context, _parameter: click.Parameter, servers: str | None
) -> list[tuple[str, int]] | None:
    """Host and port of each server of a list in Kafka's form."""
    if servers is None:
        return None
    found = []
    for server in filter(None, map(str.strip, servers.split(","))):
        address = parse_address(server)
        if address is None:
            raise click.BadParameter(f"{server}: {ALLOWED}, or several with commas between them.")
        found.append(address)
    if not found:
        raise click.BadParameter(f"{ALLOWED}, or several with commas between them.")
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("pattern", required=False)
@click.option("--config", "file", metavar="FILE", help="Read settings from a server.properties.")
@click.option(
    "--override", "overrides", metavar="KEY=VALUE", multiple=True, help="Set one key; repeatable."
)
@click.option(
    "--bootstrap-server",
    "addresses",
    metavar="HOST:PORT",
    callback=_addresses,
    help="Ask a running broker what is in force there instead; of HOST:PORT,HOST:PORT the first"
    " that answers.",
)
@click.option("--json", "as_json", is_flag=True, help="Write a JSON list.")
@click.option("--all", "everything", is_flag=True, help="Show Kafka's internal keys too.")
def command(
    pattern: str | None,
    file: str | None,
    overrides: tuple[str, ...],
    addresses: list[tuple[str, int]] | None,
    as_json: bool,
    everything: bool,
) -> int:
    """Show every setting: its value, where it comes from, what it means, whether it acts.

    PATTERN is a part of a name (retention), or a pattern (log.*.ms).

    Settings come from, weakest first: defaults, --config, the environment (KAFKA_ and the key in
    capitals with _ for a point: KAFKA_LOG_DIRS), --override. Kafka's keys that have no meaning
    here are accepted, and shown as such. Where the output is no terminal, or one of fewer than
    120 columns, it is a server.properties with comments.

    Shown is what a start would take. What was changed while the broker ran (kafka-configs.sh, or
    a client's IncrementalAlterConfigs) is in the cluster's metadata and goes before it:
    --bootstrap-server shows the settings in force with those changes, and the defaults that
    topics have by them. What one topic, group or client has set for itself is shown by
    kafka-configs.sh --describe.
    """
    if addresses is not None and (file is not None or overrides):
        raise click.UsageError("--bootstrap-server asks a broker, which has its own settings")
    try:
        loaded = ask_running(addresses) if addresses else load(file, overrides)
    except Unanswered as error:
        click.echo(f"ottla: {error}", err=True)
        return UNAVAILABLE
    known = list(_rows(loaded, everything))
    rows = [row for row in known if _matches(row.name, pattern)]
    if pattern is not None and not rows:
        internal = sum(_matches(row.name, pattern) for row in _rows(loaded, everything=True))
        click.echo(f"ottla: {_nothing_fits(pattern, known, internal)}", err=True)
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
    elif sys.stdout.isatty() and get_terminal_size().columns >= TABLE_COLUMNS_MIN:
        _show_table(rows)
    elif rows:
        click.echo("\n".join(_properties(rows)))
    if rows and addresses is None:
        # A person may take what is shown for a running broker's; a program asked for this.
        is_read_here = sys.stdout.isatty() and not as_json
        for note in (*loaded.notes, *((AT_A_START,) if is_read_here else ())):
            click.echo(f"ottla: {note}", err=True)
    return 0 if rows else NOT_FOUND


def main(arguments: Sequence[str]) -> int:
    """Runs the command; ConfigError goes to the caller."""
    try:
        status = command.main(list(arguments), prog_name="ottla config", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return int(status or 0)


def _rows(loaded: Loaded, everything: bool) -> Iterator[Row]:
    given = loaded.config.layers.effective()
    for name, key in _keys_shown(given).items():
        if key.internal and not everything and name not in given:
            continue
        origin = loaded.origins.get(name, "default")
        value = render(key.parse(given[name])) if name in given else key.default
        yield _row("broker", key, value, origin)
    defaults = topic_defaults(loaded.config)
    for name, key in sorted(topic_keys().items()):
        if not key.internal or everything:
            yield _row("topic", key, render(defaults[name]), _topic_origin(loaded.config, name))


def _keys_shown(given: Mapping[str, str]) -> dict[str, Key]:
    """Those of a server.properties, and what is set of a listener's own (listener.name.x.key) and
    of those that only a running broker has."""
    known = broker_keys()
    others = ((name, setting_key(name)) for name in given if name not in known)
    return {**known, **{name: key for name, key in others if key is not None}}


def _row(scope: str, key: Key, value: str | None, origin: str) -> Row:
    return Row(
        scope=scope,
        name=_printable(key.name),
        value=HIDDEN if key.sensitive and value else value,
        origin=origin,
        acts=key.acts and not _is_idle(key.name, value),
        type=key.type.name.lower(),
        allowed=key.allowed(),
        default=key.default,
        dynamic=key.dynamic.value,
        sentence=key.sentence,
    )


def _is_idle(name: str, value: str | None) -> bool:
    """Whether a key that acts has a value that does not: logs are not compacted."""
    return name.endswith("cleanup.policy") and "compact" in (value or "")


def _topic_origin(config: BrokerConfig, name: str) -> str:
    broker_key = BROKER_KEY_OF.get(name)
    return "default" if broker_key is None else f"broker: {broker_key}"


def _matches(name: str, pattern: str | None) -> bool:
    if pattern is None:
        return True
    return fnmatchcase(name, pattern) if "*" in pattern or "?" in pattern else pattern in name


def _nothing_fits(pattern: str, known: list[Row], internal: int) -> str:
    """What to ask instead; a key may have been spelled as an environment variable. `internal` is
    how many of Kafka's internal keys fit, which are not shown."""
    if internal:
        return f"{internal} of Kafka's internal settings fit {pattern}: add --all."
    sentence = f"no setting fits {pattern}."
    dotted = pattern.lower().removeprefix("kafka_").replace("_", ".")
    names = {row.name for row in known}
    words = {word for name in names for word in name.split(".")}
    near = [dotted] if dotted in names else get_close_matches(dotted, names | words, n=1)
    if near:
        sentence += f" Did you mean `ottla config {near[0]}`?"
    return sentence + " `ottla config` lists them all, with --all Kafka's internal ones too."


def _show_table(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for scope in ("broker", "topic"):
        chosen = [row for row in rows if row.scope == scope]
        if not chosen:
            continue
        table = Table(title=f"{scope} settings", title_justify="left", box=None, padding=(0, 1))
        for heading in ("key", "value", "origin", "acts", "meaning"):
            table.add_column(heading, overflow="fold", no_wrap=heading == "key")
        for row in chosen:
            style = "" if row.acts else "dim"
            acts = "yes" if row.acts else "no"
            cells = (row.name, _printable(row.value or ""), row.origin, acts, row.sentence)
            table.add_row(*map(Text, cells), style=style)
        console.print(table)


def _properties(rows: list[Row]) -> Iterator[str]:
    """The rows as a server.properties; what has no value, or is a topic's, is a comment."""
    for row in rows:
        effect = "" if row.acts else "; without effect here"
        yield f"# {row.sentence} ({row.origin}{effect})"
        if row.scope == "topic":
            yield f"# topic setting: {row.name}={_escaped(row.value or '')}"
        elif row.value is None or row.value == HIDDEN:
            yield f"#{row.name}="
        else:
            yield f"{row.name}={_escaped(row.value)}"


def _escaped(value: str) -> str:
    """As it stands in a .properties file: a backslash escapes there, and a value is one line."""
    return _printable(value.replace("\\", "\\\\"))


def _printable(value: str) -> str:
    """A client may have set it, and must not command the terminal."""
    return "".join(
        one if one.isprintable() or one > "\uffff" else f"\\u{ord(one):04x}" for one in value
    )
