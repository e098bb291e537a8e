"""``python -m benchmarks planning`` times planning rounds."""

from __future__ import annotations

import pytest

from benchmarks import planning


@pytest.mark.slow
def test_row_has_times_of_first_and_steady_round(capfd: pytest.CaptureFixture[str]) -> None:
    """A row has the times of the first and of a steady round for all functions."""
    assert 0 == planning.main(["--policy", "openfaas", "--functions", "3", "--turns", "1"])
    _, row = capfd.readouterr().out.splitlines()
    policy, functions, *times_ms = row.split()
    assert ("openfaas", "3") == (policy, functions)
    assert 2 == len(times_ms)
    assert all(float(time_ms) > 0 for time_ms in times_ms)
