"""Prometheus metrics: counting into buckets, and the families that are rendered."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from carpool.prometheus_text import Histogram, counter, gauge, histogram, render

if TYPE_CHECKING:
    from carpool.prometheus_text import Family


def samples(*families: Family) -> list[tuple[str, dict[str, str], float]]:
    """Return name, labels and value of each sample, as a scraper reads them."""
    text = render(families).decode()
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
    assert b"# HELP busy Busy\n# TYPE busy gauge\n" == render([family])


def test_labels_and_help_may_be_any_text() -> None:
    """Quotes, backslashes and line breaks are read as they were written."""
    odd = 'a"b\\c\nd'
    family = gauge("odd", odd, {odd: 1}, "name")
    (read,) = text_string_to_metric_families(render([family]).decode())
    assert (odd, [{"name": odd}]) == (
        read.documentation,
        [sample.labels for sample in read.samples],
    )


def test_numbers_without_digits_are_spelled_as_prometheus_does() -> None:
    """Infinities and what is not a number have the names of the format, not Python's."""
    values = {"a": math.inf, "b": -math.inf, "c": math.nan, "d": 1e300, "e": True}
    lines = render([gauge("odd", "Odd", values, "name")]).decode().splitlines()
    assert ["+Inf", "-Inf", "NaN", "1e+300", "1.0"] == [line.split()[-1] for line in lines[2:]]
