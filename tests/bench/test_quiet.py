"""A turn waits until the brokers are idle, and not for ever."""

from __future__ import annotations

import pytest

from tests.bench import quiet


class Broker:
    """Computes for so long from the beginning, in virtual time."""

    def __init__(self, busy_s: float, share: float = 1.0) -> None:
        self.busy_s = busy_s
        self.share = share
        self.now_s = 0.0

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def cpu_seconds(self) -> float:
        return min(self.now_s, self.busy_s) * self.share


def await_quiet(broker: Broker) -> None:
    quiet.await_quiet([broker], now=broker.now, sleep=broker.sleep)


def test_one_that_is_idle_is_waited_for_once() -> None:
    broker = Broker(busy_s=0)
    await_quiet(broker)
    assert broker.now_s == quiet.LOOK_SECONDS


def test_what_an_idle_broker_takes_does_not_count() -> None:
    broker = Broker(busy_s=60, share=0.07)
    await_quiet(broker)
    assert broker.now_s == quiet.LOOK_SECONDS


def test_one_that_computes_is_waited_for() -> None:
    broker = Broker(busy_s=3)
    await_quiet(broker)
    assert 3 <= broker.now_s <= 3 + 2 * quiet.LOOK_SECONDS


def test_not_for_ever(capsys: pytest.CaptureFixture[str]) -> None:
    broker = Broker(busy_s=60)
    await_quiet(broker)
    assert quiet.QUIET_SECONDS_MAX <= broker.now_s <= quiet.QUIET_SECONDS_MAX + quiet.LOOK_SECONDS
    assert "1.00 of a processor" in capsys.readouterr().err
