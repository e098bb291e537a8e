"""Parsing of scenario files."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from carpool.arrivals.markov import mmpp2
from carpool.arrivals.processes import Poisson, Trace
from carpool.errors import ConfigError
from carpool.latency.coefficients import Coefficients
from carpool.latency.linear import Linear
from carpool.latency.table import Table
from scaler.planning.cost import Prices
from scaler.planning.placement import Node
from scaler.scenarios.scenario_file import read_scenario

if TYPE_CHECKING:
    from pathlib import Path

    from scaler.scenarios.scenario import Scenario
    from tests.measured import Data

WHOLE = """\
cluster:
  nodes: [{name: gpu, count: 2, cpus: 32, gpus: 2, memory_gb: 128}, {name: cpu, cpus: 64}]
prices: {billing: pay-per-use, cpu_core_s: 9.0e-5, memory_gb_s: 9.0e-6, gpu_gb_s: 1.1e-4,
         gpu_percent_s: 7.0e-6, call: 9.0e-7, gpu_billing_granularity_s: 1}
models:
  resnet-50: {table: profiles/resnet-50.csv, load_s: 2.0, memory_mb: 700}
  vgg19:     {coefficients: vgg19.json, load_s: 3}
  toy:       {linear: {base_ms: 50, per_item_ms: 20}}
functions:
  - name: classify
    model: resnet-50
    slo_ms: 200
    percentile: 0.95
    max_batch: 16
    apps:
      - {name: web, arrivals: {poisson: {rate: 300}}}
      - {name: vr, slo_ms: 100, arrivals: {mmpp2: {rates: [5, 50], switch: [0.5, 1.0]}}}
      - {name: cars, arrivals: {trace: periodic.csv, scale: 60}}
  - name: other
    model: toy
    slo_ms: 500
    apps: [{name: all, arrivals: {trace: periodic.csv}}]
policies: {infless: {alpha: 0.8}, fixed: }
horizon_s: 60.5
seed: 7
"""
LEAST = """\
models: {toy: {linear: {base_ms: 50, per_item_ms: 20}}}
functions:
  - {name: f, model: toy, slo_ms: 200, apps: [{name: web, arrivals: {poisson: {rate: 3}}}]}
"""
COEFFICIENTS = {
    "gpu": {"per_item_s": 0.001, "base_s": 0.002, "time_slice_s": 0.002, "total_slices_gb": 24}
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder with stand-ins for the measured files."""
    (tmp_path / "profiles").mkdir()
    rows = "cpu_threads,gpu_percent,batch,latency_ms\n2,0,1,152\n2,0,4,403\n2,10,1,60\n"
    (tmp_path / "profiles" / "resnet-50.csv").write_text(rows)
    (tmp_path / "vgg19.json").write_text(json.dumps(COEFFICIENTS))
    (tmp_path / "periodic.csv").write_text("start_s,requests_per_minute\n0,0.5\n600,1\n")
    return tmp_path


def read(folder: Path, text: str) -> Scenario:
    """Read ``text`` as a scenario in ``folder``."""
    path = folder / "scenario.yaml"
    path.write_text(text)
    return read_scenario(path)


def test_reads_every_key(folder: Path) -> None:
    """All keys are parsed, times are in seconds, and files beside the scenario are found."""
    scenario = read(folder, WHOLE)
    gpus = [Node(f"gpu-{number}", 32, 2, 128 * 1024) for number in range(2)]
    assert (*gpus, Node("cpu-0", 64)) == scenario.nodes
    assert (
        Prices("pay-per-use", 9e-5, 9e-6, 1.1e-4, 7e-6, 9e-7, gpu_billing_granularity_s=1)
        == scenario.prices
    )
    resnet, vgg19, toy = (scenario.models[name] for name in ("resnet-50", "vgg19", "toy"))
    assert isinstance(resnet, Table)
    assert isinstance(vgg19, Coefficients)
    assert (2.0, 700, 3) == (resnet.load_s, resnet.memory_mb, vgg19.load_s)
    assert Linear(0.05, 0.02) == toy
    assert 0.152 == resnet.predict(1, 2, 0)
    assert {"infless": {"alpha": 0.8}, "fixed": {}} == scenario.policies
    assert (60.5, 7) == (scenario.horizon_s, scenario.seed)


def test_reads_functions_and_their_applications(folder: Path) -> None:
    """An application has its own or its function's objective and one of three processes."""
    classify, other = read(folder, WHOLE).functions
    assert ("classify", "resnet-50", 0.2, 0.95, 16) == (
        *(classify.name, classify.model_name, classify.slo_s),
        *(classify.percentile, classify.max_batch),
    )
    assert ["web", "vr", "cars"] == [app.name for app in classify.apps]
    assert [0.2, 0.1, 0.2] == [app.slo_s for app in classify.apps]
    assert [
        Poisson(300),
        mmpp2((5, 50), (0.5, 1.0)),
        Trace((0.0, 600.0), (0.5, 1.0), 1200.0),
    ] == [app.arrivals for app in classify.apps]
    assert 0.75 / 60 == other.apps[0].arrivals.mean_rate


def test_optional_keys_have_defaults(folder: Path) -> None:
    """A model and a function are enough; servers are then unlimited and nothing has a price."""
    scenario = read(folder, LEAST)
    assert ((), Prices(), {}) == (scenario.nodes, scenario.prices, scenario.policies)
    assert (600.0, 1) == (scenario.horizon_s, scenario.seed)
    (function,) = scenario.functions
    assert (0.99, 32) == (function.percentile, function.max_batch)


def test_paths_are_relative_to_scenario_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are relative to the scenario file, not to the working directory."""
    (folder / "scenario.yaml").write_text(WHOLE)
    monkeypatch.chdir(folder / "profiles")
    assert 3 == len(read_scenario(folder / "scenario.yaml").models)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(
            *("horizon_s", "horizons", r":24: horizons = '60.5': .*did you mean 'horizon_s'"),
            id="top-key",
        ),
        pytest.param(
            *("slo_ms: 100", "slo: 100", r":17: functions\[0\].apps\[1\].slo = '100': .*slo_ms'"),
            id="app-key",
        ),
        pytest.param(
            *("memory_gb", "memory", r":2: cluster.nodes\[0\].memory = .*memory_gb'"),
            id="node-key",
        ),
        pytest.param(*("gpu_gb_s", "gpu_gbs", "did you mean 'gpu_gb_s'"), id="price-key"),
        pytest.param(
            *("table: p", "tables: p", r":6: models.resnet-50.tables = .*did you mean 'table'"),
            id="model-kind",
        ),
        pytest.param(
            *("rate: 300", "rate: -3", r":16: functions\[0\].*poisson.rate = '-3': expected a num"),
            id="negative-rate",
        ),
        pytest.param(
            *("rate: 300", "rate: '300'", "poisson.rate = '300': expected a number of at least 0"),
            id="quoted-number",
        ),
        pytest.param(*("rate: 300", "rate: .nan", "rate = '.nan': expected a number"), id="nan"),
        pytest.param(
            *("{rate: 300}", "{}", "poisson.rate is missing: expected a value"),
            id="no-rate",
        ),
        pytest.param(
            *("cpus: 32", "cpus: 0", r"nodes\[0\].cpus = '0': expected a number above 0"),
            id="zero-capacity",
        ),
        pytest.param(*("count: 2", "count: 0", r"count = '0': expected a whole"), id="no-nodes"),
        pytest.param(
            *("count: 2", "count: 1e12", "expected a whole number from 1 to 1000000"), id="too-many"
        ),
        pytest.param(
            *("name: cpu,", "name: gpu,", r"nodes\[1\].name = 'gpu': expected another name"),
            id="twin-nodes",
        ),
        pytest.param(
            *(
                "slo_ms: 200",
                "slo_ms: 0",
                r":12: functions\[0\].slo_ms = '0': expected a number ab",
            ),
            id="slo",
        ),
        pytest.param(
            *("0.95", "95", "percentile = '95': expected a number between 0 and 1"), id="percentile"
        ),
        pytest.param(
            *("max_batch: 16", "max_batch: 1.5", "max_batch = '1.5': expected a whole number"),
            id="max-batch",
        ),
        pytest.param(
            *("model: toy", "model: toys", r":20: .*model = 'toys': .*; did you mean 'toy'"),
            id="model-name",
        ),
        pytest.param(
            *(
                "name: other",
                "name: classify",
                r"functions\[1\].name = 'classify': expected another",
            ),
            id="twin-functions",
        ),
        pytest.param(*("name: vr", "name: web", r"apps\[1\].name = 'web'"), id="twin-apps"),
        pytest.param(
            *("name: vr", "name: '*'", r"apps\[1\].name = '\*': expected a name of letters"),
            id="app-name",
        ),
        pytest.param(
            *("name: other", "name: Other_", "'Other_': expected a name of a-z"), id="name"
        ),
        pytest.param(
            *("toy:       {linear", "toy:       {table: x, linear"),
            r":8: models.toy = 'table and linear': expected exactly one of table, coefficients",
            id="two-kinds",
        ),
        pytest.param(
            *("coefficients: vgg19.json, ", "", "vgg19 = 'none': expected exactly one of table"),
            id="no-kind",
        ),
        pytest.param(
            *("load_s: 3", "memory_mb: 3", "models.vgg19.memory_mb = '3': expected"),
            id="memory-is-in-the-file",
        ),
        pytest.param(
            *("base_ms: 50, per_item_ms: 20", "base_ms: 0, per_item_ms: 0"),
            "toy.linear = '0 and 0': expected base_ms or per_item_ms above 0",
            id="no-time",
        ),
        pytest.param(
            *("rates: [5, 50]", "rates: [5]", r"mmpp2.rates = '\[5\]': expected a list of two"),
            id="one-rate",
        ),
        pytest.param(
            *("rates: [5, 50]", "rates: [0, 0]", r":17: .*mmpp2.rates = .*one of them above 0"),
            id="no-requests",
        ),
        pytest.param(
            *("switch: [0.5, 1.0]", "switch: [0, 1.0]", r"switch\[0\] = '0': expected a number ab"),
            id="never-switches",
        ),
        pytest.param(
            *("{rate: 300}}", "{rate: 300}, scale: 2}", "arrivals.scale = '2': expected"),
            id="scale-of-poisson",
        ),
        pytest.param(
            *("scale: 60", "scale: 0", "scale = '0': expected a number above"), id="scale"
        ),
        pytest.param(
            *("trace: periodic.csv, ", "trace: periodc.csv, "),
            r":18: .*trace = 'periodc.csv': expected an existing file; did you mean 'periodic.csv'",
            id="no-trace",
        ),
        pytest.param(
            *("profiles/", "profile/", "profile/resnet-50.csv': expected an existing"),
            id="no-table",
        ),
        pytest.param(
            *("billing: pay-per-use", "billing: pay-per-us"),
            r":3: prices.billing = 'pay-per-us': expected one of .*did you mean 'pay-per-use'",
            id="billing",
        ),
        pytest.param(
            *("call: 9.0e-7", "call: -1", "prices.call = '-1': expected a number"), id="price"
        ),
        pytest.param(
            *("infless: {alpha: 0.8}", "infless: 0.8"),
            "policies.infless = '0.8': expected a mapping of the policy's parameters",
            id="policies",
        ),
        pytest.param(*("seed: 7", "seed: -1", "seed = '-1': expected a whole number"), id="seed"),
        pytest.param(*("60.5", "0", "horizon_s = '0': expected a number above 0"), id="horizon"),
        pytest.param(*("models:", "model:", "model = .*did you mean 'models'"), id="models"),
        pytest.param(*("seed: 7", "seed: 7\nseed: 8", "expected each key once"), id="twin-keys"),
    ],
)
def test_error_names_file_line_and_value(folder: Path, old: str, new: str, expected: str) -> None:
    """An error names file, line, value, what was expected and the nearest name."""
    assert old in WHOLE
    with pytest.raises(ConfigError, match=f"scenario.yaml.*{expected}"):
        read(folder, WHOLE.replace(old, new, 1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("models: {}\nfunctions: []\n", r":2: functions = '\[\]': expected at least one function"),
        (LEAST.replace("[{name: web, arrivals: {poisson: {rate: 3}}}]", "[]"), "one application"),
        (LEAST + "cluster: {nodes: []}\n", "expected at least one group of nodes"),
        (LEAST + "cluster: {}\n", "cluster.nodes is missing: expected a value"),
        (LEAST.replace("{toy: {", "{x: {"), "model = 'toy': expected a model of the scenario: x"),
        ("models: [a]\nfunctions: a\n", "models = 'list': expected a mapping of names to models"),
        ("[1, 2]\n", "document = .*expected an object with cluster"),
        ("", "the file is empty"),
    ],
)
def test_reports_what_is_missing(folder: Path, text: str, expected: str) -> None:
    """A scenario without functions, applications or servers is an error."""
    with pytest.raises(ConfigError, match=expected):
        read(folder, text)


def test_errors_in_referenced_files_name_their_own_lines(folder: Path) -> None:
    """Errors in the scenario's files are reported with their file and line, all together."""
    (folder / "periodic.csv").write_text("start_s,requests_per_minute\n0,-1\n")
    table = folder / "profiles" / "resnet-50.csv"
    table.write_text(f"{table.read_text()}2,0,1,99\n")
    (folder / "vgg19.json").write_text('{"gpu": {}}')
    with pytest.raises(ConfigError) as caught:
        read(folder, WHOLE)
    names = [os.path.relpath(p.name.partition(" ")[0], folder) for p in caught.value.problems]
    assert ["profiles/resnet-50.csv:5", *["vgg19.json:1:"] * 4, *["periodic.csv:2:"] * 2] == names


def test_measured_profile_coefficients_and_trace_are_read(data: Data, tmp_path: Path) -> None:
    """A measured profile, coefficients and a trace are accepted unchanged."""
    text = WHOLE.replace("profiles/resnet-50.csv", str(data.table("resnet-50")))
    text = text.replace("vgg19.json", str(data.coefficients))
    scenario = read(tmp_path, text.replace("periodic.csv", str(data.trace("periodic"))))
    assert data.either(0.092, 0.09875) == scenario.functions[0].model.predict(4, 4, 10)
    rate_rps = scenario.functions[0].apps[2].arrivals.mean_rate
    assert pytest.approx(data.either(60.0, 3.1), rel=0.03) == rate_rps


@pytest.mark.parametrize(
    ("prices", "lacking"),
    [
        ("{gpu_percent_s: 7.0e-6}", "cpu_core_s"),
        ("{gpu_gb_s: 1.0e-4, call: 1.0e-6}", "cpu_core_s"),
    ],
)
def test_missing_price_is_named_if_others_are_given(
    folder: Path, prices: str, lacking: str
) -> None:
    """Instances with and without a cost cannot be compared, so the missing price is named."""
    line, table = "{linear: {base_ms: 50, per_item_ms: 20}}", "{table: profiles/resnet-50.csv}"
    text = f"prices: {prices}\n{LEAST.replace(line, table)}"
    rows = folder / "profiles" / "resnet-50.csv"
    rows.write_text(f"{rows.read_text()}3,0,1,99\n")
    with pytest.raises(ConfigError, match=f"prices.{lacking} = '0': expected a price above 0"):
        read(folder, text)
    both = "{cpu_core_s: 9.0e-5, gpu_percent_s: 7.0e-6}"
    for enough in (both, "{cpu_core_s: 9.0e-5}", "{call: 1.0e-6}", "{}"):
        read(folder, text.replace(prices, enough))
