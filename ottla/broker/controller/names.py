"""Names and ids: what may be one of a topic or a broker, and how a new id is drawn."""

from __future__ import annotations

import re

from ottla.broker.metadata.image import MetadataImage, is_reserved_id
from ottla.broker.ports import Rng
from ottla.protocol.wire import uuid_text

TOPIC_NAME_LENGTH_MAX = 249
"""A directory is called `name-partition`, and `.<uuid>-delete` may come behind it: 255 in all."""

_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_NUMBER = re.compile(r"[+-]?\d{1,100}")
"""As Java reads one; int() takes more for a number, and fails at thousands of digits."""
INT_MAX = 2**31 - 1

_VERSION_4 = 0x4 << 76
_VERSION_MASK = 0xF << 76
_VARIANT = 0x2 << 62
_VARIANT_MASK = 0x3 << 62


def broker_id_of(name: str) -> int | None:
    """The id that a broker's resource has for its name; None if that is no number of 32 bits."""
    if not _NUMBER.fullmatch(name):
        return None
    broker_id = int(name)
    return broker_id if -INT_MAX - 1 <= broker_id <= INT_MAX else None


def topic_name_fault(name: str) -> str | None:
    """Why this cannot be a topic's name, in Kafka's words; None if it can."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return (
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length"
            f" {TOPIC_NAME_LENGTH_MAX}"
        )
    if not _NAME.fullmatch(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII"
            " alphanumerics, '.', '_' and '-'"
        )
    return None


class TakenNames:
    """The topics of an image by their names in metrics, in which dots are underscores. All are read
    once, when a name is asked about that could collide."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._by_unified: dict[str, str] | None = None

    def colliding_with(self, name: str) -> str | None:
        """A topic that has the same name in metrics as `name`, which is no topic's."""
        if "." not in name and "_" not in name:
            return None
        if self._by_unified is None:
            self._by_unified = {
                other.replace(".", "_"): other
                for other in self._image.topics.by_name
                if "." in other or "_" in other
            }
        return self._by_unified.get(name.replace(".", "_"))


def new_id(rng: Rng) -> bytes:
    """A random id of UUID version 4, none of Kafka's own, whose text does not start with a dash."""
    while True:
        drawn = rng.getrandbits(128)
        drawn = drawn & ~_VERSION_MASK | _VERSION_4
        drawn = drawn & ~_VARIANT_MASK | _VARIANT
        value = drawn.to_bytes(16, "big")
        if not is_reserved_id(value) and not uuid_text(value).startswith("-"):
            return value
