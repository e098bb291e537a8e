"""Compare a trace on the running stack with its simulation, under every scaling policy.

Two functions: a small real model, on instances of a quarter of a core each, and a stand-in that
takes as long and computes nothing, so that only queueing, batching and scaling are compared. First
the times of executions and of loading are measured on the stack, and kept. A scenario made from
them is replayed live by ``carpool compare --live`` and simulated, with the same requests at the
same times. For the real model, the kernel's scheduling of parts of a core is simulated (``carpool
simulate --quota``); the time on the network (``--network-time``) and the slowdown of executions
while other instances load (``--loading-slows``) are measured for both.

The trace is chosen so that small errors have small effects. If instances are nearly saturated, or
the load steps beyond what they can serve before others have loaded, a percentile shows how long a
backlog lasted: three percent of an execution time then change it by thirty, and two live runs
differ by more than what is to be compared. So the rate rises in steps that the existing instances
can serve, and batches take several periods of the quota. Chance remains: a cluster of requests that
just counts as a surge, or just does not, is an instance for a minute. So of several seeds, the one
is taken whose simulated numbers change the least with what differs between any two runs: the times
of planning rounds, and half a percent of an execution time. No live run has a part in that choice.

The machine is not as fast in each run as when it was measured. Runs that did not record their
execution times, a quarter of an hour apart, had median latencies as if executions had taken 10 %
longer in one and 6 % less in another. So runs record these times, and each policy is simulated
twice: with the times measured before, and with executions that take as long as in the median of
its runs (``carpool simulate --exec-factor``), while policies plan with the times measured before,
as live. Both are on the page.

To a policy, the first requests of the warm-up are a jump, for which some start more instances than
their rate needs. Instances that are no longer wanted are removed after ten seconds instead of a
minute, and the trace begins when no policy remembers that jump. What happened before can still
last: an instance that is never idle for long enough stays. So a live run records the instances that
it began with, and its simulations begin with the same. The first rate is in the middle between
rates at which a policy would begin with another number of instances.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import live_report
from benchmarks.live_measuring import FUNCTION, Model, measured_model, measured_stand_in, stack_of
from benchmarks.live_report import (
    AT_SPEED,
    EXECUTION,
    SPREAD_OVER,
    changes,
    compared,
    execution_ms,
)
from benchmarks.live_scenario import BODY, Size, model_folder, written_scenario
from benchmarks.machine import commit, machine
from benchmarks.records import Records
from carpool.plan import Plan
from faas_stack.compare.policy_run import PolicyRunner, Request
from faas_stack.compare.stack_under_test import write_stand_ins
from scaler.control.guard import Guard
from scaler.control.stabilization import StabilizationLimits
from scaler.policy_choice import chosen_policy
from scaler.scenarios.scenario_file import read_scenario
from simulator.settings import Settings
from simulator.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler.scenarios.scenario import Scenario
    from simulator.results import ScenarioResult

__all__ = ["Case", "exec_factor", "forget", "main", "simulated"]

_RESULTS = Path(__file__).parent / "results" / "live.md"
_CASES = ("stand-ins", "model")
_POLICIES = ("fixed", "openfaas", "infless", "batch", "harmonybatch", "infaas")
# Those whose numbers vary the most over similar runs come first: often, the rest is not needed.
_VARYING = tuple(dict.fromkeys(("infaas", "batch", "harmonybatch", "openfaas", *_POLICIES)))
_SIZE = Size(batch=2, cpu=0.25, slo_ms=300.0)
_LAYERS = (32, 5000, 5000, 5000, 32)
_STEPS, _STEP_S = (1.14, 1.6, 2.4, 1.6, 1.14), 20  # times what an instance takes one by one
_HOLD_S = 10.0
_STEADY_S = 50.0  # infaas averages over 10 s, and then waits for another 10 s and _HOLD_S
_SEEDS = range(1, 41)
_INTERVALS_S = (0.45, 0.5, 0.55, 0.62)  # from one planning round to the next
_FACTORS = (0.995, 1.005)  # of an execution time
_TRIES = 4  # each leaves about a third of the error
_PARAMS: dict[str, dict[str, Any]] = {
    "fixed": {"replicas": 3, "cpu": _SIZE.cpu, "batch": _SIZE.batch, "wait_s": 0.0},
    "openfaas": {"proportion": 0.7, "keep_alive_s": _HOLD_S},
}
# What a stand-in is meant to take; what its processes take beside that is measured.
_STAND_IN = Model(0.06, 0.0025, 2.0, {}, 0.0625, 0.0, None)


@dataclass(frozen=True, slots=True)
class Case:
    """A function to run live and simulate.

    Attributes:
        name: One of `_CASES`.
        model: The measurements.
        scenario: The scenario to replay and simulate, with the measured times.
        stack: The stack file.
        start: What a live run began with, for its simulations.
    """

    name: str
    model: Model
    scenario: Scenario
    stack: Path
    start: Mapping[str, Plan] = field(default_factory=dict)


def main(argv: list[str]) -> int:
    """Measure, replay, simulate, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks live", description=__doc__)
    add = parser.add_argument
    add("--case", choices=_CASES, action="append", help="only this one; may be repeated")
    add("--policy", choices=_POLICIES, action="append", help="only this one; may be repeated")
    expected = "start again: delete what was measured and run before, of these cases and policies"
    add("--again", action="store_true", help=expected)
    add("--simulate", action="store_true", help="only simulate again what was run before")
    add("--out", type=Path, default=_RESULTS, help="default: %(default)s, with .jsonl beside it")
    args = parser.parse_args(argv)
    records = Records(args.out.with_suffix(".jsonl"), resume=True)
    if args.again:
        forget(records, args.case or _CASES, args.policy or ())
    for name in args.case or _CASES:
        with tempfile.TemporaryDirectory(prefix="carpool-live-") as folder:
            case = _case(name, records, Path(folder))
            for policy in args.policy or _POLICIES:
                if not args.simulate:
                    about = {"commit": commit(), "load_before": machine()["load_before"]}
                    records.add(
                        "live", case=name, policy=policy, **about, **_replayed(case, policy)
                    )
                _simulate(case, policy, records)
                args.out.write_text(_page(records))
    sys.stdout.write(_page(records))
    return 0


def forget(records: Records, cases: Sequence[str], policies: Sequence[str]) -> None:
    """Delete the runs of these policies in these cases; without policies, all of the cases."""
    for case in cases:
        for policy in policies:
            records.forget(case=case, policy=policy)
        if not policies:
            records.forget(case=case)


def _simulate(case: Case, policy: str, records: Records) -> None:
    """Simulate what was run live, with the times measured before and the runs' median time."""
    runs = records.find("live", case=case.name, policy=policy)
    if not runs:
        return
    about = {"case": case.name, "policy": policy, "commit": commit()}
    case = replace(case, start=_start(runs[-1]))
    records.add("simulated", **about, **_said(simulated(case, policy)))
    times_ms = [run[EXECUTION] for run in runs if EXECUTION in run]
    if times_ms:
        factor = exec_factor(case, policy, statistics.median(times_ms))
        at_speed = _said(simulated(case, policy, factor=factor))
        records.add(AT_SPEED, **about, factor=factor, **at_speed)


def _start(run: Mapping[str, Any]) -> dict[str, Plan]:
    """Return the plan with the instances that a live run began with; older runs have none."""
    return {FUNCTION: Plan.from_dict(run["start"])} if "start" in run else {}


def exec_factor(case: Case, policy: str, exec_ms: float) -> float:
    """Return the factor with which simulated executions take ``exec_ms`` in the mean."""
    factor = 1.0
    for _ in range(_TRIES):
        said_ms = execution_ms(simulated(case, policy, factor=factor), _SIZE.cpu)
        factor *= exec_ms / said_ms
    return factor


def _page(records: Records) -> str:
    models = {case: _known(records, case) for case in _CASES}
    rates = {case: _rates(case, model) for case, model in models.items() if model}
    return live_report.markdown(records, {c: m for c, m in models.items() if m}, rates, _SIZE)


def _known(records: Records, case: str) -> Model | None:
    record = records.last("model", case=case)
    return Model.from_dict(record) if record else None


def _rates(case: str, model: Model) -> list[tuple[int, float]]:
    """Return the rates of the trace with their start times."""
    single_rps = (model if case == "model" else _STAND_IN).single_rps
    return [(n * _STEP_S, step * single_rps) for n, step in enumerate(_STEPS)]


def _case(name: str, records: Records, folder: Path) -> Case:
    """Return a case with its recorded measurements, or measure it now."""
    real = name == "model"
    handler = model_folder(folder, _LAYERS) if real else folder
    model = _known(records, name)
    if model is None:
        if real:
            model = measured_model(handler, _SIZE.cpu, (1, _SIZE.batch), BODY)
        else:
            meant = _scenario(name, folder / "meant", _STAND_IN)
            model = measured_stand_in(meant, folder, _SIZE.cpu, BODY)
        records.add("model", case=name, commit=commit(), machine=machine(), **model.to_dict())
        sys.stderr.write(f"{name}, measured: {model.said}\n")
    if real:
        stack = stack_of(handler, _SIZE.cpu, _SIZE.slo_ms, _SIZE.batch)
    else:
        stack = write_stand_ins(_scenario(name, folder / "meant", _STAND_IN), folder / "stack")
    case = Case(name, model, _scenario(name, folder / "measured", model), stack)
    known = records.last("seed", case=name)
    if known is None:
        spreads = _spreads(case)
        known = {"seed": min(spreads, key=spreads.__getitem__)}
        records.add("seed", case=name, commit=commit(), **known, spreads=spreads)
    return _seeded(case, known["seed"])


def _scenario(case: str, folder: Path, model: Model) -> Scenario:
    folder.mkdir(exist_ok=True)
    horizon_s = _STEP_S * len(_STEPS)
    path = written_scenario(folder, model, _rates(case, model), horizon_s, _SIZE, _PARAMS)
    return read_scenario(path)


def _seeded(case: Case, seed: int) -> Case:
    return replace(case, scenario=replace(case.scenario, seed=seed))


def _spreads(case: Case) -> dict[int, float]:
    """Return the spread of each seed; of those with more than the least so far, a part of it."""
    spreads: dict[int, float] = {}
    with ProcessPoolExecutor() as pool:
        at_once = os.cpu_count() or 1
        for first in range(0, len(_SEEDS), at_once):
            seeds = _SEEDS[first : first + at_once]
            least = min(spreads.values(), default=math.inf)
            cases = [_seeded(case, seed) for seed in seeds]
            spreads |= zip(seeds, pool.map(_spread, cases, [least] * len(seeds)), strict=True)
    return spreads


def _spread(case: Case, least: float) -> float:
    """Return the largest relative spread of a policy's simulated numbers over similar runs.

    Once a policy's is above ``least``, the others are not simulated.
    """
    spread = 0.0
    for policy in _VARYING:
        spread = max(spread, _spread_of(case, policy))
        if spread > least:
            break
    return spread


def _spread_of(case: Case, policy: str) -> float:
    base_s = case.model.base_s
    runs = [compared(simulated(case, policy, interval_s)) for interval_s in _INTERVALS_S]
    for factor in _FACTORS:
        # The scenario's own model, so that policies plan with what batches take.
        model = replace(case.model, base_s=factor * base_s)
        with tempfile.TemporaryDirectory() as folder:
            scenario = _scenario(case.name, Path(folder), model)
            varied = replace(case, model=model, scenario=scenario)
            runs.append(compared(simulated(_seeded(varied, case.scenario.seed), policy)))
    columns = ([run[name] for run in runs] for name in SPREAD_OVER)
    return max((max(column) - min(column)) / statistics.fmean(column) for column in columns)


def _said(result: ScenarioResult) -> dict[str, Any]:
    execution = {EXECUTION: execution_ms(result, _SIZE.cpu)}
    return {**compared(result), **execution, "changes": changes(result)}


def _replayed(case: Case, policy: str) -> dict[str, Any]:
    """Replay the trace on the running stack and return the results."""
    options = ("--hold", f"{_HOLD_S:g}s")
    requests = {FUNCTION: Request("", BODY)}
    # A stand-in takes no core, and is held to none.
    confined = case.model.quota is not None
    trial = PolicyRunner(
        case.scenario, case.stack, requests, options, confined=confined, steady_s=_STEADY_S
    )
    result = trial.run(policy)
    return {**_said(result), "start": result.start[FUNCTION].to_dict()}


def simulated(
    case: Case, policy: str, interval_s: float = 0.5, factor: float = 1.0
) -> ScenarioResult:
    """Simulate the trace, planning every ``interval_s``, with executions times ``factor``."""
    scenario, model = case.scenario, case.model
    guard = Guard(chosen_policy(policy, scenario.policies), StabilizationLimits(window_s=_HOLD_S))
    settings = Settings(
        interval_s=interval_s,
        quota=model.quota,
        network_s=model.way_s,
        loading_slows=model.loading_slows,
        exec_factor=factor,
        start=case.start,
    )
    return Simulation(scenario, guard, settings).run()
