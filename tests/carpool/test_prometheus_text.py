"""Prometheus metrics: counting into buckets, and the families that are rendered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from carpool.prometheus_text import Histogram, counter, gauge, histogram

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric


class Families:
    """Collector of the given families."""

    def __init__(self, *families: Metric) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        yield from self._families


def samples(*families: Metric) -> list[tuple[str, dict[str, str], float]]:
    """Return name, labels and value of each sample, as a scraper reads them."""
    text = generate_latest(Families(*families)).decode()
    read = [each for family in text_string_to_metric_families(text) for each in family.samples]
    return [(sample.name, dict(sample.labels), sample.value) for sample in read]


def test_bounds_are_inclusive_and_counts_cumulative() -> None:
    """A value counts in each bucket whose bound is at least as high, and in the last one."""
    counted = Histogram((1, 2))
    for value in (0.5, 1, 1.5, 9):
        counted.observe(value)
    assert 4 == counted.count
    assert [
        ("size_bucket", {"le": "1"}, 2),
        ("size_bucket", {"le": "2"}, 3),
        ("size_bucket", {"le": "+Inf"}, 4),
        ("size_count", {}, 4),
        ("size_sum", {}, 12),
    ] == samples(histogram("size", "Sizes", counted))


def test_values_have_no_label_one_or_several() -> None:
    """A number is a sample of its own; a mapping has a sample for each value of the labels."""
    assert [
        ("calls_total", {}, 3),
        ("ended_total", {"how": "bad"}, 1),
        ("ended_total", {"how": "good"}, 2),
        ("queue", {"code": "200", "app": "a"}, 5),
        ("queue", {"code": "503", "app": "a"}, 0),
    ] == samples(
        counter("calls", "Calls", 3),
        counter("ended", "Ends", {"good": 2, "bad": 1}, "how"),
        gauge("queue", "Waiting", {(503, "a"): 0, (200, "a"): 5}, "code", "app"),
    )


def test_family_without_values_is_still_listed() -> None:
    """A family without samples has its name, kind and labels."""
    family = gauge("busy", "Busy", {}, "gpu")
    assert b"# HELP busy Busy\n# TYPE busy gauge\n" == generate_latest(Families(family))
