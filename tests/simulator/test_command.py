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
from tests.installed import install

POLICY = "tests.simulator.load:Constant"
PREWARM = """\
from dataclasses import dataclass

from scaler.prewarm.contract import Windows


class Stays:
    @dataclass(frozen=True)
    class Params:
        stay_s: float

    def __init__(self, params):
        self.params = params

    def observe(self, idle_s, now_s):
        pass

    def windows(self, now_s):
        return Windows(prewarm_s=0.0, keep_alive_s=self.params.stay_s)

    def to_dict(self):
        return {}

    def absorb(self, data):
        pass
"""
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
def test_unusable_scenarios_are_refused_at_start(
    scenario: str, before: str, after: str, said: str
) -> None:
    """Unusable policy entries and excessive request counts are errors at the start."""
    Path(scenario).write_text(SCENARIO.replace(before, after, 1))
    with pytest.raises(ConfigError) as raised:
        command.main([scenario, "--policy", POLICY])
    assert said in str(raised.value)


def test_without_prices_the_cost_is_unknown(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without prices the cost is None, not 0."""
    Path(scenario).write_text(SCENARIO.replace("prices: {cpu_core_s: 1.0e-4}\n", ""))
    result = simulated(capsys, scenario, "--policy", POLICY)[POLICY]
    assert (None, None) == (result["cost"], result["cost_per_1k"])
    assert result["cpu_core_s"] > 0


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    """Write a scenario with two functions and return its path."""
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO)
    return str(path)


def simulated(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    """Return the JSON output of the command by policy."""
    assert 0 == command.main([*argv, "--json"])
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed["policies"]  # type: ignore[no-any-return]


def test_json_has_every_metric_by_policy_and_function(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The metrics have their documented names, and those of the functions add up."""
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


def test_prewarm_policy_of_installed_package_stops_idle_instances(
    scenario: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A package's policy, named by its entry point, keeps instances as its parameter says."""
    (tmp_path / "staying.py").write_text(PREWARM)
    install(tmp_path, "staying", "carpool.prewarm_policies", "stays = staying:Stays")
    monkeypatch.syspath_prepend(tmp_path)
    Path(scenario).write_text(SCENARIO.replace("rate: 5}", "rate: 0.2}"))
    cold = []
    for stay_s in (1000, 0.1):
        prewarm = ("--prewarm", "stays", "--prewarm-params", f'{{"stay_s": {stay_s}}}')
        result = simulated(capsys, scenario, "--policy", POLICY, *prewarm)[POLICY]
        cold.append(result["functions"]["other"]["cold_start_ratio"])
    assert 0 == cold[0] < cold[1]


def test_the_table_has_a_column_for_each_policy(
    scenario: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has a column for each policy and a row for each function."""
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
def test_policy_that_plans_nothing_gives_reason(
    tmp_path: Path, slo_ms: int, policy: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An impossible objective or a missing size is given as the reason, not a lack of capacity."""
    path = _of_25_ms(tmp_path, slo_ms)
    assert 0 == command.main([str(path), "--policy", policy])
    printed = capsys.readouterr().out
    assert re.search(rf"{policy} planned no instance for up to [\d.]+/s of f: {reason}", printed)
    assert "had no capacity" not in printed
    last = " ".join(printed.split()).partition("more than allowed.")[2].strip()
    never = "No policy can meet the objective of f, 20ms: expected more than 25ms, the shortest"
    assert (f"{never} latency of any size of the model." if slo_ms == 20 else "") == last


def test_objective_met_on_faster_machine_is_not_called_impossible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An objective that is met with an execution factor below 1 is not called impossible."""
    path = str(_of_25_ms(tmp_path, slo_ms=20))
    flags = ["--policy", "fixed", "--exec-factor", "0.5", "--json"]
    assert 0 == command.main([path, *flags])
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert (["fixed"], []) == (summary["meets_objectives"], summary["impossible"])
    assert "No policy can" not in summary["text"]


def _of_25_ms(folder: Path, slo_ms: int) -> Path:
    """Return a scenario whose model takes 25 ms."""
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
    """The report has well-formed plots without NaN, and loads nothing from elsewhere."""
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


def test_a_report_that_cannot_be_written_costs_no_results(
    scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a full disk the results are printed all the same, then the error, and the exit is 1."""
    assert 1 == main(["simulate", scenario, "--policy", POLICY, "--report", "/dev/full"])
    printed = capsys.readouterr()
    assert POLICY in printed.out
    said = "--report = '/dev/full': it was not written completely: No space left on device\n"
    assert printed.err.endswith(said)


def test_a_report_is_no_folder(scenario: str, tmp_path: Path) -> None:
    """A path that is a folder is an error before anything is simulated."""
    with pytest.raises(ConfigError, match="it is a folder: name a file in it"):
        command.main([scenario, "--policy", POLICY, "--report", str(tmp_path)])


def test_flags_override_horizon_and_seed(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Flags override the scenario's horizon and seed."""
    first, again, other = (
        simulated(capsys, scenario, "--policy", POLICY, "--horizon", "10s", "--seed", seed)[POLICY]
        for seed in ("5", "5", "6")
    )
    assert first["requests"] == again["requests"] != other["requests"]
    assert 30 < first["requests"] / 10 < 90


def test_bad_flags_are_reported_together(scenario: str, tmp_path: Path) -> None:
    """Wrong flags are reported together."""
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
    """An unknown policy is named, and the exit code is 2."""
    assert 2 == main(["simulate", scenario, "--policy", "nobody"])
    assert "nobody" in capsys.readouterr().err


def test_unknown_parameter_of_policy_is_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A parameter that the policy does not have is an error."""
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO.replace("replicas", "replicsa"))
    assert 2 == main(["simulate", str(path), "--policy", POLICY])
    assert "replicas" in capsys.readouterr().err


def test_flags_set_quota_and_network_time(scenario: str) -> None:
    """The flags set the quota's period, with the kernel's usual tick, and the network time."""
    given = flags.parse([scenario, "--policy", POLICY, "--quota", "100ms", "--network-time", "2ms"])
    assert (Quota(0.1, 0.004), 0.002) == (given.settings.quota, given.settings.network_s)
    assert 0.003 == flags.parse([scenario, "--policy", POLICY, "--way", "3ms"]).settings.network_s
    assert flags.parse([scenario, "--policy", POLICY]).settings.quota is None
