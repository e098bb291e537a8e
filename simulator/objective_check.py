"""Checks that a function's objective is longer than the shortest latency of its model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from carpool import durations
from carpool.errors import Problem
from simulator.model_sizes import quickest_s

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaler.scenarios.scenario import Function

__all__ = ["impossible_objective", "impossible_objectives"]


def impossible_objective(name: str, function: Function, slo_s: float) -> Problem | None:
    """Return why no number of instances meets an objective; None if a size of the model can.

    Args:
        name: Name of the objective in the problem.
        function: The function, with its model.
        slo_s: Objective in seconds.
    """
    least_s = quickest_s(function)
    if least_s < slo_s:
        return None
    quick = durations.format(round(least_s, 6)) if math.isfinite(least_s) else "none"
    expected = f"more than {quick}, the shortest latency of any size of the model"
    hint = "no number of instances meets it, but a larger size or a faster model may"
    return Problem(name, durations.format(slo_s), expected, hint)


def impossible_objectives(functions: Iterable[Function]) -> dict[str, Problem]:
    """Return by function why its tightest objective cannot be met, where it cannot."""
    problems = {}
    for function in functions:
        tightest_s = min((app.slo_s for app in function.apps), default=function.slo_s)
        if problem := impossible_objective("the objective", function, tightest_s):
            problems[function.name] = problem
    return problems
