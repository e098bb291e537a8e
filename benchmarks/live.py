"""One trace on the running stack and in the simulator, under every scaling policy, side by side.

A small real model on instances of a quarter of a core each. How long its batches and its loading
take is measured on the stack first, and kept; the scenario made of that is replayed live by
``carpool compare --live`` and simulated, with parts of cores as the kernel hands them out
(``carpool simulate --quota --way``): the same requests, at the same times.

The trace is chosen so that small errors stay small. Where instances are as good as full, or a step
is more than they can take, a percentile says how long a backlog lasted, and three percent of an
execution time are thirty of that: on such a cliff two live runs differ by more than what is to be
compared. So the rate goes up and down in steps of a fifth, policies keep the spare room that their
objective asks for, and what is no longer wanted goes after ten seconds instead of a minute, so that
what the warming up has left behind is gone before the trace begins.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import live_report
from benchmarks.live_measuring import FUNCTION, Model, measured_model, stack_of
from benchmarks.live_report import compared
from benchmarks.live_scenario import BODY, Size, model_folder, written_scenario
from benchmarks.machine import commit, machine
from benchmarks.records import Records
from faas_stack.compare.command import live
from faas_stack.compare.policy_run import Request
from scaler.control.guard import Guard
from scaler.control.stabilization import Limits
from scaler.policy_choice import chosen_policy
from scaler.scenarios.scenario_file import read_scenario
from simulator.settings import Settings
from simulator.simulation import Simulation

if TYPE_CHECKING:
    from scaler.scenarios.scenario import Scenario
    from simulator.results import Outcome

__all__ = ["main", "simulated"]

_RESULTS = Path(__file__).parent / "results" / "live.md"
_POLICIES = ("fixed", "openfaas", "infless", "batch", "harmonybatch", "infaas")
_SIZE = Size(batch=2, cpu=0.25, slo_ms=200.0)
_HOLD_S = 10.0
_PARAMS: dict[str, dict[str, Any]] = {
    "fixed": {"replicas": 3, "cpu": _SIZE.cpu, "batch": _SIZE.batch, "wait_s": 0.0},
    "openfaas": {"proportion": 0.7, "keep_alive_s": 10.0},
}


@dataclass(frozen=True, slots=True)
class Trace:
    """Rates, one after another.

    Attributes:
        steps: Multiples of what one instance takes of single requests.
        each_s: How long each lasts.
    """

    steps: tuple[float, ...] = (1.2, 1.45, 1.75, 1.45, 1.2)
    each_s: int = 20

    @property
    def horizon_s(self) -> int:
        """How long all of it is."""
        return self.each_s * len(self.steps)

    def rates(self, single_rps: float) -> list[tuple[int, float]]:
        """When which rate begins."""
        return [(n * self.each_s, step * single_rps) for n, step in enumerate(self.steps)]


def main(argv: list[str]) -> int:
    """Measure, replay, simulate, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks live", description=__doc__)
    add = parser.add_argument
    add("--policy", action="append", choices=_POLICIES, help="only this one; may be repeated")
    add("--measure", action="store_true", help="measure the model anew; earlier runs are dropped")
    add("--simulate", action="store_true", help="only simulate anew what was run before")
    add("--out", type=Path, default=_RESULTS, help="default: %(default)s, with .jsonl beside it")
    args = parser.parse_args(argv)
    every = not (args.policy or args.simulate or args.measure)
    records = Records(args.out.with_suffix(".jsonl"), resume=not (args.measure or every))
    with tempfile.TemporaryDirectory(prefix="carpool-live-") as folder:
        handler = model_folder(Path(folder))
        model = _model(records, handler)
        rates, trace = Trace().rates(model.single_rps), Trace()
        path = written_scenario(handler.parent, model, rates, trace.horizon_s, _SIZE, _PARAMS)
        scenario = read_scenario(path)
        chosen = _POLICIES if every else args.policy or ()
        for policy in chosen:
            about = {"commit": commit(), "load_before": machine()["load_before"]}
            records.add("live", policy=policy, **about, **_replayed(scenario, handler, policy))
        ran = [p for p in _POLICIES if records.find("live", policy=p)]
        for policy in ran if args.simulate else chosen:
            said = compared(simulated(scenario, model, policy))
            records.add("simulated", policy=policy, commit=commit(), **said)
    text = live_report.markdown(records, model, rates, _SIZE)
    args.out.write_text(text)
    sys.stdout.write(text)
    return 0


def _model(records: Records, handler: Path) -> Model:
    """What was measured of the model, before or now."""
    known = records.last("model")
    if known is None:
        model = measured_model(handler, _SIZE.cpu, (1, _SIZE.batch), BODY)
        records.add("model", commit=commit(), machine=machine(), **model.to_dict())
        sys.stderr.write(f"measured: {model.said}\n")
        return model
    return Model.from_dict(known)


def _replayed(scenario: Scenario, handler: Path, policy: str) -> dict[str, float]:
    """What comes of the scenario on the running stack."""
    stack = stack_of(handler, _SIZE.cpu, _SIZE.slo_ms, _SIZE.batch)
    options = ("--hold", f"{_HOLD_S:g}s")
    real = live(scenario, (policy,), stack, {FUNCTION: Request("", BODY)}, options)
    return compared(real[policy])


def simulated(scenario: Scenario, model: Model, policy: str) -> Outcome:
    """What comes of the scenario in simulated time."""
    guard = Guard(chosen_policy(policy, scenario.policies), Limits(window_s=_HOLD_S))
    return Simulation(scenario, guard, Settings(quota=model.quota, way_s=model.way_s)).run()
