"""A bursty trace on the running stack and in the simulator, side by side.

A small real model on instances of a quarter of a core each, under `infless` and `openfaas`. How
long its batches and its loading take is measured on the stack first; the scenario made of that is
replayed live by ``carpool compare --live`` and simulated as a live scaler would plan
(``carpool simulate --as-live``): the same requests, at the same times.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import yaml

from benchmarks import live_report
from benchmarks.live_measuring import FUNCTION, measured_model, stack_of
from examples.models import mlp
from faas_stack.compare.command import live
from faas_stack.compare.trial import Request
from scaler.core.guard import Guard
from scaler.core.scenario_file import read_scenario
from scaler.policy_choice import chosen_policy
from simulator.engine import Simulation
from simulator.settings import Settings

if TYPE_CHECKING:
    from benchmarks.live_measuring import Model
    from scaler.core.scenario import Scenario
    from simulator.account import Outcome

__all__ = ["main"]

_RESULTS = Path(__file__).parent / "results" / "live.md"
_POLICIES = ("infless", "openfaas")
_LAYERS = (32, 5000, 5000, 32)
_HANDLER = """\
import numpy as np

def preprocess(item):
    return np.frombuffer(item.body, np.float32)

def postprocess(outputs):
    return next(iter(outputs.values())).tobytes()
"""
_BODY = bytes(4 * _LAYERS[0])
_AS_LIVE = Settings(interval_s=0.5, window_s=10.0, live_rates=True)


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
    parser.add_argument("--batch", type=int, default=8, help="largest batch")
    parser.add_argument("--json", action="store_true", help="print all numbers too")
    args = parser.parse_args(argv)
    shape = Shape()
    with tempfile.TemporaryDirectory(prefix="carpool-live-") as folder:
        handler = _handler(Path(folder))
        stack = stack_of(handler, args.cpu, args.slo, args.batch)
        model = measured_model(stack, _BODY)
        sys.stderr.write(f"measured: {model.said}\n")
        scenario = _scenario(Path(folder), model, shape, args)
        real = live(scenario, _POLICIES, stack, {FUNCTION: Request("", _BODY)})
        simulated = {policy: _simulated(scenario, policy) for policy in _POLICIES}
        found = live_report.Found(model, shape.rates(model.single_rps), real, simulated)
    text = live_report.markdown(found, args)
    args.out.write_text(text)
    sys.stdout.write(text)
    if args.json:
        sys.stdout.write(json.dumps(found.numbers(), indent=2) + "\n")
    return 0


def _handler(folder: Path) -> Path:
    home = folder / FUNCTION
    home.mkdir()
    onnx.save(mlp(_LAYERS, 1), home / "model.onnx")
    (home / "handler.py").write_text(_HANDLER)
    return home


def _scenario(folder: Path, model: Model, shape: Shape, args: argparse.Namespace) -> Scenario:
    """The scenario of what was measured; kept beside the results, for whoever wants to see it."""
    rows = ["start_s,requests_per_minute"]
    rows += [f"{at_s},{60 * rate:.3f}" for at_s, rate in shape.rates(model.single_rps)]
    rows.append(f"{shape.horizon_s},0")
    (folder / "bursty.csv").write_text("\n".join(rows) + "\n")
    line = {"base_ms": model.base_s * 1e3, "per_item_ms": model.per_item_s * 1e3, "cpu": args.cpu}
    document: dict[str, Any] = {
        "models": {"model": {"linear": line, "load_s": model.load_s}},
        "functions": [
            {
                "name": FUNCTION,
                "model": "model",
                "slo_ms": args.slo,
                "max_batch": args.batch,
                "apps": [{"name": "web", "arrivals": {"trace": "bursty.csv"}}],
            }
        ],
        "horizon_s": shape.horizon_s,
        "seed": 1,
    }
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return read_scenario(path)


def _simulated(scenario: Scenario, policy: str) -> Outcome:
    guarded = Guard(chosen_policy(policy, scenario.policies))
    return Simulation(scenario, guarded, _AS_LIVE).run()
