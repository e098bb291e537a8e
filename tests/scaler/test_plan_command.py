"""``carpool plan``: one round for a scenario."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from carpool import __main__ as command
from carpool.plan import Plan
from carpool.scaling import Proposal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from carpool.scaling import ClusterView, FunctionLoad

    Captured = pytest.CaptureFixture[str]

SCENARIO = """
cluster:
  nodes: [{name: gpu, count: 2, cpus: 32, gpus: 2}]
models:
  toy: {linear: {base_ms: 20, per_item_ms: 2, cpu: 2}}
functions:
  - name: classify
    model: toy
    slo_ms: 100
    apps:
      - {name: web, arrivals: {poisson: {rate: RATE}}}
      - {name: mail, slo_ms: 500, arrivals: {trace: trace.csv}}
policies:
  infless: {alpha: 0.9}
  published: {policy: infless, search: published}
"""


class Modest:
    """A user's policy that reports some load as unserved."""

    @dataclass(frozen=True)
    class Params:
        """Rate that it reports as unserved."""

        said: float = 1.0

    def __init__(self, params: Params) -> None:
        self._said = params.said

    def propose(self, loads: Sequence[FunctionLoad], cluster: ClusterView) -> dict[str, Proposal]:
        del cluster
        return {load.name: Proposal({load.sizes[0]: 99}, unserved_rps=self._said) for load in loads}


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """Scenario with 100 requests/s and a trace with a mean of one request/s."""
    (tmp_path / "trace.csv").write_text("start_s,requests_per_minute\n0,0\n60,120\n")
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO.replace("RATE", "100"))
    return path


def planned(capsys: Captured, *argv: str) -> dict[str, Any]:
    """Return the printed document."""
    command.main(["plan", *argv, "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.parametrize("policy", ["fixed", "openfaas", "infless", "published"])
def test_json_document_has_plans_and_unplaced_load(
    scenario: Path, policy: str, capsys: Captured
) -> None:
    """It has the policy, the planning time, a plan for each function and the unplaced load."""
    document = planned(capsys, str(scenario), "--policy", policy)
    assert {"policy", "planning_ms", "functions", "unplaced"} == set(document)
    assert policy == document["policy"]
    assert document["planning_ms"] > 0
    for name, data in document["functions"].items():
        assert name == Plan.from_dict(data).function


def test_exit_code_is_0_if_all_load_is_placed(scenario: Path, capsys: Captured) -> None:
    """The exit code is 0, and the table has a line for each class and the reasons."""
    assert 0 == command.main(["plan", str(scenario), "--policy", "infless"])
    printed = capsys.readouterr().out
    assert printed.startswith("infless: ")
    assert "classify: 101 requests/s" in printed
    assert "class " in printed
    assert "101 requests/s within 100 ms: " in printed
    assert "maximum wait: " in printed
    assert "unplaced" not in printed


def test_applications_have_their_own_maximum_wait(scenario: Path, capsys: Captured) -> None:
    """In a shared batch the application with the looser objective may wait longer."""
    assert 0 == command.main(["plan", str(scenario), "--policy", "harmonybatch"])
    printed = capsys.readouterr().out
    waits = dict(re.findall(r"maximum wait of (.+): ([\d.]+) ms", printed))
    assert ["other applications", "web", "mail"] == [*waits]
    assert 0 < float(waits["web"]) < float(waits["mail"])
    assert waits["web"] == waits["other applications"]


def test_exit_code_is_1_if_load_is_unplaced(scenario: Path, capsys: Captured) -> None:
    """The exit code is 1, and the output has the unplaced rate."""
    scenario.write_text(SCENARIO.replace("RATE", "1e6"))
    assert 1 == command.main(["plan", str(scenario), "--policy", "infless"])
    assert "unplaced: " in capsys.readouterr().out
    assert planned(capsys, str(scenario), "--policy", "infless")["unplaced"]["classify"] > 1e5


def test_plan_without_instances_gives_reason(scenario: Path, capsys: Captured) -> None:
    """A single instance is printed in the singular, and a size missing in the model is named."""
    rows = "cpu_threads,gpu_percent,batch,latency_ms\n1,0,1,25\n2,0,1,25\n"
    (scenario.parent / "toy.csv").write_text(rows)
    scenario.write_text("""\
models: {toy: {table: toy.csv}}
functions:
  - {name: f, model: toy, slo_ms: 200, apps: [{name: a, arrivals: {poisson: {rate: 9}}}]}
""")
    for cpu in ("1.0", "7.0"):
        params = ["--policy", "fixed", "--params", f'{{"cpu": {cpu}}}']
        assert (cpu != "1.0") == command.main(["plan", str(scenario), *params])
    printed = capsys.readouterr().out
    assert "fixed: 1 instance, planned" in printed
    assert "fixed: 0 instances, planned" in printed
    assert "  The policy asks for a size of 7 cores, which the model does not have" in printed


def test_rates_are_taken_at_given_time(scenario: Path, capsys: Captured) -> None:
    """The trace has no requests in its first minute and two per second in its second."""
    said = []
    for at in ("0", "90"):
        command.main(["plan", str(scenario), "--policy", "infless", "--at", at])
        said.append(capsys.readouterr().out)
    assert "classify: 100 requests/s" in said[0]
    assert "classify: 102 requests/s" in said[1]


def test_command_line_parameters_override_scenario(scenario: Path, capsys: Captured) -> None:
    """Parameters of the command line take precedence, and both are validated."""
    plain = planned(capsys, str(scenario), "--policy", "infless")
    rounded = planned(
        capsys, str(scenario), "--policy", "infless", "--params", '{"search": "published"}'
    )
    assert plain["functions"] != rounded["functions"]
    scenario.write_text(SCENARIO.replace("RATE", "1").replace("alpha: 0.9", "alpa: 0.9"))
    assert 2 == command.main(["plan", str(scenario), "--policy", "infless"])
    assert "did you mean 'alpha'?" in capsys.readouterr().err


def test_third_party_policy_needs_no_packaging(scenario: Path, capsys: Captured) -> None:
    """A class in a module needs no packaging; its parameters are listed under its name."""
    name = f"{__name__}:Modest"
    scenario.write_text(f'{SCENARIO.replace("RATE", "5")}  "{name}": {{said: 3}}\n')
    document = planned(capsys, str(scenario), "--policy", name)
    assert {"classify": 3} == document["unplaced"]
    assert 1 == command.main(["plan", str(scenario), "--policy", name])
    assert "  unplaced: 3 requests/s\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("slo_ms: 100", "slo_mz: 100"), "did you mean 'slo_ms'?"),
        (("rate: RATE", "rate: -5"), "at least 0"),
        (("trace.csv", "trase.csv"), "did you mean 'trace.csv'?"),
        (("cpus: 32", "cpus: 0"), "above 0"),
        (("model: toy", "model: toyy"), "did you mean 'toy'?"),
        (("policy: infless", "policy: 7"), "policies.published.policy"),
    ],
)
def test_invalid_scenario_is_reported_without_traceback(
    scenario: Path, change: tuple[str, str], said: str, capsys: Captured
) -> None:
    """The exit code is 2, and stderr has lines with the command's name and no traceback."""
    scenario.write_text(SCENARIO.replace(*change).replace("RATE", "100"))
    assert 2 == command.main(["plan", str(scenario), "--policy", "published"])
    captured = capsys.readouterr()
    assert "" == captured.out
    assert said in captured.err
    assert all(line.startswith("carpool plan: ") for line in captured.err.splitlines())


@pytest.mark.parametrize("argv", [["--policy", "infles"], ["--policy", "infless", "--params", "7"]])
def test_bad_arguments(scenario: Path, argv: list[str]) -> None:
    """Unknown policies and invalid parameters have exit code 2."""
    assert 2 == command.main(["plan", str(scenario), *argv])
