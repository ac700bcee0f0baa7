"""A worker that goes through records pauses now and then, not each time that it could."""

from __future__ import annotations

from ottla.broker.pauses import AT_A_STRETCH_S, PAUSE_S, Pauses


def test_it_pauses_when_it_has_worked_for_a_stretch() -> None:
    now_s = 0.0
    paused: list[tuple[float, float]] = []

    def pause(seconds: float) -> None:
        nonlocal now_s
        paused.append((now_s, seconds))
        now_s += AT_A_STRETCH_S  # whoever has the interpreter keeps it as long as it likes

    pauses = Pauses(lambda: now_s, pause)
    for _ in range(20):
        pauses.give_way()
        now_s += AT_A_STRETCH_S / 4

    assert [round(at_s / AT_A_STRETCH_S, 6) for at_s, _ in paused] == [1, 3, 5, 7]
    assert {seconds for _, seconds in paused} == {PAUSE_S}
