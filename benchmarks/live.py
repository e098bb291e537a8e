"""A bursty trace on the running stack and in the simulator, side by side.

A small real model on instances of a quarter of a core each, under `infless` and `openfaas`. How
long its batches and its loading take is measured on the stack first; the scenario made of that is
replayed live by ``carpool compare --live`` and simulated as a live scaler would plan, with parts of
cores as the kernel hands them out (``carpool simulate --quota --way``): the same
requests, at the same times. That is done for batches of up to 8 and of up to 4.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import live_report
from benchmarks.live_measuring import FUNCTION, measured_model, stack_of
from benchmarks.live_report import Case, Found
from benchmarks.live_scenario import BODY, Size, model_folder, written_scenario
from faas_stack.compare.command import live
from faas_stack.compare.policy_run import Request
from scaler.control.guard import Guard
from scaler.policy_choice import chosen_policy
from scaler.scenarios.scenario_file import read_scenario
from simulator.settings import Settings
from simulator.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.live_measuring import Model
    from scaler.scenarios.scenario import Scenario
    from simulator.results import Outcome

__all__ = ["main"]

_RESULTS = Path(__file__).parent / "results" / "live.md"
_POLICIES = ("infless", "openfaas")
_CASES = (
    Case(
        8, "One instance of `infless` takes nearly all of the burst: chance says if one is added."
    ),
    Case(4, "One instance of `infless` takes two thirds of the burst."),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """A trace of two rates: low, and now and then a burst.

    Attributes:
        low, high: Multiples of what one instance takes of single requests.
        bursts: From when until when, in seconds.
        horizon_s: How long all of it is.
    """

    low: float = 1.5
    high: float = 4.2
    bursts: tuple[tuple[int, int], ...] = ((30, 60), (90, 120))
    horizon_s: int = 140

    def rates(self, single_rps: float) -> list[tuple[int, float]]:
        """When which rate begins."""
        low, high = self.low * single_rps, self.high * single_rps
        steps = [(0, low)]
        for start_s, end_s in self.bursts:
            steps += [(start_s, high), (end_s, low)]
        return steps


def main(argv: list[str]) -> int:
    """Measure, replay, simulate, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks live", description=__doc__)
    parser.add_argument("--out", type=Path, default=_RESULTS, help="default: %(default)s")
    parser.add_argument("--cpu", type=float, default=0.25, help="cores of an instance")
    parser.add_argument("--slo", type=float, default=400.0, help="objective in ms")
    parser.add_argument("--batch", type=int, action="append", help="of the cases only this one")
    parser.add_argument("--json", action="store_true", help="print all numbers too")
    args = parser.parse_args(argv)
    shape = Shape()
    with tempfile.TemporaryDirectory(prefix="carpool-live-") as folder:
        handler = model_folder(Path(folder))
        sizes = sorted({1, *(case.batch for case in _CASES)})
        model = measured_model(handler, args.cpu, sizes, BODY)
        sys.stderr.write(f"measured: {model.said}\n")
        cases = [case for case in _CASES if not args.batch or case.batch in args.batch]
        found = [_found(case, handler, model, shape, args) for case in cases]
    text = live_report.markdown(found, args)
    args.out.write_text(text)
    sys.stdout.write(text)
    if args.json:
        sys.stdout.write(json.dumps([each.numbers() for each in found], indent=2) + "\n")
    return 0


def _found(
    case: Case, handler: Path, model: Model, shape: Shape, args: argparse.Namespace
) -> Found:
    """One case, live and simulated."""
    stack = stack_of(handler, args.cpu, args.slo, case.batch)
    rates, size = shape.rates(model.single_rps), Size(case.batch, args.cpu, args.slo)
    scenario = read_scenario(written_scenario(handler.parent, model, rates, shape.horizon_s, size))
    real = live(scenario, _POLICIES, stack, {FUNCTION: Request("", BODY)})
    simulated = simulations(scenario, model, _POLICIES)
    return Found(case, model, rates, real, simulated)


def simulations(scenario: Scenario, model: Model, policies: Sequence[str]) -> dict[str, Outcome]:
    """What comes of the scenario in simulated time, planned as live."""
    as_live = Settings(quota=model.quota, way_s=model.way_s)
    return {
        policy: Simulation(scenario, Guard(chosen_policy(policy, scenario.policies)), as_live).run()
        for policy in policies
    }
