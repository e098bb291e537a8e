"""`carpool advise`: its input, output, files and exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from carpool.errors import CarpoolError, ConfigError
from carpool.settings import FunctionSettings
from scaler.policy_choice import chosen_policy
from scaler.scenarios.scenario_file import read_scenario
from simulator.advice import command
from simulator.advice import settings as advice_settings
from simulator.advice.settings import _SETTINGS, candidates, variations

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = Path(__file__).parents[3] / "examples" / "scenarios"
LINE = ["--model", "30ms+6ms", "--parts", "2", "--budget", "1h"]
HEAD = "start_s,requests_per_minute\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Return a trace of a minute, first quiet and then busy."""
    path = tmp_path / "own.csv"
    path.write_text(f"{HEAD}0,300\n30,900\n")
    return path


@pytest.fixture
def usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try no other settings, for tests of something else."""
    monkeypatch.setattr(advice_settings, "_SETTINGS", {})


def advised(trace: Path, flags: Sequence[str], capsys: pytest.CaptureFixture[str]) -> Any:
    """Return the JSON output of a command that exits with 0."""
    assert 0 == command.main([str(trace), *LINE, "--json", *flags])
    return json.loads(capsys.readouterr().out)


def test_advice_has_policy_costs_misses_and_valid_labels(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The chosen policy meets the objective, the others show relative costs; labels are valid."""
    flags = ["--policy", "openfaas", "--policy", "infless", "--slo", "200ms"]
    document = advised(trace, flags, capsys)
    advice = document["advice"]
    first, *others = document["policies"]
    assert advice["meets_objective"]
    assert 0.01 >= first["missed"]["value"]
    assert first["cost_beside_advice"]["value"] == pytest.approx(1.0)
    assert {"openfaas", "infless"} <= {each["policy"] for each in document["policies"]}
    for each in others:
        if each["meets_objective"]:
            assert 0.97 <= each["cost_beside_advice"]["value"]
    cost = first["cost_per_hour"]
    assert cost["low"] <= cost["value"] <= cost["high"]
    settings = FunctionSettings.from_labels(advice["labels"], advice["annotations"])
    assert (0.2, 0.99, 0) == (settings.slo_s, settings.percentile, settings.scale_min)
    assert (60.0, 10.0, 15.0) == tuple(
        document["trace"][key] for key in ("length_s", "mean_rps", "peak_rps")
    )


@pytest.mark.usefixtures("usual")
def test_text_ends_with_valid_yaml_labels(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The labels in the text are valid YAML settings, and progress goes to stderr."""
    flags = [str(trace), *LINE, "--policy", "infaas", "--slo", "250ms", "--percentile", "0.95"]
    assert 0 == command.main(flags)
    printed = capsys.readouterr()
    labels = yaml.safe_load(printed.out.rpartition("under the function:\n")[2])["labels"]
    settings = FunctionSettings.from_labels(labels)
    assert (0.25, 0.95) == (settings.slo_s, settings.percentile)
    assert "infaas" in labels["com.carpool.scale.policy"]
    assert "intervals have a confidence of 95 %" in " ".join(printed.out.split())
    assert re.search(
        r"\d+ s of 3600 s of CPU time, at most about \d+ s left: part 1 of 2, infaas: cost",
        printed.err,
    )


def test_written_scenario_matches_request_and_chosen_policy(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file has the given model, load, prices and objective, and the chosen policy."""
    out = tmp_path / "advice.yaml"
    flags = [
        "--policy",
        "openfaas",
        "--scale",
        "2",
        "--billing",
        "pay-per-use",
        "--currency",
        "EUR",
    ]
    flags += ["--core-hour", "3.6", "--function", "classify", "--out", str(out)]
    flags += ["--percentile", "0.95"]  # few requests come until the first instances are there
    document = advised(trace, flags, capsys)
    scenario = read_scenario(out)
    (function,) = scenario.functions
    assert "classify" == function.name
    assert function.model.predict(2, 1.0, 0.0) == pytest.approx(0.042)
    assert 2.0 == function.model.load_s
    assert function.slo_s == pytest.approx(4 * 0.036)  # where none is given
    assert function.apps[0].arrivals.mean_rate == pytest.approx(20.0)
    assert ("pay-per-use", 0.001, "EUR") == (
        scenario.prices.billing,
        scenario.prices.cpu_core_s,
        scenario.prices.currency,
    )
    label = document["advice"]["labels"]["com.carpool.scale.policy"]
    assert chosen_policy(label, scenario.policies)


@pytest.mark.usefixtures("usual")
def test_trace_with_byte_order_mark_and_very_long_row_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A spreadsheet's byte order mark is ignored, and a row may last for decades."""
    path = tmp_path / "long.csv"
    path.write_text(f"\ufeff{HEAD}0,60\n1e9,60\n", encoding="utf-8")
    document = advised(path, ["--policy", "infaas", "--parts", "1"], capsys)
    assert 2e9 == document["trace"]["length_s"]
    assert any("277777h46m40s" in note for note in document["notes"])


@pytest.mark.usefixtures("usual")
@pytest.mark.parametrize(
    ("model", "flags"),
    [
        ("resnet-50.csv", []),
        (str(EXAMPLES / "tagging.json"), []),
        (str(EXAMPLES / "variants" / "objects.json"), ["--accuracy", "0.7"]),
    ],
)
def test_all_forms_of_models_are_read(
    model: str, flags: list[str], trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Models may be tables, coefficients or variants, and the examples' are found by name."""
    out = tmp_path / "advice.yaml"
    given = ["--policy", "infaas", "--parts", "1", "--budget", "1h", "--json", "--out", str(out)]
    command.main([str(trace), "--model", model, *given, *flags])
    document = json.loads(capsys.readouterr().out)
    (function,) = read_scenario(out).functions
    assert Path(model).stem == document["model"] == function.model_name
    if flags:
        annotations = document["advice"]["annotations"]
        (app,) = json.loads(annotations["com.carpool.apps"])
        assert 0.7 == app["accuracy"] == function.apps[0].accuracy


@pytest.mark.usefixtures("usual")
def test_exit_code_is_1_if_no_policy_meets_objective(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If no policy meets the objective, the command exits with 1 and shows the closest one."""
    flags = ["--policy", "openfaas", "--slo", "40ms", "--percentile", "0.9999"]
    assert 1 == command.main([str(trace), *LINE, *flags])
    printed = " ".join(capsys.readouterr().out.split())
    assert "No policy meets the objective" in printed
    assert "com.carpool.slo: 40ms" in printed


@pytest.mark.usefixtures("usual")
def test_policy_that_plans_nothing_gets_note(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A policy that plans nothing gets a note with the reason, here a size that the model lacks."""
    table = tmp_path / "table.csv"
    rows = "0.5,0,1,8\n0.5,0,8,30\n1,0,1,4\n1,0,8,16\n"
    table.write_text(f"cpu_threads,gpu_percent,batch,latency_ms\n{rows}")
    flags = ["--model", str(table), "--policy", "openfaas", "--policy", "infless"]
    assert 0 == command.main([str(trace), *flags, "--parts", "1", "--json"])
    (note,) = (n for n in json.loads(capsys.readouterr().out)["notes"] if "openfaas" in n)
    assert note.startswith("openfaas planned no instance for up to ")
    assert "asks for a size of 2 cores, which the model does not have" in note
    assert "its sizes are 0.5 cores; 1 core. Set the policy's parameters cpu and gpu" in note


@pytest.mark.usefixtures("usual")
def test_failed_policy_is_reported_and_never_chosen(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failed policy is shown with its error; if all fail, the exit code is 1."""
    broken = ["--policy", "tests.simulator.advice.poor_policies:Broken"]
    document = advised(trace, [*broken, "--policy", "openfaas", "--slo", "300ms"], capsys)
    assert "openfaas" == document["advice"]["policy"]
    assert any("no idea for function" in note for note in document["notes"])
    (failed,) = (each for each in document["policies"] if each["failure"])
    unknown = {"value": None, "low": None, "high": None}
    assert {"missed", "cost_per_hour", "cost_per_1k", "cost_over_bound", "cost_beside_advice"} == {
        name for name, value in failed.items() if value == unknown
    }
    assert 1 == command.main([str(trace), *LINE, *broken])
    printed = capsys.readouterr().out
    assert "Every policy failed." in printed
    assert "no idea for function" in " ".join(printed.split())
    assert 1 == command.main([str(trace), *LINE, *broken, "--json"])
    assert json.loads(capsys.readouterr().out)["advice"] is None


def test_too_short_budget_is_error(trace: Path) -> None:
    """A budget that is too short is an error that suggests a longer one."""
    with pytest.raises(CarpoolError, match="--budget 4ms"):
        command.main([str(trace), "--model", "30ms+6ms", "--budget", "1ms", "--policy", "infaas"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,calls\n0,1\n", "the header start_s,requests_per_minute"),
        (f"{HEAD}-60,5\n0,5\n", "a number of seconds from 0 to 1e10"),
        (f"{HEAD}0,5\n1e300,5\n", "a number of seconds from 0 to 1e10"),
        (f"{HEAD}0,5\n0,6\n", "a start after 0"),
        (f"{HEAD}0,many\n", "a rate of at least 0"),
        (f"{HEAD}0,0\n60,0\n", "a rate above 0"),
        (HEAD, "at least one row"),
    ],
)
def test_trace_error_names_file_and_expectation(text: str, said: str, tmp_path: Path) -> None:
    """Errors in a trace name the file and what was expected."""
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(said)) as refused:
        command.main([str(path), *LINE])
    assert "bad.csv" in str(refused.value)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model", "nowhere.csv"], "there is no such file"),
        (["--model", "30ms+soon"], "a linear model such as 30ms+6ms"),
        (["--model", str(EXAMPLES / "osvt.yaml")], "a table FILE.csv"),
        (["--model", "periodic.csv"], "cpu_threads,gpu_percent,batch,latency_ms"),
        (["--model", "30ms+6ms", "--slo", "36ms"], "more than 36ms"),
        (["--model", "30ms+6ms", "--slo", "fast"], "200ms"),
        (["--model", "30ms+6ms", "--accuracy", "0.5"], "--accuracy"),
        (["--model", "30ms+6ms", "--policy", "infles"], "infless"),
        (["--model", "30ms+6ms", "--parts", "0"], "--parts"),
        (["--model", "30ms+6ms", "--budget", "3"], "--budget"),
        (["--model", "30ms+6ms", "--max-batch", "1000000000"], "--max-batch"),
        (["--model", "30ms+6ms", "--function", "A b"], "--function"),
        (["--model", "30ms+6ms", "--out", "no/such/folder/out.yaml"], "a folder that exists"),
        (["--model", "30ms+6ms", "--out", "."], "it is a folder: name a file in it"),
        (["--model", "30ms+6ms", "--scale", "1e9"], "requests"),
        (["--model", "30ms+6ms", "--gpu-hour", "0"], "--gpu-hour"),
    ],
)
def test_wrong_flags_are_reported_before_running(
    flags: list[str], said: str, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong flags exit with code 2 before anything is run."""
    with pytest.raises(ConfigError) as refused:
        command.main([str(trace), *flags])
    assert said in str(refused.value)
    assert 2 == refused.value.exit_code
    assert "part 1" not in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(_SETTINGS))
def test_other_settings_are_valid_for_policy(name: str) -> None:
    """The other settings are valid for the policy, and their names are valid label values."""
    policies = candidates([name])
    every = policies | variations(name, policies)
    assert len(every) > 1
    made = [chosen_policy(each, every) for each in every]
    assert len(made) == len(every)
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", each) for each in every)
