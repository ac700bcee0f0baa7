"""What a failed disk call means: who goes on, who stops.

    call            errno                                 reaction
    sync, sync_dir  any                                   the log dir is offline until restart
    load            any                                   the same: what lies there is not known
    write, ...      ENOSPC, EDQUOT                        refused: clients get 56, and it goes on
    any             EMFILE, ENFILE, ENOMEM, EAGAIN        refused
    read            any other                             refused: the range is bad, the rest is not
    write, ...      any other (EIO, EROFS, ENODEV, ...)   the log dir is offline until restart
A failed sync is never repeated: the pages are marked clean, so the second would say yes and mean
nothing. When the dir with the metadata log is lost, or the last one, the process has to end: there
is nothing left to serve. It ends with EXIT_STATUS and one sentence, so that a supervisor can tell
this end from a crash.

A disk that is full refuses every write, so one line tells of all that a dir has refused in ten
seconds, and the broker counts as not ready as long. One more line tells when that is over.

Pure but for the events; whoever makes the call reports its error here and obeys.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Final

from ottla.broker.ports import Clock, Events

# EX_IOERR of sysexits.h: "an error occurred while doing I/O on some file".
EXIT_STATUS = 74
REFUSAL_MS = 10_000
"""How long a dir that has refused a call counts as one that may refuse the next."""


class Call(Enum):
    """The kind of disk call that failed."""

    READ = "read"
    WRITE = "write"  # and whatever else changes the disk: truncate, create, rename, remove
    SYNC = "sync"
    LOAD = "load"  # whatever a start must know of a log dir


class Reaction(Enum):
    REFUSED = "refused"  # this operation failed, KAFKA_STORAGE_ERROR to the client; no more
    DIR_OFFLINE = "dir_offline"
    PROCESS_ENDS = "process_ends"


class StorageLost(Exception):
    """The broker cannot go on; the text is the sentence to print, EXIT_STATUS the status, and
    `number` the errno of the last call that failed."""

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)
        self.number = number


FULL_DISK_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
NO_DESCRIPTOR_ERRORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""A file could not be opened; no sync says so."""
SHORT_OF_MEANS: Final = NO_DESCRIPTOR_ERRORS | {errno.ENOMEM, errno.EAGAIN}


def takes_dir_offline(call: Call, error: OSError) -> bool:
    """The table above, without regard to which dir it is."""
    match call:
        case Call.SYNC | Call.LOAD:
            return True
        case Call.READ:
            return False
        case Call.WRITE:
            return error.errno not in FULL_DISK_ERRORS and error.errno not in SHORT_OF_MEANS


class DiskFaults:
    """Keeps which log dirs are offline and why, and says when the process has to end."""

    def __init__(
        self, dirs: list[str], *, metadata_dir: str | None, clock: Clock, events: Events
    ) -> None:
        assert dirs
        self.offline: dict[str, str] = {}
        self.refusals: Counter[tuple[str, str]] = Counter()
        """Calls that were refused, by log dir and the name of their errno."""
        self._refused: dict[str, tuple[int, str]] = {}
        self._untold: Counter[tuple[str, str]] = Counter()
        self._tell_at_ms: dict[tuple[str, str], int] = {}
        self._last_ms: dict[tuple[str, str], int] = {}
        self._clock = clock
        self.lost: StorageLost | None = None
        self._dirs = list(dirs)
        self._metadata_dir = metadata_dir
        self._events = events
        self._offline_listeners: list[Callable[[str], None]] = []
        self._lost_listeners: list[Callable[[StorageLost], None]] = []
        self._full_listeners: list[Callable[[str, OSError], None]] = []

    def __repr__(self) -> str:
        return f"<DiskFaults offline={sorted(self.offline)} of {len(self._dirs)}>"

    def on_offline(self, listener: Callable[[str], None]) -> None:
        """`listener(directory)` is called once for each dir that goes offline."""
        self._offline_listeners.append(listener)

    def on_full(self, listener: Callable[[str, OSError], None]) -> None:
        """`listener(directory, error)` is called when a dir has no room for a write."""
        self._full_listeners.append(listener)

    def on_lost(self, listener: Callable[[StorageLost], None]) -> None:
        """`listener(lost)` is called once, when the process has to end."""
        self._lost_listeners.append(listener)

    def failed(self, directory: str, call: Call, error: OSError) -> Reaction:
        """To be told of every failed call in a log dir; what the caller must do about it.

        The listeners have been called when it returns. Belongs to the loop's thread.
        """
        assert directory in self._dirs, directory
        if directory in self.offline:
            return Reaction.DIR_OFFLINE if self.lost is None else Reaction.PROCESS_ENDS
        name = errno.errorcode.get(error.errno or 0, "no errno")
        if not takes_dir_offline(call, error):
            self._refuse(directory, call, name, error)
            if call is Call.WRITE and error.errno in FULL_DISK_ERRORS:
                for full in self._full_listeners:
                    full(directory, error)
            return Reaction.REFUSED
        self.offline[directory] = f"{call.value} failed: {error}"
        self._events.error(
            "log_dir_offline", dir=directory, call=call.value, errno=name, error=str(error)
        )
        for listener in self._offline_listeners:
            listener(directory)
        if directory == self._metadata_dir:
            which = f"the log dir {directory} holds the metadata log and"
            return self._end(which, directory, error)
        if len(self.offline) == len(self._dirs):
            return self._end(f"{directory} was the last log dir and", directory, error)
        return Reaction.DIR_OFFLINE

    def refused_lately(self, directory: str) -> str | None:
        """What a log dir said when it last refused a call, if that is not long ago."""
        at_ms, error = self._refused.get(directory, (-REFUSAL_MS, ""))
        return error if self._clock.monotonic_ms() - at_ms < REFUSAL_MS else None

    def tell_passed(self) -> None:
        """Tells of the dirs that have refused no call for a while, once. Belongs to the loop."""
        now_ms = self._clock.monotonic_ms()
        for kind, last_ms in list(self._last_ms.items()):
            if now_ms - last_ms >= REFUSAL_MS:
                del self._last_ms[kind]
                self._tell_at_ms.pop(kind)
                calls = self._untold.pop(kind, 0)  # since the last line
                directory, name = kind
                if directory not in self.offline:
                    self._events.info(
                        "disk_calls_refused_no_more", dir=directory, errno=name, calls=calls
                    )

    def _refuse(self, directory: str, call: Call, name: str, error: OSError) -> None:
        now_ms, kind = self._clock.monotonic_ms(), (directory, name)
        self.refusals[kind] += 1
        self._untold[kind] += 1
        self._last_ms[kind] = now_ms
        if call is Call.WRITE:
            self._refused[directory] = now_ms, str(error)
        if now_ms < self._tell_at_ms.get(kind, now_ms):
            return
        calls, self._untold[kind] = self._untold[kind], 0
        self._tell_at_ms[kind] = now_ms + REFUSAL_MS
        self._events.warning(
            "disk_call_refused",
            dir=directory,
            call=call.value,
            errno=name,
            error=str(error),
            calls=calls,
        )

    def _end(self, which: str, directory: str, error: OSError) -> Reaction:
        text = f"{which} cannot be used any more: {self.offline[directory]}"
        self.lost = StorageLost(text, error.errno or 0)
        self._events.error("storage_lost", dir=directory, exit_status=EXIT_STATUS)
        for listener in self._lost_listeners:
            listener(self.lost)
        return Reaction.PROCESS_ENDS
