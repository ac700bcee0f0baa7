"""The metadata log, verified and repaired: a start refuses to lose what was acknowledged there.

By what it refuses (`soundness.py`) nobody else may take away: bad batches, the snapshot at the end
of a clean stop, the mark of that stop. A repair of a log dir, or of other partitions in it, leaves
them. Only who names the directory of the metadata log, and nothing else, gives up what is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ottla.broker.log.checkpoints import CLEAN_SHUTDOWN_FILE, parent_of
from ottla.broker.log.directories import METADATA_TOPIC, partition_name
from ottla.broker.log.examine.findings import Finding, Fix
from ottla.broker.log.soundness import MetadataLost, check_whole
from ottla.broker.ports import Disk

METADATA_DIRECTORY: Final = partition_name(METADATA_TOPIC, 0)

_CUTS = (Fix.CUT_TAIL, Fix.TAKE_OUT)
_GIVES_UP = (*_CUTS, Fix.REMOVE_SNAPSHOT, Fix.GIVE_UP)


def with_refusal(disk: Disk, directory: str, findings: list[Finding]) -> list[Finding]:
    """The findings of a partition; of a metadata log that a start refuses they say so. Raises
    OSError."""
    lost = _lost_in(disk, directory)
    if lost is None:
        return findings
    refusal = Finding(
        directory,
        f"the next start refuses it: {str(lost).removesuffix('.')}",
        "Topics that are created by what is lost are set aside (-stray) once it is given up.",
        fix=Fix.GIVE_UP if lost.by_repair else Fix.NOTHING,
        gives_up="topics, settings and producer ids of what is lost",
    )
    remedy = (
        "The next start refuses to lose it: take it from a copy. `ottla log repair` gives it up"
        f" where {directory} is the one path that it is given, and else leaves it."
    )
    return [
        refusal,
        *(replace(one, remedy=remedy) if one.fix in _GIVES_UP else one for one in findings),
    ]


def without_losses(
    disk: Disk,
    directory: str,
    findings: list[Finding],
    log_dirs: Iterable[str],
    *,
    is_named: bool,
) -> list[Finding]:
    """The findings of a partition as a repair may mend them; what it is to leave it leaves.

    `log_dirs` are those in which a broker may find the partition; `is_named` says that its
    directory is the one path that the repair was given. Raises OSError.
    """
    if directory.rpartition("/")[2] == METADATA_DIRECTORY:
        if is_named or _lost_in(disk, directory) is None:
            return findings
        return [_left(one, one.remedy) if one.fix in _GIVES_UP else one for one in findings]
    if any(one.fix in _CUTS for one in findings):
        for log_dir in log_dirs:
            if needs_marker(disk, log_dir):
                remedy = remedy_for_marker(log_dir)
                return [_left(one, remedy) if one.fix in _CUTS else one for one in findings]
    return findings


def without_marker(disk: Disk, finding: Finding) -> Finding:
    """The finding of a file beside the partitions, as a repair may mend it. Raises OSError."""
    log_dir, name = parent_of(finding.path), finding.path.rpartition("/")[2]
    if name == CLEAN_SHUTDOWN_FILE and needs_marker(disk, log_dir):
        return _left(finding, remedy_for_marker(log_dir))
    return finding


def needs_marker(disk: Disk, log_dir: str) -> bool:
    """Whether the mark of a clean stop in a log dir may be all that tells of a loss."""
    directory = f"{log_dir}/{METADATA_DIRECTORY}"
    return (
        disk.exists(f"{log_dir}/{CLEAN_SHUTDOWN_FILE}")
        and disk.exists(directory)
        and _lost_in(disk, directory) is not None
    )


def remedy_for_marker(log_dir: str) -> str:
    return (
        f"It is left until {log_dir}/{METADATA_DIRECTORY} is whole: a repair would take"
        f" {log_dir}/{CLEAN_SHUTDOWN_FILE} away, by which a start knows what that has lost."
    )


def _left(finding: Finding, remedy: str) -> Finding:
    return replace(finding, remedy=remedy, fix=Fix.NOTHING, gives_up="", keeps="")


def _lost_in(disk: Disk, directory: str) -> MetadataLost | None:
    if directory.rpartition("/")[2] != METADATA_DIRECTORY:
        return None
    try:
        check_whole(disk, directory)
    except MetadataLost as lost:
        return lost
    return None
