"""Choice of a policy from hand-made results."""

from __future__ import annotations

import dataclasses
import math

import pytest

from simulator.advice.verdict import beside, best, better, verdicts
from simulator.confidence_intervals import Estimate
from simulator.matrix.rows import Row


def rows(policy: str, cost: float, missed: float, *, spread: float = 0.0) -> list[Row]:
    """Return four hourly parts of 1000 requests each, with misses ``spread`` around a mean."""
    shares = [missed - spread, missed + spread] * 2
    return [
        Row(str(part), 3600.0, part, policy, 1000, cost, 1.0, share, 1.0, 50.0, 0.1, 1.0)
        for part, share in enumerate(shares)
    ]


def test_costs_and_misses_cover_all_parts() -> None:
    """Costs per hour, per thousand requests and relative to the bound cover all parts."""
    (found,) = verdicts({"one": rows("one", 2.0, 0.004, spread=0.001)}, 0.01).values()
    assert (2.0, 2.0, 2.0) == (
        found.cost_per_hour.value,
        found.cost_per_1k.value,
        found.over_bound.value,
    )
    assert found.missed.value == pytest.approx(0.004)
    assert found.meets
    assert found.surely


def test_cheapest_policy_that_meets_objective_is_chosen() -> None:
    """The cheapest that meets the objective is chosen; of equals, the one that misses less."""
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


def test_policy_that_misses_least_is_chosen_if_none_meets_objective() -> None:
    """If none meets the objective, the policy that misses least is chosen; if all failed, none."""
    given = {"one": rows("one", 1.0, 0.05), "two": rows("two", 9.0, 0.04)}
    chosen = best(verdicts(given, 0.01))
    assert chosen is not None
    assert ("two", False) == (chosen.policy, chosen.meets)
    failed = [dataclasses.replace(row, failure="no plan") for row in given["one"]]
    assert best(verdicts({"one": failed}, 0.01)) is None


def test_misses_around_the_limit_are_not_certain() -> None:
    """Misses whose interval reaches over the limit are not certain."""
    (found,) = verdicts({"one": rows("one", 1.0, 0.009, spread=0.008)}, 0.01).values()
    assert found.meets
    assert not found.surely


def test_zero_misses_in_few_requests_are_not_certain() -> None:
    """Zero misses in n requests may be up to 3/n: 4,000 prove 99 %, 200 do not."""
    many = verdicts({"one": rows("one", 1.0, 0.0)}, 0.01)["one"]
    few = [dataclasses.replace(row, requests=50) for row in rows("one", 1.0, 0.0)]
    found = verdicts({"one": few}, 0.01)["one"]
    assert (0.0, 3 / 4000) == (many.missed.value, many.missed.high)
    assert (True, True) == (many.meets, many.surely)
    assert (True, False) == (found.meets, found.surely)


def test_zero_misses_in_one_part_are_not_certain() -> None:
    """Zero misses in one part are not certain, as all requests are from the same stretch."""
    (one,) = verdicts({"one": rows("one", 1.0, 0.0)[:1]}, 0.01).values()
    assert (0.0, True, False) == (one.missed.value, one.meets, one.surely)
    assert math.isnan(one.missed.half)


def test_failed_policy_has_no_figures() -> None:
    """A failed policy has no figures, as it had no run."""
    failed = [dataclasses.replace(row, failure="no plan") for row in rows("one", 1.0, 0.0)]
    (found,) = verdicts({"one": failed}, 0.01).values()
    assert ("no plan", False, 4) == (found.failure, found.meets, found.parts)
    known = (found.cost_per_hour, found.cost_per_1k, found.over_bound, found.missed)
    assert all(math.isnan(each.value) and math.isnan(each.half) for each in known)


def test_other_settings_are_chosen_only_if_surely_cheaper() -> None:
    """Other settings are chosen only if they are surely cheaper and meet the objective."""
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
    """Costs are compared only on parts that both have run."""
    assert 2.0 == beside(rows("one", 2.0, 0.0)[:2], rows("two", 1.0, 0.0)).value
