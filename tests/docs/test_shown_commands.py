"""Commands of the pages that end by themselves end without an error, in a reader's folder."""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
from typing import TYPE_CHECKING

import pytest

from carpool.__main__ import main
from tests.docs.snippets import ROOT, take, take_one
from tests.watchdog_plugin import models

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = "docs/commands.md"
BLOCKS = [
    *take(COMMANDS, "^carpool (new|plan|policies|predict|profile|simulate|stages) "),
    *take("docs/own-policy.md", "^carpool"),
    *take("docs/policies/batch.md", "^carpool"),
    *take("docs/policies/carpool.md", "^carpool (plan|simulate)"),
    *take("docs/policies/harmonybatch.md", "^carpool"),
    *take("docs/policies/infaas.md", "^carpool (plan|simulate)"),
    *take("docs/policies/lazybatching.md", "^carpool"),
    *take("docs/profiles.md", "^carpool profile"),
    *take("docs/scaling.md", "^carpool"),
    *take("docs/simulator.md", "^carpool simulate"),
]
SLOW = {"profile", "60s", "10m", "15m", "30m"}
_SLOW_MARKS = (pytest.mark.slow, pytest.mark.timeout(900))
LINES = sorted({line for block in BLOCKS for line in block.text.splitlines()})
MATRIX = [
    line
    for block in [
        *take("docs/policies/carpool.md", "^carpool compare --matrix"),
        *take("docs/simulator.md", "^carpool compare --matrix --share"),
    ]
    for line in block.text.splitlines()
]
PATIENT = take_one("docs/policies.md", language="python", within="class Patient")
DOCTOR = take_one(COMMANDS, "^carpool doctor")
FINDING = take_one("docs/doctor.md", "^functions")
PREDICTION = take_one("docs/profiles.md", "^carpool predict")
SILENT = take_one("docs/doctor.md", "^carpool doctor")
GOLDEN = take_one("docs/wire.md", "^43 50")
STACK = """\
provider: {name: openfaas}
functions:
  classify:
    skip_build: true
    image: classify:latest
    labels: {com.carpool.slo: 8s}
    environment: {exec_timeout: 5s}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder with the files that the commands expect of the reader."""
    shutil.copytree(ROOT / "examples" / "scenarios", tmp_path / "examples" / "scenarios")
    (tmp_path / "scenario.yaml").write_text(
        "models: {toy: {linear: {base_ms: 20, per_item_ms: 5}}}\n"
        "functions:\n  - {name: classify, model: toy, slo_ms: 3000, apps: "
        "[{name: web, arrivals: {poisson: {rate: 20}}}]}\nhorizon_s: 5\n"
    )
    policy = (ROOT / "examples" / "policy" / "headroom.py").read_text()
    (tmp_path / "headroom.py").write_text(policy)
    (tmp_path / "patient.py").write_text(PATIENT)
    (tmp_path / "mine.py").write_text(f"{policy}\n\nPolicy = Headroom\n")
    models.mlp(tmp_path / "model.onnx")
    models.mlp(tmp_path / "function" / "model.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder", "quick_checks")
@pytest.mark.parametrize(
    "line",
    [pytest.param(x, marks=_SLOW_MARKS if SLOW & {*x.split()} else ()) for x in LINES],
)
def test_command_succeeds_with_output(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends with exit code 0 and prints something."""
    name, *argv = shlex.split(line.replace("NAME", "classify"), comments=True)
    assert "carpool" == name
    assert 0 == main(argv)
    assert capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("line", MATRIX)
def test_matrix_compares_policies(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The command ranks all its policies."""
    name, *argv = shlex.split(line, comments=True)
    assert "carpool" == name
    assert 0 == main(argv)
    ranked = re.findall(r"^\| `?([\w:-]+)`? \| +\d", capsys.readouterr().out, re.MULTILINE)
    named = {policy for flag, policy in itertools.pairwise(argv) if flag == "--policy"}
    assert named <= set(ranked)
    assert len(ranked) >= 2


def test_doctor_output_matches_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both commands give the same finding, because the stack file has its usual name."""
    (folder / "stack.yaml").write_text(STACK)
    for command in (DOCTOR, SILENT):
        assert 1 == main(command.split()[1:])
        assert FINDING == capsys.readouterr().out.splitlines(keepends=True)[0]


def test_message_matches_golden_file() -> None:
    """The first columns have the bytes of the golden message that the page does not omit."""
    whole = (ROOT / "tests" / "contract" / "golden" / "request.bin").read_bytes()
    rows = re.findall(r"^((?:[0-9a-f]{2} +)+)(\.\.\.)?", GOLDEN, re.MULTILINE)
    shown = [bytes.fromhex(row) for row, _ in rows]
    assert whole.startswith(shown[0] + shown[1])
    assert b"".join(shown[2:]) == whole[40 : 40 + len(b"".join(shown[2:]))]
    assert 197 == len(whole)


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_prediction_output_matches_page(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The second prediction, which measures nothing, differs in numbers and names alone."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))  # no other test has profiled the model there
    command, shown = PREDICTION.split("\n\n")
    for _ in range(2):
        capsys.readouterr()
        assert 0 == main(shlex.split(command)[1:])
    expected = shape(shown.partition("\n...")[0])
    assert expected == shape(capsys.readouterr().out)[: len(expected)]


def shape(text: str) -> list[list[str]]:
    """Return the words of each line, without numbers and the names of model and processor.

    The warning that the laws are from another machine is left out: the page shows a prediction on
    the machine that they were measured on, and the test may run on any.
    """
    text = re.sub(r"^the laws are from another machine.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\S+: sum", "sum", text)
    text = re.sub(r"laws from .* \(", "laws from (", text)
    return [re.sub(r"\d+(\.\d+)?", "N", line).split() for line in text.splitlines()]
