"""What a page is told of the past: rates, means and quantiles between two readings."""

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
    """The samples of readings, one a second."""
    history = history or History(Reserved(PRICES), 600)
    for second, reading in enumerate(readings):
        history.note(Reading(**reading), float(second), 1000.0 + second)
    return history.after(0)


def test_the_first_reading_is_only_what_others_are_held_to() -> None:
    """Counters of before are nothing that has happened now."""
    assert [] == noted({"batches": {"a": 100}, "item_count": {"a": 800}})


def test_a_sample_is_about_what_came_in_between() -> None:
    """Batches and items are those since the last reading; the moment's numbers are as read."""
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


def test_nothing_has_no_mean() -> None:
    """Without batches and requests there is no size, latency or share, and not a nought."""
    (sample,) = noted({}, {})
    assert (None, None, None, None) == (
        *(sample.mean_batch, sample.p50_s, sample.p99_s),
        sample.miss_ratio,
    )
    assert 0.0 == sample.cost_per_hour


def test_latencies_are_those_of_the_last_seconds() -> None:
    """Quantiles are over five samples, so that an early slow request is forgotten."""
    slow, quick = bin_of(2.0), bin_of(0.05)
    counts = [Counter({slow: 10, quick: 10 * n}) for n in range(8)]
    samples = noted({}, *({"latency": dict(count)} for count in counts))
    assert samples[0].p99_s == pytest.approx(2.0, rel=0.06)
    assert samples[-1].p99_s == pytest.approx(0.05, rel=0.06)
    assert samples[-1].p50_s == pytest.approx(0.05, rel=0.06)


def test_a_miss_is_late_failed_expired_or_refused() -> None:
    """The share of those that ended; cancelled ones count for nothing."""
    fates = {"done": 90, "late": 4, "failed": 2, "expired": 3, "refused": 5, "cancelled": 50}
    (sample,) = noted({}, {"fates": fates})
    assert sample.miss_ratio == pytest.approx(14 / 100)


@pytest.mark.parametrize(
    ("rule", "cost_per_hour"),
    [
        (Reserved(PRICES), 3 * (2 * 0.5 + 1) * 3600),  # three instances, whatever they do
        (PayPerUse(PRICES), 10 * 0.2 * (2 * 0.5 + 1) * 3600),  # ten batches of 0.2 s
    ],
)
def test_cost_is_by_the_billing_rule(rule: Any, cost_per_hour: float) -> None:
    """Billed by instances, those that load are paid too; billed by use, batches are."""
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


def test_it_is_bounded_and_numbered() -> None:
    """The oldest samples go; a page asks for those that it does not have."""
    history = History(Reserved(PRICES), 5)
    noted(*({} for _ in range(21)), history=history)
    assert [16, 17, 18, 19, 20] == [sample.number for sample in history.after(0)]
    assert [19, 20] == [sample.number for sample in history.after(18)]
    assert [] == history.after(20)
    history.keep(2)
    assert [19, 20] == [sample.number for sample in history.after(0)]
    assert 20 == history.last


def test_counters_that_begin_anew_are_no_negative_numbers() -> None:
    """A function that was removed and deployed again counts from nought."""
    samples = noted(
        {"batches": {"a": 10}, "starts": 4},
        {"batches": {"a": 12}, "starts": 4},
        {"batches": {}, "starts": 0},
        {"batches": {"a": 3}, "item_count": {"a": 6}, "starts": 1},
    )
    assert [(1, 0), (2, 1)] == [(sample.number, sample.starts) for sample in samples]
    assert 2.0 == samples[-1].mean_batch


def test_the_form_is_short() -> None:
    """Numbers are sent with as many digits as are shown."""
    (sample,) = noted({}, {"rate_rps": 1 / 3, "instances": {"a": Instances(ready=1)}})
    data = sample.to_dict()
    assert (0.333333, {"a": (1, 0)}) == (data["rate_rps"], data["classes"])
