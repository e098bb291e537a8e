"""Measurements are short in a quick run."""

from __future__ import annotations

import pytest

from tests.effort import scaled
from watchdog_plugin.profiling import single_operators


@pytest.fixture(autouse=True)
def _few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time chains of trivial operators in a tenth of the runs; no test depends on the times."""
    monkeypatch.setattr(single_operators, "_CHAIN_RUNS", scaled(single_operators._CHAIN_RUNS))
