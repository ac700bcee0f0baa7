"""What a conversation calls its ids, and what they are called on the wire.

Every conversation has names of its own, so that it may be held with a broker that has held others:
on the wire `x` is `x-1f2e3d4c`. Producer ids come from the broker, and are shown as `pidA`, `pidB`
in the order in which the broker gave them.
"""

from __future__ import annotations

import string

from ottla.broker.coordinator.placement import partition_for

OFFSETS = "__consumer_offsets"
PARTITION_COUNT = 50
"""Of each coordinator's topic."""
GROUPS = ("g", "new", "")
NO_PID = -1
STRANGE_PID = 4_000_000_000
"""An id that no broker has given to anybody."""


class Names:
    """The names of one conversation; `suffix` is its own.

    Where a group's offsets are follows from its name on the wire: it is shown by the group.
    """

    def __init__(self, suffix: str) -> None:
        self._suffix = f"-{suffix}"
        self._homes = {self.home(group): group for group in GROUPS}
        self._pids: dict[int, str] = {}
        self._given: dict[str, str] = {}

    def on_wire(self, name: str) -> str:
        """Nothing stays nothing, and the broker's own topics keep their names."""
        return name if not name or name.startswith("__") else name + self._suffix

    def shown(self, text: str) -> str:
        return self._given.get(text, text).replace(self._suffix, "")

    def call(self, text: str, name: str) -> None:
        """What the broker made up is shown by this name."""
        self._given[text] = name

    def home(self, group: str) -> int:
        """The partition of `__consumer_offsets` that has this group."""
        return partition_for(self.on_wire(group), PARTITION_COUNT)

    @property
    def has_homes_apart(self) -> bool:
        return len(self._homes) == len(GROUPS)

    def place(self, topic: str, partition: int) -> str:
        if topic == OFFSETS and partition in self._homes:
            return f"offsets of {self._homes[partition] or repr('')}"
        return f"{self.shown(topic)}-{partition}"

    def is_own(self, name: str) -> bool:
        return name.endswith(self._suffix)

    def learn(self, pid: int) -> None:
        """The broker gave this id."""
        if pid >= 0:
            self._pids.setdefault(pid, f"pid{string.ascii_uppercase[len(self._pids)]}")

    def knows(self, pid: int) -> bool:
        return pid in self._pids

    def pid(self, pid: int) -> str:
        return self._pids.get(pid, "strange" if pid == STRANGE_PID else str(pid))

    def producer(self, pid: int, epoch: int) -> str:
        return f"{self.pid(pid)}/{epoch}"
