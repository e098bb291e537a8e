"""``carpool compare``: one trace under several policies, and one table.

``carpool compare SCENARIO --live`` replays it on a running stack, with real processes and in real
time; without ``--live`` this is ``carpool simulate``. Both print the same tables. ``carpool compare
--matrix`` needs no scenario (`simulator.matrix`).
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from carpool.validation.problems import Problems, nearest
from faas_stack.compare import stack_under_test
from faas_stack.compare.policy_run import PolicyRunner, Request
from faas_stack.interrupts import say
from faas_stack.stack.stack_process import StackFailed
from scaler.policy_choice import chosen_policy
from scaler.scenarios.scenario_file import read_scenario
from simulator import command as simulation
from simulator import flags
from simulator.matrix import command as matrix

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scaler.scenarios.scenario import Scenario
    from simulator.results import ScenarioResult

__all__ = ["live", "main"]

_ABOUT = "Replay a scenario's trace on a running stack under several policies, one after another."


def main(argv: list[str]) -> int:
    """Compare policies, print the results, and write a report if requested.

    Raises:
        ConfigError: If flags, the scenario, the stack file or a policy are invalid.
        StackFailed: If the stack does not run.
    """
    if "--matrix" in argv:
        return matrix.main([flag for flag in argv if flag != "--matrix"])
    if "--live" not in argv and not {"-h", "--help"} & set(argv):
        return simulation.main(argv, "carpool compare")
    args = _parser().parse_args(argv)
    chosen = flags.parse([str(args.scenario), *_simulated(args)])
    scenario = chosen.applied(read_scenario(chosen.scenario))
    for name in chosen.policies:
        chosen_policy(name, scenario.policies)  # reports an error before anything is started
    requests = _requests(scenario, args.data, args.path)
    results: dict[str, ScenarioResult] = {}
    try:
        with _terminable(), _staged(scenario, args.yaml, requests, args.scaler.split()) as runner:
            for policy in chosen.policies:
                _try(runner, policy, results)
    finally:  # prints finished policies even if others failed
        if results:
            simulation.tell(chosen, scenario, results)
    return 0 if len(results) == len(chosen.policies) else 1


def _try(runner: PolicyRunner, policy: str, results: dict[str, ScenarioResult]) -> None:
    try:
        results[policy] = runner.run(policy)
    except StackFailed as error:
        say(f"{policy}: {error}")


def live(
    scenario: Scenario,
    policies: Sequence[str],
    stack: Path | None,
    requests: dict[str, Request],
    options: Sequence[str],
) -> dict[str, ScenarioResult]:
    """Return the scenario's result under each policy on a running stack.

    Args:
        scenario: The arrivals and the latency models.
        policies: Their names.
        stack: The stack file. None: stand-ins that take as long as the scenario's models.
        requests: The request to send to each function.
        options: Further options of ``carpool scaler run``.

    Raises:
        ConfigError: If the stack file is invalid or does not match the scenario.
        StackFailed: If the stack does not run.
    """
    with _staged(scenario, stack, requests, options) as runner:
        return {policy: runner.run(policy) for policy in policies}


@contextlib.contextmanager
def _staged(
    scenario: Scenario, stack: Path | None, requests: dict[str, Request], options: Sequence[str]
) -> Iterator[PolicyRunner]:
    """Yield a runner of policies on the stack file, or on stand-ins."""
    with tempfile.TemporaryDirectory(prefix="carpool-stage-") as folder:
        if stack is None:
            say("no stack file (-f): stand-ins take as long as the scenario's models say")
            home = stack_under_test.write_stand_ins(scenario, Path(folder))
        else:
            home = stack
            stack_under_test.check(scenario, stack)
        # Stand-ins only wait, so they can represent larger servers than this machine.
        yield PolicyRunner(scenario, home, requests, options, confined=stack is not None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="carpool compare", description=_ABOUT)
    add = parser.add_argument
    add("scenario", type=Path, help="a scenario file, or the name of an example such as osvt")
    add("--policy", action="append", required=True, help="a scaling policy; may be repeated")
    expected = "run on real instances; without it, this is carpool simulate with all its flags"
    add("--live", action="store_true", help=expected)
    expected = "no scenario: many loads, models and objectives; see --matrix --help"
    add("--matrix", action="store_true", help=expected)
    add(
        "-f",
        "--yaml",
        type=Path,
        metavar="FILE",
        help="stack file (default: stand-ins for the functions)",
    )
    expected = "body of a function's requests; may be repeated (default: none)"
    add("--data", action="append", default=[], metavar="NAME=TEXT|NAME=@FILE", help=expected)
    expected = "path after /function/NAME, such as /v2/models/NAME/infer"
    add("--path", action="append", default=[], metavar="NAME=PATH", help=expected)
    expected = "options for carpool scaler run, as one argument"
    add("--scaler", default="", metavar="OPTIONS", help=expected)
    add("--horizon", help="how long to replay (default: the scenario's)")
    add("--seed", help="seed of random numbers (default: the scenario's)")
    add("--json", action="store_true", help="print JSON instead of a table")
    add("--report", type=Path, metavar="FILE.html", help="write a page with plots")
    return parser


def _simulated(args: argparse.Namespace) -> list[str]:
    """Return the flags shared with ``carpool simulate``, which parses them strictly."""
    given = {"--horizon": args.horizon, "--seed": args.seed, "--report": args.report}
    texts = [text for name, value in given.items() if value for text in (name, str(value))]
    named = [text for policy in args.policy for text in ("--policy", policy)]
    return [*named, *texts, *(["--json"] if args.json else [])]


def _requests(scenario: Scenario, data: Sequence[str], paths: Sequence[str]) -> dict[str, Request]:
    problems = Problems()
    names = [function.name for function in scenario.functions]
    bodies: dict[str, bytes] = {}
    for name, text in _by_name("--data", data, names, problems):
        try:
            bodies[name] = Path(text[1:]).read_bytes() if text[:1] == "@" else text.encode()
        except OSError as error:
            problems.add("--data", text, f"a readable file ({error.strerror})")
    behind = dict(_by_name("--path", paths, names, problems))
    for name, path in behind.items():
        if not path.startswith("/") or " " in path or not path.isascii():
            problems.add("--path", f"{name}={path}", "a path such as /v2/models/NAME/infer")
    problems.raise_if_any()
    return {name: Request(behind.get(name, ""), bodies.get(name, b"")) for name in names}


def _by_name(
    flag: str, texts: Sequence[str], names: Sequence[str], problems: Problems
) -> list[tuple[str, str]]:
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in names:
            hint = nearest(name, names) or f"the scenario has {', '.join(names)}"
            problems.add(flag, text, "NAME=VALUE with a function of the scenario", hint)
        pairs.append((name, value))
    return pairs


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, which stops everything that was started."""

    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
