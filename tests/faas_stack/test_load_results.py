"""Tests of the figures that are computed from outcomes."""

from __future__ import annotations

import pytest

from faas_stack.load.results import LoadResults, quantile


def test_quantiles_use_nearest_rank() -> None:
    """The p99 of 100 values is the 99th, and a single value is every quantile."""
    values = [float(i) for i in range(1, 101)]
    assert [1.0, 50.0, 99.0, 100.0] == [quantile(values, q) for q in (0.0, 0.5, 0.99, 1.0)]
    assert quantile([7.0], 0.99) == 7.0


def test_the_report_has_exactly_the_documented_keys() -> None:
    """The report has exactly the documented keys, which scripts read."""
    report = LoadResults().report()
    assert report.keys() == {
        *("requests", "ok", "errors", "slo_miss_ratio", "rps", "latency_ms", "mean_batch")
    }
    assert report["latency_ms"].keys() == {"mean", "p50", "p90", "p95", "p99"}


def test_unmeasured_figures_are_null_not_zero() -> None:
    """Figures are None without responses, an SLO or a batch header."""
    report = LoadResults().report()
    assert report["slo_miss_ratio"] is None
    assert report["mean_batch"] is None
    assert set(report["latency_ms"].values()) == {None}


def test_late_and_failed_requests_miss_slo() -> None:
    """Late, refused and failed requests miss the SLO, and only successful ones have a latency."""
    results = LoadResults(slo_s=0.1, elapsed_s=2.0)
    results.answered(200, 0.05, 0)
    results.answered(200, 0.15, 0)
    results.answered(503, 0.001, 0)
    results.failed("timeout")
    report = results.report()
    assert report["slo_miss_ratio"] == 0.75
    assert report["errors"] == {"503": 1, "timeout": 1}
    assert (report["requests"], report["ok"], report["rps"]) == (4, 2, 1.0)
    assert report["latency_ms"]["mean"] == pytest.approx(100)


def test_mean_batch_counts_batches_not_requests() -> None:
    """Batches of nine and one have a mean of five, although most requests were in the nine."""
    results = LoadResults()
    for size in [9] * 9 + [1]:
        results.answered(200, 0.01, size)
    assert results.report()["mean_batch"] == 5.0


def test_late_sending_is_reported_with_number_of_requests() -> None:
    """Late requests are reported with their number, unless they are few."""
    punctual, late = LoadResults(), LoadResults()
    punctual.lags_s.extend([0.0001] * 999 + [0.1])
    late.lags_s.extend([0.0001] * 90 + [0.02] * 10)
    late.starved = 3
    assert punctual.warnings() == []
    schedule, starved = late.warnings()
    assert "could not keep the schedule: 10 of 100" in schedule
    assert "3 requests waited for a free connection" in starved
