"""The jobs of a broker whose settings ask for none."""

from __future__ import annotations

import pytest

from ottla.testing.embedded import Broker


@pytest.mark.parametrize(
    "key",
    [
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
        "replica.high.watermark.checkpoint.interval.ms",
    ],
)
async def test_a_checkpoint_without_an_interval_is_written_once(key: str) -> None:
    async with Broker(config={key: "0"}) as broker:
        assert not broker.running.failed.done()
