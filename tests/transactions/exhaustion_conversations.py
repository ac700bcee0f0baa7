"""What happens at the end of the epochs of a producer id.

The last epoch that a producer is given is 32766; 32767 fences it, and belongs to nobody.
"""

from __future__ import annotations

from tests.transactions.log_scenario import LogScript

LAST = 32_766


def exhausted_by_initialising(s: LogScript) -> None:
    s.init("A")
    s.wear_out("A", to=LAST)
    s.init("A")
    s.init("A")
    s.show_transactions(last=3)


def exhausted_by_going_on(s: LogScript) -> None:
    s.topic("t")
    s.init("A", version=4)
    s.wear_out("A", to=LAST)
    pid = s.producers["A"].pid
    s.add("A")
    s.end("A", version=4)
    s.again("A", version=4)
    s.again("A", version=4, pid=pid, epoch=LAST)
    s.again("A", version=4, pid=pid, epoch=LAST - 1)
    s.again("A", version=4)
    s.again("A", version=4, pid=pid, epoch=LAST)
    s.show_transactions(last=5)


def exhausted_by_ending(s: LogScript) -> None:
    """EndTxn in the new protocol."""
    s.topic("t")
    s.init("A")
    s.wear_out("A", to=LAST - 1)
    pid = s.producers["A"].pid
    s.produce("A")
    s.end("A")
    s.produce("A")
    s.end("A")
    s.title("its retry, with the old id")
    s.end("A", pid=pid, epoch=LAST)
    s.end("A", pid=pid, epoch=LAST, commit=False)
    s.end("A", pid=pid, epoch=LAST - 1)
    s.produce("A", pid=pid, epoch=LAST)
    s.describe_producers()
    s.title("the old id is forgotten with the next end")
    s.produce("A")
    s.end("A")
    s.end("A", pid=pid, epoch=LAST)
    s.fetch()
    s.show_transactions(last=10)


def exhausted_by_aborting(s: LogScript) -> None:
    s.topic("t")
    s.init("A")
    s.wear_out("A", to=LAST)
    pid = s.producers["A"].pid
    s.title("from Empty")
    s.end("A", commit=False)
    s.end("A", pid=pid, epoch=LAST, commit=False)
    s.produce("A")
    s.end("A", commit=False)
    s.show_transactions(last=6)


def exhausted_by_fencing(s: LogScript) -> None:
    s.topic("t")
    s.init("A", version=4)
    s.wear_out("A", to=LAST)
    s.add("A")
    s.produce("A", version=11)
    s.init("B", version=4)
    s.describe()
    s.fetch()
    s.show_transactions(last=5)


def exhausted_in_a_transaction(s: LogScript) -> None:
    """The producer goes on by its own id while its transaction is open."""
    s.topic("t")
    s.init("A")
    s.wear_out("A", to=LAST)
    s.produce("A")
    s.again("A")
    s.produce("A")
    s.end("A")
    s.show_transactions(last=6)


def exhausted_by_timeout(s: LogScript) -> None:
    s.topic("t")
    s.init("A")
    s.wear_out("A", to=LAST - 1)
    s.init("A", timeout_ms=500)
    pid = s.producers["A"].pid
    s.produce("A")
    s.expire()
    s.describe()
    s.end("A", commit=False)
    s.again("A", pid=pid, epoch=LAST)
    s.show_transactions(last=5)


EXHAUSTION = (
    exhausted_by_initialising,
    exhausted_by_going_on,
    exhausted_by_ending,
    exhausted_by_aborting,
    exhausted_by_fencing,
    exhausted_in_a_transaction,
    exhausted_by_timeout,
)
