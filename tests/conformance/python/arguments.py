"""What a driver is told and what it answers.

    DRIVER produce|consume BOOTSTRAP TOPIC RECORDS

It prints one line of JSON: {"records": number, "digests": [three hexadecimal texts]}, the digests
empty when it produced. Exit status 0 means that all went well.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

Produce = Callable[[str, str, int], None]
Consume = Callable[[str, str, int], list[str]]


def run(produce: Produce, consume: Consume) -> None:
    """Reads the command line, does it, and prints the answer."""
    verb, bootstrap, topic, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    digests: list[str] = []
    if verb == "produce":
        produce(bootstrap, topic, count)
    else:
        digests = consume(bootstrap, topic, count)
    print(json.dumps({"records": count, "digests": digests}))
