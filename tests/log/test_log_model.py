"""Random operations beside a model; a failing seed is a test's name, and is repeated by it."""

from __future__ import annotations

import pytest

from tests.log.log_model import LogModel


@pytest.mark.parametrize("seed", range(40))
def test_random_operations(seed: int) -> None:
    model = LogModel(seed)
    try:
        model.run(range(150))
        model.check_all()
    except BaseException as error:
        error.add_note(f"reproduce: pytest tests/log/test_log_model.py -k 'operations[{seed}]'")
        raise
