"""Figures made from outcomes."""

from __future__ import annotations

import pytest

from faas_stack.load.results import Tally, quantile


def test_quantiles_are_the_nearest_rank() -> None:
    """p99 of 100 values is the 99th, and one value is every quantile."""
    values = [float(i) for i in range(1, 101)]
    assert [1.0, 50.0, 99.0, 100.0] == [quantile(values, q) for q in (0.0, 0.5, 0.99, 1.0)]
    assert quantile([7.0], 0.99) == 7.0


def test_the_report_has_exactly_the_documented_keys() -> None:
    """Scripts read these names."""
    report = Tally().report()
    assert report.keys() == {
        *("requests", "ok", "errors", "slo_miss_ratio", "rps", "latency_ms", "mean_batch")
    }
    assert report["latency_ms"].keys() == {"mean", "p50", "p90", "p95", "p99"}


def test_what_was_not_measured_is_null_not_zero() -> None:
    """Without answers, an SLO or a batch header there is no figure."""
    report = Tally().report()
    assert report["slo_miss_ratio"] is None
    assert report["mean_batch"] is None
    assert set(report["latency_ms"].values()) == {None}


def test_an_slo_miss_is_a_late_answer_or_none() -> None:
    """Late, refused, broken and timed out requests all missed; only good answers have latency."""
    tally = Tally(slo_s=0.1, elapsed_s=2.0)
    tally.answered(200, 0.05, 0)
    tally.answered(200, 0.15, 0)
    tally.answered(503, 0.001, 0)
    tally.failed("timeout")
    report = tally.report()
    assert report["slo_miss_ratio"] == 0.75
    assert report["errors"] == {"503": 1, "timeout": 1}
    assert (report["requests"], report["ok"], report["rps"]) == (4, 2, 1.0)
    assert report["latency_ms"]["mean"] == pytest.approx(100)


def test_mean_batch_counts_batches_not_requests() -> None:
    """A batch of nine and one of one have mean five, though most requests saw nine."""
    tally = Tally()
    for size in [9] * 9 + [1]:
        tally.answered(200, 0.01, size)
    assert tally.report()["mean_batch"] == 5.0


def test_a_generator_that_fell_behind_says_so() -> None:
    """Late departures are named with their number; a few are noise."""
    punctual, late = Tally(), Tally()
    punctual.lags_s.extend([0.0001] * 999 + [0.1])
    late.lags_s.extend([0.0001] * 90 + [0.02] * 10)
    late.starved = 3
    assert punctual.warnings() == []
    schedule, starved = late.warnings()
    assert "could not keep the schedule: 10 of 100" in schedule
    assert "3 requests waited for a free connection" in starved
