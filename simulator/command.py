"""``carpool simulate``: simulate a scenario under one or more policies, side by side."""

from __future__ import annotations

import json
import sys
import textwrap
import time
from typing import TYPE_CHECKING

from carpool.validation.output_file import write_output
from scaler.command_policy import ReportingGuard
from scaler.policy_choice import check_policies, chosen_policy, executed
from scaler.scenarios.scenario_file import read_scenario
from simulator import flags
from simulator.arrivals import check_load
from simulator.metrics import measured
from simulator.objective_check import impossible_objectives
from simulator.reports import comparison_table, html_report
from simulator.reports.summary import summary
from simulator.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler.scenarios.scenario import Scenario
    from simulator.results import ScenarioResult

__all__ = ["main", "tell"]

_LINE = 100  # characters per line of text
_QUIET_S = 2.0  # a run that ends by then shows no progress
_OFTEN_S, _SELDOM_S = 0.2, 10.0  # time between lines of progress on a terminal, and in a file


def main(argv: list[str], prog: str = "carpool simulate") -> int:
    """Simulate, print, and write a report if one is asked for; ``prog`` is the command's name.

    Raises:
        ConfigError: flags, a scenario or policies that cannot be used, or a policy that fails.
    """
    chosen = flags.parse(argv, prog)
    scenario = chosen.applied(read_scenario(chosen.scenario))
    check_policies(scenario)
    check_load(scenario, chosen.settings.interval_s)
    policies = {name: chosen_policy(name, scenario.policies) for name in chosen.policies}
    scenarios = {name: executed(name, scenario) for name in chosen.policies}
    results: dict[str, ScenarioResult] = {}
    for number, (name, policy) in enumerate(policies.items(), 1):
        guard = ReportingGuard(name, policy)
        progress = _progress(f"{name} ({number} of {len(policies)})" if len(policies) > 1 else name)
        simulation = Simulation(scenarios[name], guard, chosen.settings, progress)
        results[name] = simulation.run()
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
        sys.stderr.writelines(f"{complaint}\n" for complaint in guard.complaints())
    tell(chosen, scenario, results)
    return 0


def tell(
    chosen: flags.SimulateArguments, scenario: Scenario, results: dict[str, ScenarioResult]
) -> None:
    """Print the results under each policy, and write a report if requested."""
    metrics = {name: measured(result) for name, result in results.items()}
    allowed = {each.name: 1 - each.percentile for each in scenario.functions}
    came = summary(metrics, allowed, impossible_objectives(scenario.functions))
    if chosen.as_json:
        sys.stdout.write(json.dumps({"policies": metrics, "summary": came}, indent=2) + "\n")
    else:
        sys.stdout.write(comparison_table.comparison(metrics, results))
        sys.stdout.write("\n" + textwrap.fill(came["text"], _LINE) + "\n")
    if chosen.report:
        sys.stdout.flush()
        write_output("--report", chosen.report, html_report.page(scenario, results, metrics))


def _progress(name: str) -> Callable[[float], None]:
    """Return a progress callback; on a terminal it rewrites one line.

    The time left is of this run alone, by the wall clock.
    """
    began = shown = time.monotonic()
    terminal = sys.stderr.isatty()

    def show(share: float) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - began < _QUIET_S or now - shown < (_OFTEN_S if terminal else _SELDOM_S):
            return
        shown = now
        left_s = (now - began) * (1 - share) / share if share else 0.0
        line = f"{name}: {share:.0%} simulated, about {left_s:.0f} s left"
        sys.stderr.write(f"\r{line}\x1b[K" if terminal else f"{line}\n")
        sys.stderr.flush()

    return show
