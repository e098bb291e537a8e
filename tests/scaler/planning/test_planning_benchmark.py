"""``python -m benchmarks planning`` times rounds that plan."""

from __future__ import annotations

import pytest

from benchmarks import planning


@pytest.mark.slow
def test_a_row_has_the_times_of_two_rounds(capfd: pytest.CaptureFixture[str]) -> None:
    """Of the first and of a steady one, for all functions, in a process of their own."""
    assert 0 == planning.main(["--policy", "openfaas", "--functions", "3", "--turns", "1"])
    _, row = capfd.readouterr().out.splitlines()
    policy, functions, *times_ms = row.split()
    assert ("openfaas", "3") == (policy, functions)
    assert 2 == len(times_ms)
    assert all(float(time_ms) > 0 for time_ms in times_ms)
