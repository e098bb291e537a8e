"""Bound the cost of any policy from below, on a scenario whose load is known.

All bounds consider one stretch of the load after the other, know it beforehand, and start and stop
instances at once and at no cost. From the lowest to the highest:

* ``any part``: instances can be split into parts, so that nothing is ever idle.
* ``whole``: whole instances, and requests that arrive as regularly as possible. Batches may take
  the whole objective. Requests may be dropped where that saves most, up to the given share; the
  bound is Lagrange's, with a price for each dropped request.
* ``random``: whole instances, as many as random arrivals need by the policy's own rule
  (`scaler.policies.common.staffing`, exact to a twentieth or an instance). Unlike the others this
  is no proof, but the policy's cost if it knew the rates and did not have to wait or hold.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from scaler.plan_command import snapshot_of
from scaler.policies.infaas.offers import Offers
from scaler.policies.infaas.program import program
from scaler.policies.infaas.task import Need, Option, Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from carpool.latency import LatencyModel
    from carpool.scaling import FunctionLoad
    from scaler.scenarios.scenario import Scenario

__all__ = ["Bounds", "bounds"]

_STEP_S = 10.0  # of the scenario's traces
_GRAIN_RPS = 0.1  # in such steps requests are let go
_PRICES = (5e-6, 1.5e-5)  # of a request let go, tried in turn
_STEP = 1.02  # rates are rounded down to a power of this, so that there are fewer to solve for


class Bounds(NamedTuple):
    """Costs of a whole scenario, by the allowed share of misses where that matters.

    Attributes:
        any_part: With divisible instances.
        whole: With whole instances.
        random: With whole instances and random arrivals.
    """

    any_part: float
    whole: dict[float, float]
    random: dict[float, float]


class _Stretch(NamedTuple):
    """One function during one stretch of the load."""

    options: tuple[Option, ...]
    rates_rps: tuple[float, ...]
    worths: tuple[tuple[float, ...], ...]


def bounds(scenario: Scenario, missed: Sequence[float]) -> Bounds:
    """Return the least costs of the scenario for these allowed shares of missed requests."""
    regular = list(_stretches(scenario, None))
    requests = sum(sum(each.rates_rps) for each in regular) * _STEP_S
    any_part = sum(map(_in_parts, regular))
    whole = {0.0: sum(_in_whole(each, math.inf) for each in regular)}
    let_go = {price: sum(_in_whole(each, price) for each in regular) for price in _PRICES}
    for share in missed:
        own = max(cost - price * share * requests for price, cost in let_go.items())
        whole[share] = max(own, any_part * (1 - share))
    random = {
        share: sum(_in_whole(each, math.inf) for each in _stretches(scenario, share))
        for share in missed
    }
    return Bounds(any_part, whole, random)


def _stretches(scenario: Scenario, missed: float | None) -> Iterator[_Stretch]:
    """Yield every function at every rate, with instances rated for random arrivals if asked."""
    offers_of = Offers()
    for function, load in zip(scenario.functions, snapshot_of(scenario).functions, strict=True):
        regular = list(_regular(scenario, load))
        offers = offers_of.of(load)
        for number in range(int(scenario.horizon_s / _STEP_S)):
            rates = tuple(_rounded(app.arrivals.rate(number * _STEP_S)) for app in function.apps)
            if missed is None:
                worths = tuple(zip(*[worth for _, worth in regular], strict=True))
                yield _Stretch(tuple(option for option, _ in regular), rates, worths)
            else:
                options = tuple(
                    Option(o.size.rate_rps, scenario.prices.per_second(o.size.resources))
                    for o in offers
                )
                worths = tuple(
                    tuple(o.worth_rps(app, rate, rate, missed) for o in offers)
                    for app, rate in zip(load.apps, rates, strict=True)
                )
                yield _Stretch(options, rates, worths)


def _regular(scenario: Scenario, load: FunctionLoad) -> Iterator[tuple[Option, tuple[float, ...]]]:
    """Yield every variant with its highest rate for each application."""
    for accuracy, model in _models(load.model):
        shapes: dict[tuple[float, float], dict[int, float]] = {}
        for batch, cpu, gpu in model.configurations(load.max_batch):
            exec_s = model.predict(batch, cpu, gpu, load.percentile)
            if exec_s:
                shapes.setdefault((cpu, gpu), {})[batch] = exec_s
        for (cpu, gpu), times in shapes.items():
            worth = tuple(
                max([b / t for b, t in times.items() if t <= app.slo_s], default=0.0)
                if accuracy >= app.accuracy
                else 0.0
                for app in load.apps
            )
            cost = scenario.prices.per_second(model.resources(1, cpu, gpu))
            yield Option(max(worth), cost), worth


def _models(model: LatencyModel) -> list[tuple[float, LatencyModel]]:
    variants = getattr(model, "variants", ())
    return [(each.accuracy, model.of(each.name)) for each in variants] or [(1.0, model)]  # type: ignore[attr-defined]


def _in_parts(stretch: _Stretch) -> float:
    """Return the cost with every request where it costs the least."""
    return _STEP_S * sum(
        rate * min(o.cost / w for o, w in zip(stretch.options, worth, strict=True) if w)
        for rate, worth in zip(stretch.rates_rps, stretch.worths, strict=True)
    )


def _rounded(rate_rps: float) -> float:
    """Round the rate down, which keeps a bound valid."""
    return _STEP ** math.floor(math.log(rate_rps) / math.log(_STEP)) if rate_rps else 0.0


@cache
def _in_whole(stretch: _Stretch, price: float) -> float:
    """Solve the integer program, in which a request may be dropped for ``price``."""
    options, worths = stretch.options, stretch.worths
    spared = 0.0
    if price < math.inf:
        options = (*options, Option(_GRAIN_RPS, price * _GRAIN_RPS))
        worths = tuple((*worth, _GRAIN_RPS) for worth in worths)
        spared = price * _GRAIN_RPS  # what a step of it may be too much
    needs = tuple(Need(*each) for each in zip(stretch.rates_rps, worths, strict=True))
    counts = program(Task(options, (0,) * len(options), needs)).counts
    cost = sum(option.cost * count for option, count in zip(options, counts, strict=True))
    return _STEP_S * max(cost - spared, 0.0)
