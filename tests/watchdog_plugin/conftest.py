"""Fixtures that shorten the measurements in a quick test run."""

from __future__ import annotations

import pytest

from tests.effort import scaled
from watchdog_plugin.profiling import run_overhead


@pytest.fixture(autouse=True)
def _few_runs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time chains of operators with a tenth of the runs, except in tests marked ``timing``."""
    if request.node.get_closest_marker("timing"):
        return
    monkeypatch.setattr(run_overhead, "_CHAIN_RUNS", scaled(run_overhead._CHAIN_RUNS))
