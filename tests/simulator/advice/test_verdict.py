"""Which policy is chosen, by hand."""

from __future__ import annotations

import dataclasses
import math

import pytest

from simulator.advice.verdict import beside, best, better, verdicts
from simulator.intervals import Estimate
from simulator.matrix.rows import Row


def rows(policy: str, cost: float, missed: float, *, spread: float = 0.0) -> list[Row]:
    """Four parts of an hour with a thousand requests each, and misses ``spread`` apart."""
    shares = [missed - spread, missed + spread] * 2
    return [
        Row(str(part), 3600.0, part, policy, 1000, cost, 1.0, share, 1.0, 50.0, 0.1, 1.0)
        for part, share in enumerate(shares)
    ]


def test_costs_and_misses_are_of_all_parts() -> None:
    """Per hour, per thousand requests and beside the bound."""
    (found,) = verdicts({"one": rows("one", 2.0, 0.004, spread=0.001)}, 0.01).values()
    assert (2.0, 2.0, 2.0) == (
        found.cost_per_hour.value,
        found.cost_per_1k.value,
        found.over_bound.value,
    )
    assert found.missed.value == pytest.approx(0.004)
    assert found.meets
    assert found.surely


def test_the_cheapest_that_meets_the_objective_is_chosen() -> None:
    """Not the cheapest of all; of equals the one that misses less."""
    found = verdicts(
        {
            "cheap": rows("cheap", 1.0, 0.05),
            "near": rows("near", 2.0, 0.008),
            "surer": rows("surer", 2.05, 0.001),
            "dear": rows("dear", 3.0, 0.0),
        },
        0.01,
    )
    chosen = best(found)
    assert chosen is not None
    assert "surer" == chosen.policy


def test_where_none_meets_it_the_one_that_misses_least_is_chosen() -> None:
    """And none where all have failed."""
    given = {"one": rows("one", 1.0, 0.05), "two": rows("two", 9.0, 0.04)}
    chosen = best(verdicts(given, 0.01))
    assert chosen is not None
    assert ("two", False) == (chosen.policy, chosen.meets)
    failed = [dataclasses.replace(row, failure="no plan") for row in given["one"]]
    assert best(verdicts({"one": failed}, 0.01)) is None


def test_misses_around_the_limit_are_not_certain() -> None:
    """The interval reaches over it."""
    (found,) = verdicts({"one": rows("one", 1.0, 0.009, spread=0.008)}, 0.01).values()
    assert found.meets
    assert not found.surely


def test_no_miss_among_few_requests_is_not_certain() -> None:
    """Of none in n there may be three in n: 4,000 are enough for 99 %, 200 are not."""
    many = verdicts({"one": rows("one", 1.0, 0.0)}, 0.01)["one"]
    few = [dataclasses.replace(row, requests=50) for row in rows("one", 1.0, 0.0)]
    found = verdicts({"one": few}, 0.01)["one"]
    assert (0.0, 3 / 4000) == (many.missed.value, many.missed.high)
    assert (True, True) == (many.meets, many.surely)
    assert (True, False) == (found.meets, found.surely)


def test_no_miss_in_one_part_alone_is_not_certain() -> None:
    """However many requests: all of them come from the same moments of the trace."""
    (one,) = verdicts({"one": rows("one", 1.0, 0.0)[:1]}, 0.01).values()
    assert (0.0, True, False) == (one.missed.value, one.meets, one.surely)
    assert math.isnan(one.missed.half)


def test_nothing_is_known_of_a_policy_that_failed() -> None:
    """It has missed no requests because there was no run."""
    failed = [dataclasses.replace(row, failure="no plan") for row in rows("one", 1.0, 0.0)]
    (found,) = verdicts({"one": failed}, 0.01).values()
    assert ("no plan", False, 4) == (found.failure, found.meets, found.parts)
    known = (found.cost_per_hour, found.cost_per_1k, found.over_bound, found.missed)
    assert all(math.isnan(each.value) and math.isnan(each.half) for each in known)


def test_other_settings_are_taken_only_beyond_chance() -> None:
    """Cheaper by more than the interval, and meeting the objective as well."""
    found = verdicts(
        {
            "usual": rows("usual", 2.0, 0.001),
            "other": rows("other", 1.8, 0.002),
            "late": rows("late", 1.8, 0.02),
        },
        0.01,
    )
    assert better(found["usual"], found["other"], Estimate(0.9, 0.05))
    assert not better(found["usual"], found["other"], Estimate(0.9, 0.2))
    assert not better(found["usual"], found["other"], Estimate(0.9, math.nan))  # of one part
    assert not better(found["usual"], found["late"], Estimate(0.9, 0.05))
    assert better(found["late"], found["other"], Estimate(1.5, 0.1))
    calm = dataclasses.replace(found["other"], parts=1)
    assert not better(found["late"], calm, Estimate(0.9, 0.05))  # of other parts nothing is known
    unsure = verdicts({"one": rows("one", 1.0, 0.0115, spread=0.01)}, 0.01)["one"]
    assert better(unsure, found["other"], Estimate(1.5, 0.1))  # it meets the objective


def test_costs_are_compared_on_the_same_parts() -> None:
    """Whatever else one of them has run."""
    assert 2.0 == beside(rows("one", 2.0, 0.0)[:2], rows("two", 1.0, 0.0)).value
