"""A policy with bugs, at the command line."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from carpool.__main__ import main
from scaler.core.policy import Planning
from scaler.policies.fixed import Fixed

if TYPE_CHECKING:
    from pathlib import Path

    from scaler.core.snapshot import Snapshot

SCENARIO = """
models: {toy: {linear: {base_ms: 20, per_item_ms: 5}}}
functions:
  - {name: classify, model: toy, slo_ms: 200, apps: [{name: web, arrivals: {poisson: {rate: 5}}}]}
horizon_s: 10
"""


class Buggy:
    """Does what it is told to do wrong."""

    @dataclass(frozen=True)
    class Params:
        """What."""

        bug: str = ""

    def __init__(self, params: Params) -> None:
        self._bug = params.bug
        if params.bug == "made":
            message = "no such file"
            raise OSError(message)

    def plan(self, snapshot: Snapshot) -> Any:
        """Somehow."""
        if self._bug == "raises":
            return 1 / 0
        if self._bug == "exits":
            sys.exit(7)
        if self._bug == "answers":
            return "two, please"
        planning = Fixed(Fixed.Params()).plan(snapshot)
        (plan,) = planning.plans.values()
        if self._bug == "stranger":
            return Planning({"nobody": plan})
        (kind,) = plan.classes
        if self._bug == "million":
            return Planning({"classify": replace(plan, classes=(replace(kind, replicas=10**6),))})
        return Planning({"classify": replace(plan, classes=(replace(kind, cpu=float("nan")),))})


@pytest.mark.parametrize("command", ["simulate", "plan"])
@pytest.mark.parametrize(
    ("bug", "said"),
    [
        ("made", "OSError: no such file"),
        ("raises", "ZeroDivisionError: division by zero (test_on_trial.py:"),
        ("answers", "expected a Planning of its method plan; it answers 'two, please'"),
        ("stranger", "for 'nobody'"),
        ("nan", "classes[0].cpu = 'NaN'"),
        ("nan", "planning for classify (test_on_trial.py:"),
        ("exits", "SystemExit: 7 (test_on_trial.py:"),
        ("million", "at most 100000 instances of a function; it wants 1000000 for classify"),
    ],
)
def test_a_policy_with_a_bug_is_told_so_by_name(
    command: str, bug: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One message, with what went wrong and where, and exit code 2; no traceback of ours."""
    path = tmp_path / "scenario.yaml"
    name = f"{__name__}:Buggy"
    path.write_text(f"{SCENARIO}policies: {{{name}: {{bug: {bug}}}}}\n")
    assert 2 == main([command, str(path), "--policy", name])
    told = capsys.readouterr().err
    assert "Buggy" in told
    assert said in told
