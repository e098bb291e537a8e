"""``carpool simulate``."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from carpool.__main__ import main
from carpool.errors import ConfigError
from simulator import command, flags
from simulator.quota import Quota

POLICY = "tests.simulator.load:Constant"
SCENARIO = f"""\
models: {{toy: {{linear: {{base_ms: 20, per_item_ms: 5}}, load_s: 1}}}}
prices: {{cpu_core_s: 1.0e-4}}
functions:
  - name: classify
    model: toy
    slo_ms: 200
    apps:
      - {{name: web, arrivals: {{poisson: {{rate: 30}}}}}}
      - {{name: "vr", slo_ms: 100, arrivals: {{mmpp2: {{rates: [5, 50], switch: [0.5, 1.0]}}}}}}
  - name: other
    model: toy
    slo_ms: 100
    apps: [{{name: all, arrivals: {{poisson: {{rate: 5}}}}}}]
policies:
  {POLICY}: {{replicas: 3, batch: 4, wait_s: 0.02}}
horizon_s: 30
"""
NAMES = {
    *("requests", "done", "failed", "expired", "refused", "slo_miss_ratio", "latency_ms"),
    *("mean_batch", "cost", "cost_per_1k", "cpu_core_s", "gpu_percent_s", "rps_per_resource"),
    *("cold_start_ratio", "idle_core_s", "fragmentation", "planning_ms"),
}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("policies:", "policies:\n  infless: {alpha: 7}", "policies.infless: "),
        ("policies:", "policies:\n  mine: {policy: infles}", "did you mean 'infless'"),
        ("policies:", "policies:\n  odd: {policy: fixed, executor: slow}", "graph or lazy"),
        ("rate: 30", "rate: 1.0e+9", "3e+10"),
    ],
)
def test_what_cannot_be_simulated_is_told_at_once(
    scenario: str, before: str, after: str, said: str
) -> None:
    """An entry that cannot be used, asked for or not, and more requests than come to an end."""
    Path(scenario).write_text(SCENARIO.replace(before, after, 1))
    with pytest.raises(ConfigError) as raised:
        command.main([scenario, "--policy", POLICY])
    assert said in str(raised.value)


def test_without_prices_the_cost_is_unknown(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is unknown as other numbers are, not 0."""
    Path(scenario).write_text(SCENARIO.replace("prices: {cpu_core_s: 1.0e-4}\n", ""))
    result = simulated(capsys, scenario, "--policy", POLICY)[POLICY]
    assert (None, None) == (result["cost"], result["cost_per_1k"])
    assert result["cpu_core_s"] > 0


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    """A file with two functions."""
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO)
    return str(path)


def simulated(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    """What the command prints as JSON."""
    assert 0 == command.main([*argv, "--json"])
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed["policies"]  # type: ignore[no-any-return]


def test_json_has_every_metric_by_policy_and_function(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under their documented names, and they add up."""
    (result,) = simulated(capsys, scenario, "--policy", POLICY).values()
    functions = result.pop("functions")
    assert ["classify", "other"] == list(functions)
    for each in functions.values():
        assert each["requests"] == sum(app["requests"] for app in each.pop("apps").values())
    for each in (result, *functions.values()):
        assert each.keys() == NAMES
        assert ["mean", "p50", "p90", "p95", "p99"] == list(each["latency_ms"])
    for name in ("requests", "done", "expired", "cost", "cpu_core_s", "idle_core_s"):
        assert pytest.approx(result[name]) == sum(each[name] for each in functions.values())


def test_as_live_is_accepted_and_changes_nothing(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A simulation always goes as a live scaler does."""
    plain, flagged = (
        simulated(capsys, scenario, "--policy", POLICY, *flag)[POLICY]
        for flag in ((), ("--as-live",))
    )
    for name in ("requests", "latency_ms", "cost", "cpu_core_s", "slo_miss_ratio"):
        assert plain[name] == flagged[name]


def test_the_table_has_a_column_for_each_policy(
    scenario: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a row for each function."""
    del monkeypatch
    twin = "tests.simulator.load:Twin"
    assert 0 == command.main([scenario, "--policy", POLICY, "--policy", twin, "--policy", POLICY])
    heads, *rows = capsys.readouterr().out.splitlines()
    assert [POLICY, twin] == heads.split()
    assert ["requests", "done"] == [row.split()[0] for row in rows[:2]]
    assert any(row.startswith("other") and row.count("%") == 2 for row in rows)
    assert "miss their objective" in " ".join(rows[-4:])


@pytest.mark.parametrize(
    ("slo_ms", "policy", "reason"),
    [
        (20, "infless", r"the objective = '20ms': expected more than 25ms, the shortest latency"),
        (200, "big", "The policy asks for a size of 8 cores, which the model does not have"),
    ],
)
def test_a_policy_that_plans_nothing_says_why(
    tmp_path: Path, slo_ms: int, policy: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An objective or a size that no server could provide is no lack of capacity."""
    path = _of_25_ms(tmp_path, slo_ms)
    assert 0 == command.main([str(path), "--policy", policy])
    printed = capsys.readouterr().out
    assert re.search(rf"{policy} planned no instance for up to [\d.]+/s of f: {reason}", printed)
    assert "had no capacity" not in printed
    last = " ".join(printed.split()).partition("more than allowed.")[2].strip()
    never = "No policy can meet the objective of f, 20ms: expected more than 25ms, the shortest"
    assert (f"{never} latency of any size of the model." if slo_ms == 20 else "") == last


def test_what_a_faster_machine_meets_is_not_called_impossible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The objective is shorter than the model's time, and longer than half of it."""
    path = str(_of_25_ms(tmp_path, slo_ms=20))
    flags = ["--policy", "fixed", "--exec-factor", "0.5", "--json"]
    assert 0 == command.main([path, *flags])
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert (["fixed"], []) == (summary["meets_objectives"], summary["impossible"])
    assert "No policy can" not in summary["text"]


def _of_25_ms(folder: Path, slo_ms: int) -> Path:
    """A scenario whose model takes 25 ms."""
    (folder / "toy.csv").write_text(
        "cpu_threads,gpu_percent,batch,latency_ms\n1,0,1,25\n2,0,1,25\n"
    )
    path = folder / "scenario.yaml"
    path.write_text(f"""\
models: {{toy: {{table: toy.csv, load_s: 1}}}}
functions:
  - name: f
    model: toy
    slo_ms: {slo_ms}
    apps: [{{name: a, arrivals: {{poisson: {{rate: 9}}}}}}]
policies: {{fixed: {{replicas: 4}}, big: {{policy: fixed, cpu: 8.0}}}}
horizon_s: 10
""")
    return path


def test_the_report_is_one_file_with_plots(
    scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Well-formed drawings, nothing fetched from elsewhere, and nothing not a number."""
    report = tmp_path / "out.html"
    assert 0 == command.main([scenario, "--policy", POLICY, "--report", str(report)])
    del capsys
    text = report.read_text()
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert 2 * 6 == len(drawings)
    for drawing in drawings:
        ET.fromstring(drawing)
    assert not re.search(r"(src|href)=|url\(|nan|inf\b", text)
    assert "Share of requests done" in text


def test_horizon_and_seed_may_be_chosen(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Instead of the scenario's."""
    first, again, other = (
        simulated(capsys, scenario, "--policy", POLICY, "--horizon", "10s", "--seed", seed)[POLICY]
        for seed in ("5", "5", "6")
    )
    assert first["requests"] == again["requests"] != other["requests"]
    assert 30 < first["requests"] / 10 < 90


def test_bad_flags_are_reported_together(scenario: str, tmp_path: Path) -> None:
    """Each with what was expected."""
    nowhere = str(tmp_path / "nowhere" / "out.html")
    bad = ["--interval", "10", "--noise", "-1", "--seed", "x", "--queue-max", "0", "--quota", "no"]
    bad += ["--exec-factor", "0"]
    with pytest.raises(ConfigError) as caught:
        command.main([scenario, "--policy", POLICY, *bad, "--report", nowhere])
    names = {problem.name for problem in caught.value.problems}
    own = {"--exec-factor", "--interval", "--noise", "--queue-max", "--quota", "--report", "--seed"}
    assert own == names


def test_an_unknown_policy_is_a_usage_error(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command says so, and exits with 2."""
    assert 2 == main(["simulate", scenario, "--policy", "nobody"])
    assert "nobody" in capsys.readouterr().err


def test_parameters_are_those_of_the_scenario(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A parameter that the policy does not take is an error."""
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO.replace("replicas", "replicsa"))
    assert 2 == main(["simulate", str(path), "--policy", POLICY])
    assert "replicas" in capsys.readouterr().err


def test_quota_and_way_are_as_given(scenario: str) -> None:
    """A period with the kernel's usual ticks, and what every request takes."""
    given = flags.parse([scenario, "--policy", POLICY, "--quota", "100ms", "--way", "2ms"])
    assert (Quota(0.1, 0.004), 0.002) == (given.settings.quota, given.settings.way_s)
    assert flags.parse([scenario, "--policy", POLICY]).settings.quota is None
