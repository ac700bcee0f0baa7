"""The `ottla` command: a table of commands, each imported only when it is asked for."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple, TextIO

EX_USAGE = 64
EX_CONFIG = 78
"""Exit statuses of sysexits.h; a service manager should not start a broker again after 78."""
INTERRUPTED = 130
"""What a shell answers for a command that Ctrl-C ended."""


class Command(NamedTuple):
    """`target` is module:function; the function takes the arguments, and returns a status."""

    target: str
    sentence: str


COMMANDS = {
    "serve": Command("ottla.broker.serve:main", "Run a broker; needs no configuration."),
    "config": Command(
        "ottla.client.cli.config:main", "Show every setting: value, origin, meaning."
    ),
    "group": Command("ottla.client.cli.group:main", "Tell what happened to a group, and why."),
    "log": Command(
        "ottla.broker.log.__main__:main", "Dump, verify or repair the files of a data directory."
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the process's exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if sys.flags.optimize:
        return _refuse("do not run Ottla under python -O: its own checks would be gone.", EX_USAGE)
    if not words or words[0] in ("--help", "-h", "help"):
        _say(sys.stdout, _help())
        return 0
    if words[0] in ("--version", "version"):
        from ottla import __version__
        from ottla.compiled import build

        _say(sys.stdout, f"ottla {__version__} ({build()})")
        return 0
    command = COMMANDS.get(words[0])
    if command is None:
        return _refuse(_unknown(words[0]), EX_USAGE)
    try:
        return _run(command, words[1:])
    except KeyboardInterrupt:  # before the broker takes the signal itself, most often in an import
        return INTERRUPTED


def _run(command: Command, arguments: list[str]) -> int:
    # Nothing that an import makes is garbage; looking for some took a tenth of a broker's start.
    gc.disable()
    try:
        from ottla.config.types import ConfigError

        function = _imported(command.target)
    finally:
        gc.freeze()
        gc.enable()
    try:
        return int(function(arguments) or 0)
    except ConfigError as error:
        return _refuse(error.message, EX_CONFIG)


def _imported(target: str) -> Callable[[list[str]], int | None]:
    module, _, name = target.partition(":")
    function: Callable[[list[str]], int | None] = getattr(import_module(module), name)
    return function


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  ottla {name:<{width}}  {one.sentence}" for name, one in COMMANDS.items()]
    return "\n".join(
        [
            "Ottla is a Kafka-compatible broker: Kafka's protocol, Kafka's files, one command.",
            "",
            *lines,
            f"  ottla {'--version':<{width}}",
            "",
            "`ottla COMMAND --help` tells more. To try it:",
            "  ottla serve",
            "and then, with any Kafka client, connect to localhost:9092.",
        ]
    )


def _unknown(word: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, COMMANDS, n=1)
    hint = f" Did you mean `ottla {near[0]}`?" if near else ""
    return f"there is no command {word}.{hint} Commands: {', '.join(COMMANDS)}."


def _refuse(sentence: str, status: int) -> int:
    for line in sentence.splitlines():
        _say(sys.stderr, f"ottla: {line}")
    return status


def _say(stream: TextIO, text: str) -> None:
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:  # who reads has seen enough; the interpreter must not try again
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
