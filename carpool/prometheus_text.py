"""Prometheus metrics: histograms counted by plain additions, and families made when scraped."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client import Metric

__all__ = ["CONTENT_TYPE", "Histogram", "counter", "gauge", "histogram"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_T = TypeVar("_T")


class Histogram:
    """Counts by bucket; ``bounds`` are inclusive upper bounds."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def observe_all(self, values: Sequence[float]) -> None:
        """Count several values."""
        bounds, counts = self._bounds, self._counts
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self._sum += sum(values)

    @property
    def count(self) -> int:
        """Return the number of values."""
        return sum(self._counts)

    def cumulative(self) -> tuple[list[tuple[str, float]], float]:
        """Return Prometheus's form: the count up to each bound, and the sum."""
        total, buckets = 0, []
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((str(bound), float(total)))
        return buckets, self._sum


def counter(name: str, text: str, values: float | Mapping[Any, float], *labels: str) -> Metric:
    """Return the family of a counter.

    Args:
        name: Its name, without ``_total``.
        text: What it counts.
        values: Its value. With labels, its values by the value of the label, or by a tuple of them.
        labels: Names of the labels.
    """
    family = CounterMetricFamily(name, text, labels=labels)
    for of_labels, value in _samples(values):
        family.add_metric(of_labels, value)
    return family


def gauge(name: str, text: str, values: float | Mapping[Any, float], *labels: str) -> Metric:
    """Return the family of a gauge; the arguments are as for `counter`."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for of_labels, value in _samples(values):
        family.add_metric(of_labels, value)
    return family


def histogram(
    name: str, text: str, values: Histogram | Mapping[Any, Histogram], *labels: str
) -> Metric:
    """Return the family of a histogram; the arguments are as for `counter`."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for of_labels, value in _samples(values):
        buckets, total = value.cumulative()
        family.add_metric(of_labels, buckets, sum_value=total)
    return family


def _samples(values: _T | Mapping[Any, _T]) -> Iterator[tuple[list[str], _T]]:
    """Yield values with those of their labels, in their order."""
    if not isinstance(values, Mapping):
        yield [], values
        return
    for key in sorted(values):
        yield [str(each) for each in (key if isinstance(key, tuple) else (key,))], values[key]
