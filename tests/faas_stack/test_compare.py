"""Tests of ``carpool compare``, which makes a simulation's table on a running stack."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from carpool.__main__ import main
from faas_stack.compare import stack_under_test
from scaler.scenarios.scenario_file import read_scenario
from tests.docs.snippets import take
from tests.faas_stack.test_up import carpool, descendants
from tests.live.stack import write_function
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

SCENARIO = """\
models: {toy: {linear: {base_ms: 20, per_item_ms: 2, cpu: 0.5}, load_s: 0.2}}
prices: {cpu_core_s: 1.0}
functions:
  - name: echo
    model: toy
    slo_ms: 500
    max_batch: 8
    apps:
      - {name: web, arrivals: {poisson: {rate: 40}}}
      - {name: phone, slo_ms: 300, arrivals: {poisson: {rate: 20}}}
horizon_s: 3
"""
# Where real processes serve it, a busy machine may be late.
TOY = "toy: {linear: {base_ms: 20, per_item_ms: 2, cpu: 0.5}, load_s: 0.2}"
PATIENT = SCENARIO.replace("slo_ms: 500", "slo_ms: 3000").replace("slo_ms: 300", "slo_ms: 2000")
SHOWN = [
    *take("docs/commands.md", "^carpool compare .*--live"),
    *take("docs/simulator.md", "^carpool compare .*--live"),
]
LIVE = ("compare", "scenario.yaml", "--live", "--policy", "infless")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a scenario."""
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    return tmp_path


def keys(data: Any) -> Any:
    """Return a document's keys at every depth."""
    return {key: keys(value) for key, value in data.items()} if isinstance(data, dict) else None


def test_usage_names_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without ``--live``, too, a missing option is reported by the name of the command."""
    with pytest.raises(SystemExit):
        main(["compare", str(folder / "scenario.yaml")])
    assert "carpool compare: error: the following arguments" in capsys.readouterr().err


def test_compare_without_stack_is_a_simulation(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a stack, ``compare`` prints the same as ``simulate``."""
    printed = []
    for command in ("compare", "simulate"):
        assert 0 == main([command, str(folder / "scenario.yaml"), "--policy", "fixed"])
        printed.append([s for s in capsys.readouterr().out.splitlines() if "planning" not in s])
    assert printed[0] == printed[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--data", "ecko=x"), "did you mean 'echo'"),
        (("--data", "echo=@nowhere"), "a readable file"),
        (("--path", "echo=v2"), "a path such as"),
        (("--horizon", "soon"), "a duration"),
        (("--policy", "infles"), "did you mean 'infless'"),
        (("-f", "nowhere.yaml"), "an existing file"),
    ],
)
def test_invalid_options_are_reported_before_start(
    folder: Path,
    options: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Invalid options are reported before anything is started."""
    monkeypatch.chdir(folder)
    assert 2 == main([*LIVE, *options])
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"slo": "200ms"}, "com.carpool.slo"),
        ({"batch.max": "4"}, "com.carpool.batch.max"),
        ({"scale.policy": "fixed"}, "nothing scales it"),
        ({}, "com.carpool.apps"),
    ],
)
def test_a_stack_of_another_scenario_is_refused(
    folder: Path,
    labels: Mapping[str, str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A stack that does not match the scenario is refused."""
    write_function(folder, **labels)
    monkeypatch.chdir(folder)
    assert 2 == main([*LIVE, "-f", "stack.yaml"])
    assert said in capsys.readouterr().err


def test_generated_stack_matches_scenario(folder: Path) -> None:
    """The generated stack of stand-ins passes the check for users' stacks."""
    scenario = read_scenario(folder / "scenario.yaml")
    stack_under_test.check(scenario, stack_under_test.write_stand_ins(scenario, folder / "stage"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_trace_is_replayed_under_several_policies(folder: Path) -> None:
    """Each policy gets the same requests, and the document has the form of a simulation's."""
    (folder / "scenario.yaml").write_text(PATIENT)
    shown = {re.sub(r" --horizon .*", "", block.text.strip()) for block in SHOWN}
    (command,) = {line.replace("SCENARIO", "scenario.yaml") for line in shown}
    options = [*command.removeprefix("carpool ").split(), "--json", "--report", "out.html"]
    with carpool(folder, *options) as live:
        assert live.process.stdout is not None
        text = live.process.stdout.read()
        code, said = live.ended()
    assert 0 == code, said
    found = json.loads(text)["policies"]
    with carpool(folder, "simulate", options[1], *options[3:-2]) as simulated:
        assert simulated.process.stdout is not None
        expected = json.loads(simulated.process.stdout.read())["policies"]
    assert keys(expected) == keys(found)
    for policy in ("infless", "openfaas"):
        assert expected[policy]["requests"] == found[policy]["requests"]
        assert found[policy]["done"] >= 0.9 * found[policy]["requests"]
        assert found[policy]["cpu_core_s"] > 0
        assert found[policy]["cost"] > 0
        apps = found[policy]["functions"]["echo"]["apps"]
        assert {"web", "phone"} == apps.keys()
    assert found["openfaas"]["mean_batch"] == 1
    assert "<svg" in (folder / "out.html").read_text()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_policy_that_needs_too_many_cores_ends_at_once(
    folder: Path,
) -> None:
    """A policy that needs more cores than the machine has ends at once, and others are printed."""
    table = "cpu_threads,gpu_percent,batch,latency_ms\n"
    table += "".join(f"{cores},0,{batch},20\n" for cores in (1, 4000) for batch in (1, 8))
    (folder / "toy.csv").write_text(table)
    text = PATIENT.replace(TOY, "toy: {table: toy.csv, load_s: 0.2}")
    text += "cluster: {nodes: [{name: large, count: 1, cpus: 8000, memory_gb: 64}]}\n"
    text += "policies: {huge: {policy: fixed, cpu: 4000}}\n"
    (folder / "scenario.yaml").write_text(text)
    apps = [{"name": "web", "slo": "20s"}, {"name": "phone", "slo": "2s"}]
    write_function(folder, slo="20s")
    stack = json.loads((folder / "stack.yaml").read_text())
    stack["functions"]["echo"]["annotations"] = {"com.carpool.apps": json.dumps(apps)}
    (folder / "stack.yaml").write_text(json.dumps(stack))
    options = (*LIVE[:3], "--policy", "fixed", "--policy", "huge", "-f", "stack.yaml")
    with carpool(folder, *options) as live:
        assert live.process.stdout is not None
        table = live.process.stdout.read()
        code, said = live.ended()
    assert 1 == code, said
    assert "the instances of echo are refused" in said
    assert "at most" in said
    assert "fixed" in table
    assert "huge" not in table


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_stand_ins_with_gpus_run_on_machine_without_gpus(folder: Path) -> None:
    """Stand-ins with GPUs are not refused on a machine without them, as nothing is counted."""
    policies = "policies: {shared: {policy: fixed, cpu: 1, gpu: 40}}\n"
    table = "cpu_threads,gpu_percent,batch,latency_ms\n1,40,1,20\n1,40,8,40\n"
    (folder / "toy.csv").write_text(table)
    text = PATIENT.replace(TOY, "toy: {table: toy.csv, load_s: 0.2}") + policies
    (folder / "scenario.yaml").write_text(text)
    with carpool(folder, *LIVE[:3], "--policy", "shared", "--json") as live:
        assert live.process.stdout is not None
        text = live.process.stdout.read()
        code, said = live.ended()
    assert 0 == code, said
    found = json.loads(text)["policies"]["shared"]
    assert found["done"] >= 0.9 * found["requests"] > 0
    assert found["gpu_percent_s"] > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing_behind(folder: Path, number: signal.Signals) -> None:
    """An interrupt leaves no processes behind."""
    with carpool(folder, *LIVE) as live:
        wait_until(lambda: "warming up" in "".join(live.said), what="a stack")
        started = descendants(live.process.pid)
        assert len(started) >= 3
        live.process.send_signal(number)
        code = live.process.wait(HANG_S)
        wait_until(
            lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), what="no process"
        )
    assert 130 == code, "".join(live.said)
