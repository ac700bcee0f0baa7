"""The states of a transactional id, as they are written, and what may follow what."""

from __future__ import annotations

from enum import IntEnum


class TransactionState(IntEnum):
    """By the number in the log. Kafka's two others are never written: a dead id has no record, and
    an epoch that is to be fenced is so by the record that begins the abort."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5


EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT

NAMES = {
    EMPTY: "Empty",
    ONGOING: "Ongoing",
    PREPARE_COMMIT: "PrepareCommit",
    PREPARE_ABORT: "PrepareAbort",
    COMPLETE_COMMIT: "CompleteCommit",
    COMPLETE_ABORT: "CompleteAbort",
}
"""As Kafka shows them."""
NEVER_SHOWN = frozenset({"Dead", "PrepareEpochFence"})
"""Names that Kafka knows, too, and that no transaction here is ever seen in."""

ENDING = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
"""It is decided, and its markers are being written."""
AT_REST = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
"""Nothing of it is open."""

FOLLOWERS = {
    EMPTY: frozenset({EMPTY, ONGOING, PREPARE_ABORT}),
    ONGOING: frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT}),
    PREPARE_COMMIT: frozenset({COMPLETE_COMMIT}),
    PREPARE_ABORT: frozenset({COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({EMPTY, ONGOING, PREPARE_ABORT}),
    COMPLETE_ABORT: frozenset({EMPTY, ONGOING, PREPARE_ABORT}),
}
"""From what is at rest to PREPARE_ABORT: a producer of the newer protocol aborts although it has
not begun, to get a new epoch (KIP-890)."""
