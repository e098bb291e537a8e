"""Measurements are short in a quick run."""

from __future__ import annotations

import pytest

from tests.effort import scaled
from watchdog_plugin.profiling import single_operators


@pytest.fixture(autouse=True)
def _few_runs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time chains of operators in a tenth of the runs, unless the test is of their times."""
    if request.node.get_closest_marker("timing"):
        return
    monkeypatch.setattr(single_operators, "_CHAIN_RUNS", scaled(single_operators._CHAIN_RUNS))
