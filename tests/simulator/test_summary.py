"""Summary of a comparison in sentences and fields."""

from __future__ import annotations

from typing import Any

import pytest

from carpool.errors import Problem
from simulator.reports.summary import summary

IMPOSSIBLE = {"f": Problem("the objective", "20ms", "more than 25ms")}


def policy(cost: float | None, missed: float, requests: int = 1000) -> dict[str, Any]:
    """Return the metrics of a run of one function."""
    each = {"cost_per_1k": cost, "slo_miss_ratio": missed if requests else None}
    return {**each, "requests": requests, "functions": {"f": each}}


def came(**metrics: dict[str, Any]) -> dict[str, Any]:
    """Return the summary if one request in a hundred may miss its objective."""
    return summary(metrics, {"f": 0.01}, {})


def test_cheapest_policy_that_meets_objectives_is_named() -> None:
    """The cheapest policy that meets all objectives is named, with cost and misses of each."""
    found = came(a=policy(0.04, 0.002), b=policy(0.03, 0.05), c=policy(0.06, 0.0))
    assert ("b", "a", ["a", "c"]) == (found["cheapest"], found["best"], found["meets_objectives"])
    assert found["text"] == (
        "a is the cheapest policy that meets all objectives. "
        "With a, a thousand requests cost 0.04, and 0.20 % miss their objective. "
        "With b, a thousand requests cost 0.03, 25 % less, and 5.00 % miss their objective, "
        "more than allowed. "
        "With c, a thousand requests cost 0.06, 50 % more, and 0.00 % miss their objective."
    )


def test_cheapest_policy_is_named_if_none_meets_objectives() -> None:
    """If no policy meets all objectives, the summary says so and still names the cheapest."""
    found = came(a=policy(0.04, 0.02), b=policy(0.03, 0.05))
    assert (None, "b") == (found["best"], found["cheapest"])
    assert found["text"].startswith("No policy meets all objectives. ")


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (policy(None, 0.005), "With a, 0.50 % miss their objective."),
        (policy(0.04, 0.0, requests=0), "There were no requests."),
    ],
)
def test_single_policy_is_summarized(one: dict[str, Any], text: str) -> None:
    """A single policy, unknown prices and a lack of requests are summarized."""
    assert text == came(a=one)["text"]


def test_impossible_objective_is_named_with_reason() -> None:
    """An impossible objective is named with the reason at the end."""
    found = summary({"a": policy(0.04, 0.02)}, {"f": 0.01}, IMPOSSIBLE)
    assert ["f"] == found["impossible"]
    said = " No policy can meet the objective of f, 20ms: expected more than 25ms."
    assert found["text"].endswith(said)


def test_objective_met_by_some_policy_is_not_called_impossible() -> None:
    """An objective that some policy met, as on a faster machine, is not called impossible."""
    both = {"a": policy(0.04, 0.02), "b": policy(0.05, 0.005)}
    found = summary(both, {"f": 0.01}, IMPOSSIBLE)
    assert (["b"], []) == (found["meets_objectives"], found["impossible"])
    assert "No policy can" not in found["text"]
