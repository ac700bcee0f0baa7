"""The topics that belong to the broker itself."""

from __future__ import annotations

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
