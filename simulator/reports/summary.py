"""Results of a comparison in plain words: cost, misses, and the cheapest sufficient policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulator.reports.comparison_table import number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.errors import Problem

__all__ = ["summary"]

_AS_MUCH = 0.005  # costs with a smaller relative difference count as equal


def summary(
    metrics: Mapping[str, Mapping[str, Any]],
    allowed: Mapping[str, float],
    impossible: Mapping[str, Problem],
) -> dict[str, Any]:
    """Return the summary of a comparison.

    Args:
        metrics: Metrics by policy, as in `simulator.metrics`.
        allowed: Share of each function's requests that may miss the objective.
        impossible: Why an objective cannot be met by the model's times, by function. It is left
            out where a policy meets it all the same: executions were faster than the model's, or
            so few requests have that objective that the percentile allows their misses.

    Returns:
        ``meets_objectives``, the policies under which no function misses more than allowed;
        ``cheapest`` of all and ``best``, the cheapest of those, None if there is none or nothing
        has a price; ``impossible``, the functions whose objective no policy can meet; and ``text``,
        the same in sentences.
    """
    costs = {name: each["cost_per_1k"] for name, each in metrics.items()}
    meets = [name for name, each in metrics.items() if _meets(each, allowed)]
    best = _least({name: costs[name] for name in meets})
    answer = {"meets_objectives": meets, "cheapest": _least(costs), "best": best}
    unmet = {
        name: problem
        for name, problem in impossible.items()
        if not any(_meets(each, {name: allowed[name]}) for each in metrics.values())
    }
    sentences = [
        f"No policy can meet the objective of {name}, {problem.value}: expected {problem.expected}."
        for name, problem in unmet.items()
    ]
    text = " ".join([_text(metrics, meets, best), *sentences])
    return {**answer, "impossible": list(unmet), "text": text}


def _meets(metrics: Mapping[str, Any], allowed: Mapping[str, float]) -> bool:
    functions = metrics["functions"]
    return all((functions[name]["slo_miss_ratio"] or 0.0) <= most for name, most in allowed.items())


def _least(costs: Mapping[str, float | None]) -> str | None:
    known = {name: cost for name, cost in costs.items() if cost is not None}
    return min(known, key=lambda name: known[name], default=None)


def _text(metrics: Mapping[str, Mapping[str, Any]], meets: list[str], best: str | None) -> str:
    if not any(each["requests"] for each in metrics.values()):
        return "There were no requests."
    sentences = []
    if best and len(metrics) > 1:
        sentences.append(f"{best} is the cheapest policy that meets all objectives.")
    elif not meets and len(metrics) > 1:
        sentences.append("No policy meets all objectives.")
    own = metrics[best]["cost_per_1k"] if best else None
    for name in sorted(metrics, key=lambda name: name != best):
        each = metrics[name]
        missed = f"{100 * (each['slo_miss_ratio'] or 0.0):.2f} % miss their objective"
        kept = "" if name in meets else ", more than allowed"
        paid = _paid(each["cost_per_1k"], None if name == best else own, best)
        sentences.append(f"With {name}, {paid}{missed}{kept}.")
    return " ".join(sentences)


def _paid(cost: float | None, other: float | None, best: str | None) -> str:
    """Return the cost per thousand requests, relative to the best policy's."""
    if cost is None:
        return ""
    paid = f"a thousand requests cost {number(cost)}"
    if not other:
        return f"{paid}, and "
    more = cost / other - 1
    if abs(more) <= _AS_MUCH:
        return f"{paid}, as much as with {best}, and "
    return f"{paid}, {abs(100 * more):.0f} % {'more' if more > 0 else 'less'}, and "
