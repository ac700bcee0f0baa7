"""The test kit: a real broker in a test process, and simulated disks and clocks.

    from ottla.testing import Broker, BrokerThread

The broker is imported on first use, so that who wants only a simulated disk does not load it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.testing.embedded import Broker, BrokerThread

__all__ = ["Broker", "BrokerThread"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ottla.testing import embedded

    return getattr(embedded, name)
