"""The `ottla` command: a table of commands, each imported only when it is asked for."""

from __future__ import annotations

import errno
import gc
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple

from ottla.output import flush, tell

EX_USAGE = 64
EX_IOERR = 74
EX_CONFIG = 78
"""Exit statuses of sysexits.h; a service manager should not start a broker again after 78."""
WRITE_ERRORS = (errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC)
"""What a command may meet with its output; of files each tells by itself."""
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
        return _say(_help())
    if words[0] in ("--version", "version"):
        from ottla import __version__
        from ottla.compiled import build

        return _say(f"ottla {__version__} ({build()})")
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
        from click import Abort

        from ottla.config.types import ConfigError

        function = _imported(command.target)
    finally:
        gc.freeze()
        gc.enable()
    try:
        return int(function(arguments) or 0)
    except ConfigError as error:
        return _refuse(error.message, EX_CONFIG)
    except Abort:  # click's word for KeyboardInterrupt
        return INTERRUPTED
    except OSError as error:
        if error.errno not in WRITE_ERRORS:
            raise
        return _not_written(error)
    finally:
        flush(sys.stdout)


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
        tell(f"ottla: {line}", sys.stderr)
    return status


def _say(text: str) -> int:
    error = tell(text, sys.stdout)
    # Of a pipe who reads has seen enough.
    return 0 if error is None or isinstance(error, BrokenPipeError) else _not_written(error)


def _not_written(error: OSError | ValueError) -> int:
    return _refuse(f"the output cannot be written: {error}.", EX_IOERR)


if __name__ == "__main__":
    sys.exit(main())
