"""The flags of ``carpool simulate``, read strictly: every problem is reported in one go."""

from __future__ import annotations

import argparse
import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from carpool import setting_types
from carpool.params_argument import read_params
from carpool.setting_spec import read_value
from carpool.validation.output_file import check_output
from carpool.validation.problems import Problems
from scaler.policy_choice import PREWARM, prewarm_maker
from simulator.quota import Quota
from simulator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scaler.prewarm.contract import PrewarmPolicy
    from scaler.scenarios.scenario import Scenario

__all__ = ["SimulateArguments", "parse"]

_INTERVAL, _WINDOW = "500ms", "10s"  # defaults of carpool scaler run
_RATE_LEVEL_INTERVAL = "10s"  # long, so that requests left over from an interval hardly matter
_NO_PREWARM = "none"
_TIME = setting_types.duration("a duration above 0 such as 10s or 1m30s", lambda v: v > 0)
_NOISE = setting_types.decimal("a number of at least 0 such as 0.1", lambda v: v >= 0)
_FACTOR = setting_types.decimal("a number above 0 such as 1.1", lambda v: v > 0)
_COUNT = setting_types.integer("a number of at least 1", lambda v: v >= 1)
_SEED = setting_types.integer("a whole number of at least 0", lambda v: v >= 0)


@dataclass(frozen=True, slots=True)
class SimulateArguments:
    """Arguments of one call of the command.

    Attributes:
        scenario: The scenario file.
        policies: Names of the policies, without duplicates.
        settings: Simulation settings.
        horizon_s, seed: Replace the scenario's values; None to keep them.
        as_json: Print JSON.
        report: Path of an HTML report to write.
    """

    scenario: Path
    policies: list[str]
    settings: Settings
    horizon_s: float | None
    seed: int | None
    as_json: bool
    report: Path | None

    def applied(self, scenario: Scenario) -> Scenario:
        """Return the scenario with the requested horizon and seed."""
        if self.horizon_s is not None:
            scenario = dataclasses.replace(scenario, horizon_s=self.horizon_s)
        if self.seed is not None:
            scenario = dataclasses.replace(scenario, seed=self.seed)
        return scenario


def parse(argv: Sequence[str], prog: str = "carpool simulate") -> SimulateArguments:
    """Parse the command line of the command named ``prog``.

    Raises:
        ConfigError: values that cannot be used.
    """
    flags = _parser(prog).parse_args(argv)
    problems = Problems()
    interval = flags.interval or (_RATE_LEVEL_INTERVAL if flags.rate_level else _INTERVAL)
    interval_s = read_value(_TIME, "--interval", interval, problems)
    window_s = read_value(_TIME, "--window", flags.window, problems)
    noise = read_value(_NOISE, "--noise", flags.noise, problems)
    queue_max = read_value(_COUNT, "--queue-max", flags.queue_max, problems)
    seed = read_value(_SEED, "--seed", flags.seed, problems)
    horizon_s = read_value(_TIME, "--horizon", flags.horizon, problems)
    if flags.report:
        check_output("--report", flags.report, problems)
    period_s = read_value(_TIME, "--quota", flags.quota, problems)
    network_s = read_value(_TIME, "--network-time", flags.network_time, problems)
    loading_slows = read_value(_NOISE, "--loading-slows", flags.loading_slows, problems)
    exec_factor = read_value(_FACTOR, "--exec-factor", flags.exec_factor, problems)
    prewarm = problems.attempt(lambda: _prewarm(flags.prewarm, flags.prewarm_params))
    problems.raise_if_any()
    settings = Settings(
        interval_s=interval_s,
        window_s=window_s,
        noise=noise,
        queue_max=queue_max or math.inf,
        processes_known=flags.processes_known,
        cold=flags.cold,
        rate_level=flags.rate_level,
        quota=Quota(period_s) if period_s else None,
        network_s=network_s or 0.0,
        loading_slows=loading_slows,
        exec_factor=exec_factor,
        prewarm=prewarm,
    )
    return SimulateArguments(
        scenario=flags.scenario,
        policies=list(dict.fromkeys(flags.policy)),
        settings=settings,
        horizon_s=horizon_s,
        seed=seed,
        as_json=flags.json,
        report=flags.report,
    )


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog, description="Run a scenario in simulated time under policies."
    )
    add = parser.add_argument
    add("scenario", type=Path, help="a scenario file, or the name of an example such as osvt")
    add("--policy", action="append", required=True, help="a scaling policy; may be repeated")
    add("--json", action="store_true", help="print JSON instead of a table")
    add("--report", type=Path, metavar="FILE.html", help="write a page with plots")
    add("--rate-level", action="store_true", help="reuse the outcome of similar intervals; faster")
    add(
        "--interval",
        help="interval between planning rounds (default: 500ms; 10s with --rate-level)",
    )
    add("--window", default=_WINDOW, help="period over which rates are averaged (default: 10s)")
    add("--noise", default="0", help="standard deviation of log execution time (default: 0)")
    add(
        "--prewarm",
        default=PREWARM,
        help="prewarm policy; none: functions follow only their plans (default: %(default)s)",
    )
    add("--prewarm-params", default="{}", help="its parameters, as JSON")
    add("--queue-max", help="maximum number of requests queued per function (default: unlimited)")
    add(
        "--processes-known",
        action="store_true",
        help="give policies the arrival processes, not only measured rates",
    )
    add("--cold", action="store_true", help="start without instances or measured rates")
    expected = (
        "period of the CPU quota for fractions of a core, as in control groups (default: evenly)"
    )
    add("--quota", metavar="PERIOD", help=expected)
    add(
        "--network-time",
        metavar="TIME",
        help="time that a request spends on the network (default: none)",
    )
    add("--way", dest="network_time", help=argparse.SUPPRESS)  # its name in 0.1
    expected = (
        "slowdown of executions per instance loading on the same server, as a share (default: 0)"
    )
    add("--loading-slows", default="0", metavar="SHARE", help=expected)
    expected = "multiply all execution times; policies learn it only by measuring (default: 1)"
    add("--exec-factor", default="1", metavar="FACTOR", help=expected)
    add("--horizon", help="how long to simulate (default: the scenario's)")
    add("--seed", help="seed of random numbers (default: the scenario's)")
    return parser


def _prewarm(name: str, params: str) -> Callable[[], PrewarmPolicy] | None:
    given = read_params(params, '{"price_s": 60}', "--prewarm-params")
    return None if name == _NO_PREWARM else prewarm_maker(name, given)
