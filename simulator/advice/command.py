"""``carpool advise``: recommend a scaling policy and its settings for a trace.

All policies are simulated on parts of the trace, with the same requests for each, and then other
settings of the best one. The output is what it would cost and miss, with confidence intervals, and
the labels for the stack file.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carpool import durations, function_name, setting_types
from carpool.errors import CarpoolError
from carpool.setting_spec import read_value
from carpool.validation.output_file import check_output, write_output
from carpool.validation.problems import Problems
from scaler.planning.cost import Prices
from scaler.policy_choice import chosen_policy
from scaler.scenarios import shipped
from scaler.scenarios.scenario import App, Function
from simulator.advice import question as asking
from simulator.advice.advice import Advice
from simulator.advice.evidence import Gatherer
from simulator.advice.question import Question
from simulator.advice.settings import candidates, variations
from simulator.advice.trace_parts import cut, parts
from simulator.advice.verdict import beside, best, better, verdicts
from simulator.arrivals import check_load
from simulator.matrix.cells import BILLINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from carpool.setting_types import SettingType
    from simulator.advice.trace_parts import Part

__all__ = ["advise", "main"]

_S_PER_HOUR, _PERCENT, _MILLION = 3600.0, 100.0, 1e6
_SETTINGS_SHARE = 0.3  # share of the budget for other settings of the best policy
_INTERVAL_S = 0.5
_LONGER = 4  # factor of the suggested budget, if the one given is too short
_TIME = setting_types.duration("a duration above 0 such as 200ms or 3m", lambda v: v > 0)
_LOAD = setting_types.duration("a duration such as 2s", lambda v: v >= 0)
_SHARE = setting_types.decimal("a number between 0 and 1 such as 0.99", lambda v: 0 < v < 1)
_ACCURACY = setting_types.decimal("a share from 0 to 1", lambda v: 0 <= v <= 1)
_SCALE = setting_types.decimal("a number above 0", lambda v: v > 0)
_ABOVE = setting_types.decimal("a price above 0", lambda v: v > 0)
_PRICE = setting_types.decimal("a price of at least 0", lambda v: v >= 0)
_BATCH = setting_types.integer("a whole number from 1 to 4096", lambda v: 1 <= v <= 4096)  # noqa: PLR2004
_PARTS = setting_types.integer("a whole number from 1 to 1000", lambda v: 1 <= v <= 1000)  # noqa: PLR2004
_SEED = setting_types.integer("a whole number of at least 0", lambda v: v >= 0)


def main(argv: list[str]) -> int:
    """Simulate, print the advice, and write a scenario if one is asked for.

    Returns:
        0, or 1 where no policy meets the objective.

    Raises:
        ConfigError: flags, a trace, a model or a policy that cannot be used.
    """
    flags = _parser().parse_args(argv)
    values = _values(flags)
    question = _question(flags, values)
    policies = candidates(flags.policy)
    for name in policies:
        chosen_policy(name, policies)  # a mistake shows before anything is run
    trace_parts = parts(question.trace, values["parts"], values["seed"])
    answer = advise(question, policies, trace_parts, values["budget"], time.process_time, _say)
    if flags.json:
        sys.stdout.write(json.dumps(answer.as_dict(), indent=2, allow_nan=False) + "\n")
    else:
        sys.stdout.write(answer.text())
    if flags.out and answer.chosen:
        sys.stdout.flush()
        write_output("--out", flags.out, answer.scenario())
    return 0 if answer.chosen and answer.chosen.meets else 1


def advise(
    question: Question,
    policies: dict[str, dict[str, Any]],
    trace_parts: Sequence[Part],
    budget_s: float,
    now: Callable[[], float],
    tell: Callable[[str], None],
) -> Advice:
    """Return the advice, using about ``budget_s`` at most by the clock ``now``.

    Raises:
        ConfigError: the trace has more requests than can be simulated.
        CarpoolError: the time budget was used up before any policy finished a part.
    """
    for part in trace_parts:
        check_load(question.scenario(part, policies), _INTERVAL_S)
    began, began_wall = now(), time.monotonic()

    def told(line: str) -> None:
        used_s = now() - began
        left_s = (time.monotonic() - began_wall) * (budget_s / used_s - 1) if used_s else budget_s
        left = f"at most about {max(left_s, 0):.0f} s left"
        tell(f"{used_s:.0f} s of {budget_s:.0f} s of CPU time, {left}: {line}")

    until = began + (1 - _SETTINGS_SHARE) * budget_s
    gatherer = Gatherer(question, policies, trace_parts, now, told)
    first = gatherer.gather(list(policies), until)
    judged = verdicts(first.rows, question.allowed)
    if not judged:
        length_s = trace_parts[0].length_s
        requests = length_s * cut(question.trace, trace_parts[0]).mean_rate
        times = max(_LONGER, math.ceil(2 / first.done)) if first.done else _LONGER
        message = (
            f"no policy finished a part of {length_s:.0f} s with about {requests:.0f} requests "
            f"in its share of the time; try --budget {durations.format(times * budget_s)}"
        )
        raise CarpoolError(message)
    chosen = best(judged)
    if chosen is None:
        return Advice(question, policies, judged, None, {}, first.unfinished, (), budget_s)
    other = variations(chosen.policy, policies)
    policies = policies | other
    used = trace_parts[: chosen.parts]
    again = Gatherer(question, policies, used, now, told, gatherer.bounds)
    second = again.gather(list(other), began + budget_s)
    judged |= verdicts(second.rows, question.allowed)
    rows = first.rows | second.rows
    for name in [name for name in second.rows if name in judged]:
        if better(chosen, judged[name], beside(rows[name], rows[chosen.policy])):
            chosen = judged[name]
    costs = {name: beside(rows[name], rows[chosen.policy]) for name in judged}
    return Advice(question, policies, judged, chosen, costs, first.unfinished, used, budget_s)


def _values(flags: argparse.Namespace) -> dict[str, Any]:
    types: dict[str, SettingType] = {
        "slo": _TIME,
        "percentile": _SHARE,
        "max_batch": _BATCH,
        "accuracy": _ACCURACY,
        "scale": _SCALE,
        "load": _LOAD,
        "core_hour": _ABOVE,
        "gpu_hour": _ABOVE,
        "million_calls": _PRICE,
        "parts": _PARTS,
        "seed": _SEED,
        "budget": _TIME,
    }
    problems = Problems()
    values = {
        name: read_value(value_type, _flag(name), getattr(flags, name), problems)
        for name, value_type in types.items()
    }
    if not re.fullmatch(function_name.PATTERN, flags.function):
        problems.add("--function", flags.function, "a name of a-z, 0-9 and inner '-'")
    if flags.out:
        check_output("--out", flags.out, problems)
    problems.raise_if_any()
    return values


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _question(flags: argparse.Namespace, values: dict[str, Any]) -> Question:
    problems = Problems()
    trace = problems.attempt(lambda: asking.read_load(flags.trace, values["scale"]))
    read = problems.attempt(lambda: asking.read_model(flags.model, values["load"]))
    problems.raise_if_any()
    assert trace is not None  # noqa: S101  or there were problems
    assert read is not None  # noqa: S101
    model, entry = read
    app = App("all", math.inf, trace, values["accuracy"])
    name = Path(flags.model).stem if Path(flags.model).suffix else flags.model
    limits = (values["percentile"], values["max_batch"])
    function = asking.with_objective(
        Function(flags.function, name, model, math.inf, *limits, (app,)), values["slo"]
    )
    gpu_s, gpu_gb = values["gpu_hour"] / _S_PER_HOUR, asking.gpu_gb(function)
    prices = Prices(
        flags.billing,
        cpu_core_s=values["core_hour"] / _S_PER_HOUR,
        gpu_gb_s=gpu_s / gpu_gb if gpu_gb else 0.0,
        gpu_percent_s=gpu_s / _PERCENT,
        call=values["million_calls"] / _MILLION if flags.billing == "pay-per-use" else 0.0,
        currency=flags.currency,
    )
    path = shipped.find_file(flags.trace)
    return Question(trace, path, values["scale"], function, entry, prices)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    about = (
        "Recommend a scaling policy and its settings for a trace. All policies are simulated on "
        "parts of the trace, and then other settings of the best one. The result has the cost and "
        "the share of missed objectives, with confidence intervals, and the labels to set."
    )
    parser = argparse.ArgumentParser(prog="carpool advise", description=about)
    add = parser.add_argument
    add("trace", type=Path, help="CSV file with start_s,requests_per_minute")
    add("--model", required=True, help=asking.MODELS)
    add(
        "--slo",
        metavar="TIME",
        help="latency objective (default: four times the model's shortest latency, at least 10ms)",
    )
    add("--percentile", default="0.99", help="share of requests that must meet it (default: 0.99)")
    add("--max-batch", default="32", metavar="N", help="largest batch, at most 4096 (default: 32)")
    add("--accuracy", default="0", help="minimum accuracy, if the model has variants (default: 0)")
    add("--scale", default="1", help="multiply the rates of the trace (default: 1)")
    add(
        "--load",
        default="2s",
        metavar="TIME",
        help="time that an instance takes to start (default: 2s)",
    )
    expected = "pay for instances while they exist, or only for executions (default: reserved)"
    add("--billing", choices=list(BILLINGS), default="reserved", help=expected)
    add(
        "--core-hour",
        default="0.324",
        metavar="PRICE",
        help="price of a core for an hour (default: 0.324)",
    )
    add(
        "--gpu-hour",
        default="2.52",
        metavar="PRICE",
        help="price of a GPU for an hour (default: 2.52)",
    )
    expected = "price of a million executions, with pay-per-use (default: 0.9)"
    add("--million-calls", default="0.9", metavar="PRICE", help=expected)
    add("--currency", default="", help="currency of the prices (default: not named)")
    expected = (
        "a scaling policy to compare; may be repeated (default: all of carpool compare --matrix)"
    )
    add("--policy", action="append", default=[], help=expected)
    add(
        "--parts", default="8", metavar="N", help="maximum number of parts to simulate (default: 8)"
    )
    add("--budget", default="3m", metavar="TIME", help="maximum CPU time (default: 3m)")
    add("--seed", default="1", help="seed of random numbers (default: 1)")
    add(
        "--function",
        default="function",
        metavar="NAME",
        help="name of the function (default: function)",
    )
    expected = "write model, load, prices and the chosen settings as a scenario"
    add("--out", type=Path, metavar="FILE.yaml", help=expected)
    add("--json", action="store_true", help="print JSON instead of text")
    return parser
