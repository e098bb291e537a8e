"""Compare ways to group the applications of a function by cost, and measure the time of planning.

``python -m benchmarks grouping --coefficients FILE`` prices the cases of HarmonyBatch's artefact by
its billing rule: its plans as the artefact prices them, with every batch assumed full; the real
cost of these plans; MBS+ (`benchmarks.mbs_plus`); and Carpool's plans. ``--simulate SECONDS`` also
simulates the latter; ``--exhaustive`` compares them with all divisions into any sets
(`benchmarks.divisions`), and ``--bound`` with a lower bound of the cost
(`benchmarks.division_bound`, in minutes). Without a file, the coefficients of the example are used.
``--plot FILE`` draws costs over the load.

Planning times are those of the first plan, which reads the latency model, and the median and the
maximum of later plans, each with the one before in force, for rates that rise in steps of a percent
of the first rate. The slowest search for groups; most reuse those found for nearly the same rates.
Times are CPU time, so that other programs change little.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.division_bound import least_cost
from benchmarks.divisions import bounded
from benchmarks.mbs_plus import mbs_plus
from benchmarks.published import Published
from carpool.arrivals.processes import Poisson
from carpool.latency.coefficients_file import read_coefficients
from carpool.scaling import Application, FunctionLoad
from scaler.control.guard import Guard
from scaler.planning.cost import Prices, billing
from scaler.planning.snapshot import Snapshot
from scaler.policies.harmonybatch.offers import offers
from scaler.policies.harmonybatch.policy import HarmonyBatch
from scaler.policies.harmonybatch.provisioning import Grouping, Provisioner, members_of
from scaler.scenarios.scenario import App, Function, Scenario
from simulator.metrics import measured
from simulator.reports.svg import Line, standalone
from simulator.settings import Settings
from simulator.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.latency.coefficients import Coefficients
    from scaler.policies.harmonybatch.settling import Group, Member

__all__ = ["main"]

_STAND_IN = Path(__file__).resolve().parents[1] / "examples/scenarios/tagging.json"
_PRICES = Prices("function-compute", 9e-5, 9e-6, 1.1e-4, call=9e-7)
_RULE = billing(_PRICES)
_EIGHT = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_CASES: dict[str, tuple[Sequence[float], Sequence[float]]] = {
    ".5 .8 1 s at 5 10 20": ((0.5, 0.8, 1.0), (5, 10, 20)),
    ".5 .6 .8 1 s at 5 5 5 15": ((0.5, 0.6, 0.8, 1.0), (5, 5, 5, 15)),
    "eight, .3 to 1 s at 5 each": (_EIGHT, (5,) * 8),
    "eight at 1 each": (_EIGHT, (1,) * 8),
    "eight at 1 2 1 2 3 20 3 2": (_EIGHT, (1, 2, 1, 2, 3, 20, 3, 2)),
}
_MAX_BATCH, _PERCENTILE, _MISS, _WAITING = 32, 0.99, 0.0075, 0.001
_SEEDS = 5
_COUNTS = (1, 3, 6, 12, 100, 1000)
_EXTRA = (("Carpool's plan", "simulated"), ("any sets", "exhaustive"), ("1 % late", "bound"))
_PER_SECOND = 1e5  # costs are shown for so many requests


def main(argv: list[str]) -> int:
    """Measure and print Markdown, or JSON with ``--json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks grouping", description=__doc__)
    parser.add_argument("--coefficients", type=Path, default=_STAND_IN)
    parser.add_argument("--simulate", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--exhaustive", action="store_true", help="try all sets of applications")
    parser.add_argument("--bound", action="store_true", help="what no division costs less than")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg")
    parser.add_argument("--rounds", type=int, default=9, help="plans a median is taken of (9)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    flags = parser.parse_args(argv)
    model = read_coefficients(flags.coefficients, load_s=2.0)
    if flags.plot:
        flags.plot.write_text(_plot(model), encoding="utf-8")
        return 0
    result = {
        "costs": {name: _costs(model, *case) for name, case in _CASES.items()},
        "planning_ms": {count: _planning_ms(model, count, flags.rounds) for count in _COUNTS},
        "simulated": {
            name: _simulated(model, *case, flags.simulate)
            for name, case in _CASES.items()
            if flags.simulate
        },
        "exhaustive": {
            name: _exhaustive(model, *case) for name, case in _CASES.items() if flags.exhaustive
        },
        "bound": {name: _bound(model, *case) for name, case in _CASES.items() if flags.bound},
    }
    print(json.dumps(result, indent=2) if flags.json else _page(result))
    return 0


def _costs(
    model: Coefficients, slos_s: Sequence[float], rates_rps: Sequence[float]
) -> dict[str, float]:
    """Return the cost of 100 000 requests by way of grouping."""
    apps = _members(slos_s, rates_rps)
    made = Provisioner(model, _RULE, _MAX_BATCH, _MISS, _WAITING)
    published = Published(model, _RULE, _MAX_BATCH).groups(apps, "optimal")
    counted = sum(g.cost * sum(rates_rps[g.first : g.last + 1]) for g in published)
    really = [
        made.settling.having(apps[g.first : g.last + 1], g.configuration, g.windows_s)
        for g in published
    ]
    guided = [_cost(mbs_plus(model, apps, made.settling, _MAX_BATCH, n)) for n in range(_SEEDS)]
    ways: tuple[Grouping, ...] = ("apart", "together", "two-stages", "optimal")
    return {
        "published, counted": counted / sum(rates_rps) * _PER_SECOND,
        "published, really": _cost(really),
        "MBS+": statistics.median(guided),
        **{way: _cost(made.groups(apps, way)) for way in ways},
    }


def _exhaustive(
    model: Coefficients, slos_s: Sequence[float], rates_rps: Sequence[float]
) -> dict[str, float]:
    """Return costs of 100 000 requests, with a quarter of the misses to spare and with none."""
    apps, costs = _members(slos_s, rates_rps), {}
    for name, miss in (("", _MISS), (", none to spare", 1 - _PERCENTILE)):
        made = Provisioner(model, _RULE, _MAX_BATCH, miss, _WAITING)
        limits = bounded(apps, offers(model, _RULE, _MAX_BATCH, miss), made.settling)
        costs[f"optimal{name}"] = _cost(made.groups(apps, "optimal"))
        for limit, money in dataclasses.asdict(limits).items():
            costs[f"{limit}{name}"] = money / sum(rates_rps) * _PER_SECOND
    return costs


def _bound(
    model: Coefficients, slos_s: Sequence[float], rates_rps: Sequence[float]
) -> dict[str, float]:
    """Return the cost of 100 000 requests with no misses to spare, as found and as bounded."""
    apps, miss = _members(slos_s, rates_rps), 1 - _PERCENTILE
    made = Provisioner(model, _RULE, _MAX_BATCH, miss, _WAITING)
    least = least_cost(apps, model, _RULE, _MAX_BATCH, miss)
    return {
        "found": _cost(made.groups(apps, "optimal")),
        "at least": least / sum(rates_rps) * _PER_SECOND,
    }


def _members(slos_s: Sequence[float], rates_rps: Sequence[float]) -> list[Member]:
    pairs = enumerate(zip(slos_s, rates_rps, strict=True))
    return members_of([Application(f"a{n:03}", slo_s, rate) for n, (slo_s, rate) in pairs])


def _cost(groups: Sequence[Group]) -> float:
    rate = sum(group.rate_rps for group in groups)
    return sum(group.cost * group.rate_rps for group in groups) / rate * _PER_SECOND


def _planning_ms(model: Coefficients, count: int, rounds: int) -> dict[str, float]:
    """Time the first plan, and the median and longest of the others; objectives .3 to 1 s."""
    policy, plan = Guard(HarmonyBatch(HarmonyBatch.Params(smoothing_s=0.0))), None
    took = []
    for number in range(rounds + 1):
        apps = tuple(
            Application(f"a{n}", 0.3 + 0.7 * n / count, 5.0 * (1 + 0.01 * number))
            for n in range(count)
        )
        load = FunctionLoad("f", model, 0.3, _PERCENTILE, _MAX_BATCH, apps, plan=plan)
        snapshot = Snapshot(10.0 * number, (load,), None, _PRICES)
        began = time.process_time()
        plan = policy.plan(snapshot).plans["f"]
        took.append((time.process_time() - began) * 1000)
    return {"first": took[0], "median": statistics.median(took[1:]), "longest": max(took[1:])}


def _simulated(
    model: Coefficients, slos_s: Sequence[float], rates_rps: Sequence[float], horizon_s: float
) -> dict[str, Any]:
    """Return what the plan predicts and what its simulation gives."""
    apps = tuple(
        App(f"a{n}", slo_s, Poisson(rate))
        for n, (slo_s, rate) in enumerate(zip(slos_s, rates_rps, strict=True))
    )
    function = Function("f", "m", model, min(slos_s), _PERCENTILE, _MAX_BATCH, apps)
    scenario = Scenario(Path("benchmark"), (), _PRICES, {"m": model}, (function,), {}, horizon_s)
    settings = Settings(interval_s=horizon_s, window_s=horizon_s)
    outcome = Simulation(scenario, Guard(HarmonyBatch(HarmonyBatch.Params())), settings).run()
    plan, result = outcome.functions[0].controller.plan, measured(outcome)
    assert plan is not None
    late = [app["slo_miss_ratio"] for app in result["functions"]["f"]["apps"].values()]
    return {
        "predicted": (plan.predicted.cost_per_request or 0.0) * _PER_SECOND,
        "simulated": result["cost"] / result["requests"] * _PER_SECOND,
        "most late": max(late),
    }


def _plot(model: Coefficients) -> str:
    """Plot the cost of a request over the rate of each of eight applications."""
    rates = [0.1 * 1.25**n for n in range(32)]
    drawn: dict[str, list[float]] = {"published, really": [], "apart": [], "optimal": []}
    for rate in rates:
        costs = _costs_at(model, rate)
        for name, values in drawn.items():
            values.append(costs[name])
    curves = [Line(name, rates, y, color) for color, (name, y) in enumerate(drawn.items())]
    return standalone(
        curves,
        (80, 140),
        x_label="requests/s of each of eight applications, objectives .3 to 1 s",
        y_label="CNY for 100 000 requests",
        log_x=True,
    )


def _page(result: dict[str, Any]) -> str:
    """Return the tables."""
    costs = result["costs"]
    names = list(next(iter(costs.values())))
    parts = [_row("CNY for 100 000 requests", names), _row("---", ["---:"] * len(names))]
    parts += [_row(case, [f"{row[n]:.3f}" for n in names]) for case, row in costs.items()]
    planning = result["planning_ms"]
    parts += ["", _row("applications", list(map(str, planning)))]
    parts.append(_row("---", ["---:"] * len(planning)))
    for which in ("first", "median", "longest"):
        parts.append(_row(f"{which}, ms", [f"{row[which]:.1f}" for row in planning.values()]))
    for title, table in _EXTRA:
        if result[table]:
            names = list(next(iter(result[table].values())))
            parts += ["", _row(title, names), _row("---", ["---:"] * len(names))]
        for case, row in result[table].items():
            parts.append(_row(case, [f"{row[n]:.4f}" for n in names]))
    return "\n".join(parts)


def _row(first: str, cells: Sequence[str]) -> str:
    return f"| {first} | {' | '.join(cells)} |"


def _costs_at(model: Coefficients, rate: float) -> dict[str, float]:
    apps = _members(_EIGHT, (rate,) * len(_EIGHT))
    made = Provisioner(model, _RULE, _MAX_BATCH, _MISS, _WAITING)
    published = Published(model, _RULE, _MAX_BATCH).groups(apps, "optimal")
    really = [
        made.settling.having(apps[g.first : g.last + 1], g.configuration, g.windows_s)
        for g in published
    ]
    ways: tuple[Grouping, ...] = ("apart", "optimal")
    return {"published, really": _cost(really)} | {w: _cost(made.groups(apps, w)) for w in ways}
