"""`ottla log`: the files of a data directory, dumped, verified and repaired.

The shell of `examine`, which knows the files; here are arguments, output and the lock.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from ottla.broker.log.checkpoints import parent_of
from ottla.broker.log.directories import LOCK_FILE, parse_name
from ottla.broker.log.examine.dump import dump_file
from ottla.broker.log.examine.files import (
    LOG_DIR_KINDS,
    PARTITION_KINDS,
    FileKind,
    find_files,
    holds,
)
from ottla.broker.log.examine.findings import Finding, Fix
from ottla.broker.log.examine.metadata import without_losses, without_marker
from ottla.broker.log.examine.partition import PartitionFacts
from ottla.broker.log.examine.repair import Repair, sentence_of
from ottla.broker.log.examine.verify import verify_path
from ottla.broker.ports import ERROR, Disk
from ottla.broker.posix import PosixDisk, ReadOnlyDisk
from ottla.config.types import LogConfig

FOUND = 1
"""The status when something is not as it has to be, as grep's and diff's."""
CANNOT = 2
"""The status when a path cannot be read, or is in use."""

Progress = Callable[[int], None]


def _of_the_format(
    _context: click.Context, _parameter: click.Parameter, paths: tuple[str, ...]
) -> tuple[str, ...]:
    """The paths, if each holds something: who mistypes one is not told that all is well."""
    paths = tuple(map(_with_names, paths))
    for path in paths:
        if not any(find_files(ReadOnlyDisk(), path)):
            raise click.UsageError(
                f"{path} holds no file of the format: name a log dir, or a partition's directory."
                if os.path.isdir(path)
                else f"{path} is no file of the format, by its name."
            )
    return paths


def _with_names(path: str) -> str:
    """The path as findings spell it, absolute where it does not name its directory: by that name
    the topic is known."""
    if os.pardir in path.split(os.sep):
        path = os.path.realpath(path)  # behind a link it is the parent of what the link names
    path = os.path.normpath(path)
    directory = path if os.path.isdir(path) else os.path.dirname(path)
    is_named = os.path.basename(directory) not in ("", os.curdir, os.pardir)
    return path if is_named else os.path.abspath(path)


PATHS = click.argument(
    "paths",
    nargs=-1,
    required=True,
    type=click.Path(exists=True),
    callback=_of_the_format,
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write one JSON object a line.")
SETTINGS = {"help_option_names": ["-h", "--help"]}


class _Cannot(click.ClickException):
    exit_code = CANNOT


class _Commands(click.Group):
    """Who reads a dump may have seen enough: that is no error, and click makes it status 1, which
    here means damage. What `verify` and `repair` do they do to the end, see `_tell`."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except BrokenPipeError as error:
            if error.filename is not None:
                raise
            _write_no_more()
            return 0 if context.invoked_subcommand == "dump" else CANNOT


@click.group(cls=_Commands, context_settings=SETTINGS)
def command() -> None:
    """Dump, verify or repair the files of a data directory, Ottla's or Apache Kafka's.

    PATHS are files (00000000000000000000.log, .index, .timeindex, .txnindex, .snapshot,
    leader-epoch-checkpoint, *-offset-checkpoint, meta.properties, partition.metadata,
    recovery-waypoint, quorum-state, .checkpoint), a partition's directory, or a whole log dir.
    A partition's directory may be a copy of any name; by topic-N the records of the broker's own
    topics are known.
    Dump and verify only read, and may look at a running broker's files.

    \b
    Examples:
      ottla log dump ottla-data/orders-0/00000000000000000000.log
      ottla log dump --deep ottla-data/__cluster_metadata-0
      ottla log dump --deep --json ottla-data/orders-0 | jq -r 'select(.key) | .key'
      ottla log verify ottla-data && echo all is well
      ottla log repair --dry-run ottla-data/orders-0
    """


@command.command(context_settings=SETTINGS)
@PATHS
@click.option("--deep", is_flag=True, help="Each record too: key, value, headers, control records.")
@AS_JSON
def dump(paths: tuple[str, ...], deep: bool, as_json: bool) -> int:
    """Write what the files hold: a line for each batch, entry or row.

    Records of the broker's own topics are decoded: __cluster_metadata, __consumer_offsets,
    __transaction_state, __share_group_state. Damage is a line, and the dump goes on behind it;
    the status is then 1.

    \b
    Examples:
      ottla log dump ottla-data/orders-0
      ottla log dump --deep --json ottla-data/__cluster_metadata-0 | grep TopicRecord
    """
    disk = ReadOnlyDisk()
    damaged = False
    with _progress(disk, paths, shown=not sys.stdout.isatty()) as advance:
        done = 0
        for path in paths:
            for file in find_files(disk, path):
                if not as_json:
                    click.echo(f"{file.path} ({file.kind.value})")
                last = 0

                def tell(read: int, before: int = done) -> None:
                    nonlocal last
                    last = read
                    advance(before + read)

                for row in dump_file(disk, file, deep=deep, progress=tell):
                    damaged = damaged or bool({"damage", "malformed"} & row.keys())
                    click.echo(_json({"file": file.path} | row) if as_json else _line(row))
                done += last
    return FOUND if damaged else 0


@command.command(
    context_settings=SETTINGS, short_help="Check CRCs, offsets, indexes, epochs, snapshots."
)
@PATHS
@click.option("--deep", is_flag=True, help="Decompress and read every record, too.")
@AS_JSON
def verify(paths: tuple[str, ...], deep: bool, as_json: bool) -> int:
    """Check CRCs, offsets, lengths, indexes against the log, epochs, snapshots, checkpoints.

    Writes a sentence for each finding, with the file, the byte, and what to do about it. The
    status is 0 where all is well, 1 where something was found, 2 where a path cannot be read.

    \b
    Examples:
      ottla log verify ottla-data
      ottla log verify --json ottla-data/orders-0 | jq .what
    """
    findings: list[Finding] = []
    partitions = size = 0
    disk = ReadOnlyDisk()
    with _progress(disk, paths, shown=True) as advance:
        for found in _verified(disk, paths, deep, advance):
            for finding in found.findings if isinstance(found, PartitionFacts) else [found]:
                findings.append(finding)
                _tell(_json(_finding(finding)) if as_json else str(finding))
            if isinstance(found, PartitionFacts):
                partitions += 1
                size += sum(one.size for one in found.segments)
    if not as_json:
        read, found_in_all = _many(partitions, "partition"), _many(len(findings), "finding")
        _tell(f"{read}, {size} bytes of log, {found_in_all}.")
    return FOUND if findings else 0


@command.command(context_settings=SETTINGS)
@PATHS
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@AS_JSON
def repair(paths: tuple[str, ...], dry_run: bool, as_json: bool) -> int:
    """Mend what `verify` finds, as far as the files themselves allow. No broker may be running.

    Indexes and leader epochs are made anew from the log; a snapshot that is not sound is removed,
    and the next start makes it anew. A bad tail is cut off, a bad range within a log is taken out
    of it; the bytes are kept beside it as N.POSITION.cut, and records that can be read are never
    touched. What a start refuses to lose of the metadata log is given up only where its directory,
    __cluster_metadata-0, is the one path that is named. The status is 1 if something is left that
    no repair can mend, and 2 if nothing could be done, as while a broker runs.

    \b
    Examples:
      ottla log repair --dry-run ottla-data
      ottla log repair ottla-data/orders-0
    """
    reading, disk = ReadOnlyDisk(), PosixDisk()
    mender = Repair(disk, LogConfig(), _Told(), now_ms=time.time_ns() // 1_000_000)
    left = planned = 0
    with _locked(disk, paths, dry_run=dry_run), _progress(reading, paths, shown=True) as advance:
        for found in _to_mend(reading, paths, advance):
            findings = _mendable(reading, found, paths)
            for finding in findings:
                if finding.fix is Fix.NOTHING:
                    left += 1
                    _tell(_json(_finding(finding)) if as_json else f"left: {finding}")
                    continue
                planned += 1
                sentence = sentence_of(finding)
                said = {"dry_run": dry_run, "does": sentence} | _finding(finding)
                _tell(_json(said) if as_json else ("would: " if dry_run else "") + sentence)
            if not dry_run and isinstance(found, PartitionFacts):
                found.findings = findings
                mender.partition(found, _names_of(found.directory))
            elif not dry_run:
                mender.file(findings[0])
    if not as_json and not planned and not left:
        _tell("Nothing to repair.")
    return FOUND if left else 0


def main(arguments: Sequence[str]) -> int:
    """Runs the command; its status."""
    try:
        status = command.main(list(arguments), prog_name="ottla log", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except OSError as error:
        click.echo(f"ottla: {error}", err=True)
        return CANNOT
    return int(status or 0)


def _tell(text: str) -> None:
    """A line of output, or nothing where whoever reads has seen enough: the work goes on."""
    try:
        click.echo(text)
    except BrokenPipeError:
        _write_no_more()


def _write_no_more() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Told:
    """Events of a repair. What it does stands in its sentences; only what goes wrong is told."""

    def is_enabled_for(self, level: int) -> bool:
        return level >= ERROR

    def debug(self, event: str, **fields: Any) -> None: ...

    info = warning = debug

    def error(self, event: str, **fields: Any) -> None:
        click.echo(f"ottla: {fields.get('reason', event)}", err=True)


def _verified(
    disk: Disk, paths: tuple[str, ...], deep: bool, advance: Progress
) -> Iterator[PartitionFacts | Finding]:
    """Verifies each path; of a file within a partition only what concerns that file is told."""
    for path in paths:
        for found in verify_path(disk, path, deep=deep, progress=advance):
            if isinstance(found, PartitionFacts) and not os.path.isdir(path):
                found.findings = [one for one in found.findings if one.path == path]
            yield found


def _to_mend(
    disk: Disk, paths: tuple[str, ...], advance: Progress
) -> Iterator[PartitionFacts | Finding]:
    """What is found at each path once those before it are mended: one may lie in another."""
    for path in paths:
        verified = list(_verified(disk, (path,), False, advance))
        # Files first: the repair of a partition may write one anew that is to be set aside.
        yield from sorted(verified, key=lambda one: isinstance(one, PartitionFacts))


def _mendable(disk: Disk, found: PartitionFacts | Finding, paths: tuple[str, ...]) -> list[Finding]:
    """What was found, and may be mended of it: what a start refuses to lose of the metadata log
    is given up by who names its directory, and nothing in passing."""
    if not isinstance(found, PartitionFacts):
        return [without_marker(disk, found)]
    is_named = paths == (found.directory,)
    log_dirs = map(parent_of, _names_of(found.directory))
    return without_losses(disk, found.directory, found.findings, log_dirs, is_named=is_named)


def _names_of(directory: str) -> list[str]:
    """The paths by which a broker may find a partition: its own, and that behind a link."""
    return sorted({os.path.abspath(directory), os.path.realpath(directory)})


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "file": finding.path,
        "position": finding.position,
        "what": finding.what,
        "remedy": finding.remedy,
        "fix": finding.fix.name.lower(),
        "gives_up": finding.gives_up or None,
        "keeps": finding.keeps or None,
    }


def _line(row: dict[str, Any]) -> str:
    return "  " + " ".join(
        f"{name}: {_json(value) if _is_quoted(value) else value}" for name, value in row.items()
    )


def _is_quoted(value: object) -> bool:
    """Whether it could be taken for something else as it is: for None, or for more of the line."""
    if isinstance(value, str):
        is_like_another = value == "None" or value.startswith('"') or ": " in value
        return is_like_another or not value.isprintable()
    return isinstance(value, dict | list)


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _json(row: object) -> str:
    return json.dumps(row, separators=(",", ":"))


@contextmanager
def _locked(disk: Disk, paths: tuple[str, ...], *, dry_run: bool) -> Iterator[None]:
    """Keeps brokers out of the log dirs of the paths. A dry run writes nothing, no lock either."""
    locks = []
    try:
        for log_dir in _log_dirs(disk, paths):
            path = f"{log_dir}/{LOCK_FILE}"
            if dry_run and not disk.exists(path):
                continue
            try:
                locks.append(disk.lock(path))
            except BlockingIOError as error:
                raise _Cannot(
                    f"{log_dir} is in use by {error.strerror}: stop it first. `ottla log verify`"
                    " may be run meanwhile."
                ) from error
            except OSError as error:
                if dry_run and error.errno in (errno.EROFS, errno.EACCES):
                    continue  # no broker writes here either
                raise _Cannot(
                    f"{log_dir} cannot be locked, as a repair has to: {error.strerror}"
                ) from error
        yield
    finally:
        for lock in locks:
            lock.close()


def _log_dirs(disk: Disk, paths: tuple[str, ...]) -> dict[str, None]:
    """The log dirs whose brokers may have files at the paths open, by their name or by a link."""
    found: dict[str, None] = {}
    for path in paths:
        for one in (os.path.abspath(path), os.path.realpath(path)):
            found |= dict.fromkeys(map(os.path.realpath, _log_dirs_of(disk, one)))
    return found


def _log_dirs_of(disk: Disk, path: str) -> Iterator[str]:
    """A log dir's own path, or the parent of a partition's directory. No broker opens one that is
    not named topic-N, but its parent's marker of a clean stop goes where its log is cut."""
    directory = path if os.path.isdir(path) else parent_of(path)
    is_named = parse_name(directory.rpartition("/")[2]) is not None
    is_log_dir = holds(disk, directory, LOG_DIR_KINDS)
    is_partition = holds(disk, directory, PARTITION_KINDS) or (is_named and not is_log_dir)
    if is_log_dir or not is_partition:
        yield directory
    parent = parent_of(directory)
    if is_partition and (is_named or holds(disk, parent, LOG_DIR_KINDS)):
        yield parent


@contextmanager
def _progress(disk: Disk, paths: tuple[str, ...], *, shown: bool) -> Iterator[Progress]:
    """A bar over all bytes of the logs, on a terminal and only there."""
    if not shown or not sys.stderr.isatty():
        yield lambda read: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    files = [file for path in paths for file in find_files(disk, path)]
    total = sum(os.path.getsize(file.path) for file in files if file.kind is FileKind.LOG)
    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda read: bar.update(task, completed=read)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
