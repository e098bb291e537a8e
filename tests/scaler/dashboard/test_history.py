"""The history of a function for the dashboard: rates, means and quantiles between two readings."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from carpool.latency import Resources
from carpool.log_histogram import bin_of
from carpool.scaling import Instances
from scaler.dashboard.history import History, Reading
from scaler.planning.cost import PayPerUse, Prices, Reserved

if TYPE_CHECKING:
    from scaler.dashboard.history import Sample

SIZE = Resources(cpu=2.0, gpu=10.0, memory_mb=1024)
PRICES = Prices(cpu_core_s=0.5, memory_gb_s=1.0)


def noted(*readings: dict[str, Any], history: History | None = None) -> list[Sample]:
    """Return the samples of readings at intervals of one second."""
    history = history or History(Reserved(PRICES), 600)
    for second, reading in enumerate(readings):
        history.note(Reading(**reading), float(second), 1000.0 + second)
    return history.after(0)


def test_first_reading_gives_no_sample() -> None:
    """The first reading gives no sample, as its counters include the past."""
    assert [] == noted({"batches": {"a": 100}, "item_count": {"a": 800}})


def test_sample_has_differences_between_readings() -> None:
    """Counters give the difference from the last reading; other values are as read."""
    (sample,) = noted(
        {"batches": {"a": 100}, "item_count": {"a": 800}, "starts": 1, "waits": 1},
        {
            "rate_rps": 40.0,
            "queued": 3,
            "instances": {"a": Instances(ready=2, loading=1)},
            "sizes": {"a": SIZE},
            "batches": {"a": 110, "b": 10},
            "item_count": {"a": 840, "b": 20},
            "starts": 3,
            "waits": 1,
        },
    )
    assert (40.0, 3, {"a": (2, 1)}) == (sample.rate_rps, sample.queued, sample.classes)
    assert (3.0, 6.0, 30.0) == (sample.mean_batch, sample.cores, sample.gpu_percent)
    assert (2, 0, 1, 1001.0) == (sample.starts, sample.waits, sample.number, sample.at_s)


def test_means_are_none_without_requests() -> None:
    """Without batches and requests, batch size, latencies and miss ratio are None, not 0."""
    (sample,) = noted({}, {})
    assert (None, None, None, None) == (
        *(sample.mean_batch, sample.p50_s, sample.p99_s),
        sample.miss_ratio,
    )
    assert 0.0 == sample.cost_per_hour


def test_latency_quantiles_cover_last_samples() -> None:
    """Quantiles cover five samples, so an early slow request is forgotten."""
    slow, quick = bin_of(2.0), bin_of(0.05)
    counts = [Counter({slow: 10, quick: 10 * n}) for n in range(8)]
    samples = noted({}, *({"latency": dict(count)} for count in counts))
    assert samples[0].p99_s == pytest.approx(2.0, rel=0.1)
    assert samples[-1].p99_s == pytest.approx(0.05, rel=0.1)
    assert samples[-1].p50_s == pytest.approx(0.05, rel=0.1)


def test_a_miss_is_late_failed_expired_or_refused() -> None:
    """The miss ratio is a share of the finished requests, without cancelled ones."""
    outcomes = {"done": 90, "late": 4, "failed": 2, "expired": 3, "refused": 5, "cancelled": 50}
    (sample,) = noted({}, {"outcomes": outcomes})
    assert sample.miss_ratio == pytest.approx(14 / 100)


@pytest.mark.parametrize(
    ("rule", "cost_per_hour"),
    [
        (Reserved(PRICES), 3 * (2 * 0.5 + 1) * 3600),  # three instances, whatever they do
        (PayPerUse(PRICES), 10 * 0.2 * (2 * 0.5 + 1) * 3600),  # ten batches of 0.2 s
    ],
)
def test_cost_follows_billing_rule(rule: Any, cost_per_hour: float) -> None:
    """Reserved billing includes loading instances; pay-per-use billing covers only batches."""
    (sample,) = noted(
        {},
        {
            "instances": {"a": Instances(ready=2, loading=1), "unknown": Instances(ready=1)},
            "sizes": {"a": SIZE},
            "batches": {"a": 10},
            "exec_s": {"a": 2.0},
        },
        history=History(rule, 600),
    )
    assert sample.cost_per_hour == pytest.approx(cost_per_hour)


def test_history_is_bounded_and_numbered() -> None:
    """The oldest samples are dropped, and a page requests only samples after a number."""
    history = History(Reserved(PRICES), 5)
    noted(*({} for _ in range(21)), history=history)
    assert [16, 17, 18, 19, 20] == [sample.number for sample in history.after(0)]
    assert [19, 20] == [sample.number for sample in history.after(18)]
    assert [] == history.after(20)
    history.keep(2)
    assert [19, 20] == [sample.number for sample in history.after(0)]
    assert 20 == history.last


def test_restarted_counters_give_no_negative_numbers() -> None:
    """The counters of a function that was removed and deployed again restart from 0."""
    samples = noted(
        {"batches": {"a": 10}, "starts": 4},
        {"batches": {"a": 12}, "starts": 4},
        {"batches": {}, "starts": 0},
        {"batches": {"a": 3}, "item_count": {"a": 6}, "starts": 1},
    )
    assert [(1, 0), (2, 1)] == [(sample.number, sample.starts) for sample in samples]
    assert 2.0 == samples[-1].mean_batch


def test_samples_are_rounded() -> None:
    """Numbers are sent with only as many digits as are shown."""
    (sample,) = noted({}, {"rate_rps": 1 / 3, "instances": {"a": Instances(ready=1)}})
    data = sample.to_dict()
    assert (0.333333, {"a": (1, 0)}) == (data["rate_rps"], data["classes"])
