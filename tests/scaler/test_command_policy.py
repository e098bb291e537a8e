"""Policies with bugs on the command line."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from carpool.__main__ import main
from carpool.scaling import Proposal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from carpool.scaling import ClusterView, FunctionLoad

SCENARIO = """
models: {toy: {linear: {base_ms: 20, per_item_ms: 5}}}
functions:
  - {name: classify, model: toy, slo_ms: 200, apps: [{name: web, arrivals: {poisson: {rate: 5}}}]}
horizon_s: 10
"""


class Buggy:
    """Policy with the bug that its parameter names."""

    @dataclass(frozen=True)
    class Params:
        """Name of the bug."""

        bug: str = ""

    def __init__(self, params: Params) -> None:
        self._bug = params.bug
        self._rounds = 0
        if params.bug == "made":
            message = "no such file"
            raise OSError(message)

    def propose(self, loads: Sequence[FunctionLoad], cluster: ClusterView) -> Any:
        """Return a proposal, or fail in the way of the bug."""
        del cluster
        self._rounds += 1
        if self._bug == "raises" or (self._bug == "later" and self._rounds > 2):
            return 1 / 0
        if self._bug == "exits":
            sys.exit(7)
        (load,) = loads
        size = load.sizes[0]
        invented = replace(size, variant="huge")
        answers: dict[str, object] = {
            "answers": "two, please",
            "stranger": {"nobody": Proposal({size: 1})},
            "million": {load.name: Proposal({size: 10**6})},
            "nan": {load.name: Proposal({size: 1}, wait_s=math.nan)},
            "invented": {load.name: Proposal({invented: 1})},
        }
        return answers.get(self._bug, {load.name: Proposal({size: 1})})


class Before:
    """Policy of the former contract, which makes plans itself."""

    @dataclass(frozen=True)
    class Params:
        """No parameters."""

    def plan(self, snapshot: object) -> object:
        """Do nothing."""


@pytest.mark.parametrize("command", ["simulate", "plan"])
@pytest.mark.parametrize(
    ("bug", "said"),
    [
        ("made", "OSError: no such file"),
        ("raises", "ZeroDivisionError: division by zero (test_command_policy.py:"),
        ("answers", "propose() returned 'two, please', not a mapping of functions to Proposals"),
        ("stranger", "for nobody: it makes a proposal for a function that it was not given"),
        ("nan", "its wait_s is nan, expected seconds of at least 0"),
        ("invented", "it names huge-b1, a size that was not offered"),
        ("exits", "SystemExit: 7 (test_command_policy.py:"),
        ("million", "it wants 1000000 instances, expected 0 to 100000"),
    ],
)
def test_policy_with_bug_is_reported_by_name(
    command: str, bug: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 2, with one message on fault and place and without a traceback."""
    path = tmp_path / "scenario.yaml"
    name = f"{__name__}:Buggy"
    path.write_text(f"{SCENARIO}policies: {{{name}: {{bug: {bug}}}}}\n")
    assert 2 == main([command, str(path), "--policy", name])
    told = capsys.readouterr().err
    assert "Buggy" in told
    assert said in told


def test_simulation_keeps_plan_if_policy_fails_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in live use, a simulation continues with the current plan; the end reports the failure."""
    path = tmp_path / "scenario.yaml"
    name = f"{__name__}:Buggy"
    path.write_text(f"{SCENARIO}policies: {{{name}: {{bug: later}}, well: {{policy: {name}}}}}\n")
    assert 0 == main(["simulate", str(path), "--policy", name, "--policy", "well", "--json"])
    told = capsys.readouterr()
    failing, well = json.loads(told.out)["policies"].values()
    assert well["requests"] > 0
    assert [well[key] for key in ("requests", "done", "cost")] == [
        failing[key] for key in ("requests", "done", "cost")
    ]
    assert re.search(rf"{re.escape(name)} failed for classify in \d\d rounds", told.err)
    assert "ZeroDivisionError: division by zero (test_command_policy.py:" in told.err


def test_policy_of_former_contract_is_told_missing_method(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the missing method, and the base class that has it."""
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO)
    assert 2 == main(["plan", str(path), "--policy", f"{__name__}:Before"])
    told = capsys.readouterr().err
    assert "the method propose of carpool.scaling; derive it from PerFunctionPolicy if" in told
