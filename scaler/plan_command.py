"""``carpool plan``: one round of planning for a scenario, as a table or as JSON.

The load is each application's mean rate, or its rate at a time; nothing is running yet.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carpool.params_argument import read_params
from carpool.plain_number import plain
from carpool.scaling import Application, FunctionLoad
from scaler.command_policy import ReportingGuard
from scaler.planning.placement import Cluster
from scaler.planning.snapshot import Snapshot
from scaler.policy_choice import check_policies, chosen_policy
from scaler.scenarios.scenario_file import read_scenario

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from carpool.plan import InstanceClass, Plan
    from scaler.control.planning_result import PlanningResult
    from scaler.scenarios.scenario import Scenario

__all__ = ["main", "plan_lines", "snapshot_of"]

_MS_PER_S = 1000
_HEADINGS = ("class", "instances", "cores", "GPU %", "batch", "exec ms", "requests/s")


def main(argv: list[str]) -> int:
    """Plan once and print the result; return 1 if some of the load could not be placed.

    Raises:
        ConfigError: A scenario, a policy or parameters cannot be used.
    """
    parser = argparse.ArgumentParser(
        prog="carpool plan", description="Plan once for a scenario, with nothing running yet."
    )
    parser.add_argument(
        "scenario", type=Path, help="a scenario file, or the name of an example such as osvt"
    )
    parser.add_argument(
        "--policy",
        required=True,
        help="an entry under the scenario's policies, a scaling policy's name, or pkg.module:Class",
    )
    parser.add_argument(
        "--params", default="{}", help="its parameters, as JSON; they override the scenario's"
    )
    parser.add_argument(
        "--at", type=float, metavar="SECONDS", help="plan for the rates at this time of the trace"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    arguments = parser.parse_args(argv)
    scenario = read_scenario(arguments.scenario)
    check_policies(scenario)
    policy = chosen_policy(
        arguments.policy, scenario.policies, read_params(arguments.params, '{"alpha": 0.5}')
    )
    guard = ReportingGuard(arguments.policy, policy)
    snapshot = snapshot_of(scenario, arguments.at)
    began = time.perf_counter()
    planning = guard.plan(snapshot)
    planning_ms = (time.perf_counter() - began) * _MS_PER_S
    if arguments.json:
        document = _document(arguments.policy, planning_ms, planning)
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        sys.stdout.write(_table(arguments.policy, planning_ms, snapshot, planning))
    return 1 if planning.unplaced else 0


def snapshot_of(scenario: Scenario, at_s: float | None = None) -> Snapshot:
    """Return a scenario as a policy sees it, with nothing running.

    Args:
        scenario: The scenario.
        at_s: Time whose rates are used; None for the mean rates.
    """
    functions = [
        FunctionLoad(
            name=function.name,
            model=function.model,
            slo_s=function.slo_s,
            percentile=function.percentile,
            max_batch=function.max_batch,
            apps=tuple(
                Application(
                    app.name,
                    app.slo_s,
                    app.arrivals.mean_rate if at_s is None else app.arrivals.rate(at_s),
                    app.arrivals,
                    app.accuracy,
                )
                for app in function.apps
            ),
        )
        for function in scenario.functions
    ]
    cluster = Cluster(scenario.nodes) if scenario.nodes else None
    return Snapshot(at_s or 0.0, tuple(functions), cluster, scenario.prices, beginning=True)


def _document(policy: str, planning_ms: float, planning: PlanningResult) -> dict[str, Any]:
    return {
        "policy": policy,
        "planning_ms": round(planning_ms, 3),
        "functions": {name: plan.to_dict() for name, plan in planning.plans.items()},
        "unplaced": dict(planning.unplaced),
    }


def _table(policy: str, planning_ms: float, snapshot: Snapshot, planning: PlanningResult) -> str:
    instances = sum(k.replicas for plan in planning.plans.values() for k in plan.classes)
    counted = f"{instances} instance{'' if instances == 1 else 's'}"
    lines = [f"{policy}: {counted}, planned in {planning_ms:.1f} ms"]
    for load in snapshot.functions:
        lines += ["", f"{load.name}: {plain(load.rate_rps)} requests/s"]
        plan = planning.plans.get(load.name)
        lines += plan_lines(plan) if plan else ["  no plan"]
        if load.name in planning.unplaced:
            lines.append(f"  unplaced: {plain(planning.unplaced[load.name])} requests/s")
        if load.name in planning.reasons:
            lines.append(f"  {planning.reasons[load.name]}")
    return "\n".join(lines) + "\n"


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield a plan as indented lines of text."""
    rows = [_HEADINGS, *map(_row, plan.classes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + _aligned(row, widths)
    others = " of other applications" if len(plan.routes) > 1 else ""
    for route in plan.routes:
        whose = others if route.app == "*" else f" of {route.app}"
        yield f"  maximum wait{whose}: {plain(route.max_wait_s * _MS_PER_S)} ms"
    yield from (f"  {sentence}" for sentence in plan.explain)


def _row(instance_class: InstanceClass) -> tuple[str, ...]:
    exec_ms = "" if instance_class.exec_s is None else f"{plain(instance_class.exec_s * _MS_PER_S)}"
    high = "" if instance_class.rate_high is None else f"{plain(instance_class.rate_high)}"
    amounts = (
        f"{instance_class.replicas}",
        f"{plain(instance_class.cpu)}",
        f"{plain(instance_class.gpu)}",
        f"{instance_class.batch_size}",
    )
    return (
        instance_class.name,
        *amounts,
        exec_ms,
        f"{plain(instance_class.rate_low)} to {high or 'any'}",
    )


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.ljust(width) if not at else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join([first, *others])
