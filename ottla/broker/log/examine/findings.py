"""What a verification says: one sentence for each thing that is not as it has to be."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Fix(Enum):
    """What `ottla log repair` does about a finding."""

    NOTHING = "nothing"
    REBUILD_INDEXES = "rebuild the indexes of the segment"
    REWRITE_TRANSACTIONS = "write the transaction index anew"
    REMOVE_SNAPSHOT = "remove the producer snapshot; the next start reads the log instead"
    REWRITE_EPOCHS = "write the leader epochs anew from the batches"
    SET_ASIDE = "rename the file; the next start does without it"
    CUT_TAIL = "cut the tail off"
    TAKE_OUT = "take the range out of the segment"
    GIVE_UP = "let the next start go on without what is lost, and set topics of it aside (-stray)"


@dataclass(slots=True, frozen=True)
class Finding:
    """`position` is a byte of the file, or None where the file as a whole is meant.

    `gives_up` names the offsets that are gone once it is repaired, `keeps` the file to which its
    bytes go.
    """

    path: str
    what: str
    remedy: str
    position: int | None = None
    size: int = 0
    fix: Fix = Fix.NOTHING
    gives_up: str = ""
    keeps: str = ""

    def __str__(self) -> str:
        where = self.path if self.position is None else f"{self.path} at byte {self.position}"
        return f"{where}: {self.what}. {self.remedy}"


REPAIRED = "`ottla log repair` mends it, and so does the next start of a broker."
ALONE = (
    "It stands alone, and `ottla log repair` leaves it as it is: put its .log file beside it, or"
    " verify it in its partition's directory."
)
INDEX_REMEDY = "An index is only a hint: `ottla log repair` makes it anew from the log."
