"""The commands and the code in docs/advise.md run as they are printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from carpool.__main__ import main
from scaler.arrivals.processes import read_trace
from scaler.scenarios.scenario_file import read_scenario
from tests.docs.snippets import take, take_one

ROOT = Path(__file__).parents[2]
PAGE = "docs/advise.md"
CODE = take_one(PAGE, language="python")
TRACE = take_one(PAGE, "^start_s")
COMMANDS = sorted(
    {
        line
        for page in (PAGE, "docs/commands.md")
        for block in take(page, "^carpool advise")
        for line in block.text.replace("\\\n", "").splitlines()
        if line.startswith("carpool advise")
    }
)
SIMULATE = take_one(PAGE, "^carpool simulate")
QUICK = ["--parts", "1", "--budget", "1h", "--policy", "openfaas"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a reader's folder with the files that the page mentions."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.csv").write_text(TRACE)
    table = (ROOT / "examples" / "scenarios" / "resnet-50.csv").read_text()
    (tmp_path / "latencies.csv").write_text(table)
    return tmp_path


def test_the_code_makes_a_trace_of_a_log(folder: Path) -> None:
    """The trace has a request for each line of the log, in steps of ten seconds."""
    (folder / "times.txt").write_text("".join(f"{1000 + n % 35}.5\n" for n in range(700)))
    exec(compile(CODE, "advise.md", "exec"), {"__name__": __name__})
    trace = read_trace(folder / "trace.csv")
    assert (0.0, 10.0, 20.0, 30.0) == trace.starts_s
    assert trace.mean_rate * trace.end_s == pytest.approx(700)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_give_advice(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run each command for one policy and one part; a scenario that it writes can be read."""
    name, *argv = shlex.split(re.sub(r"--policy \w+", "", command))
    assert "carpool" == name
    assert main([*argv, *QUICK]) in {0, 1}
    assert "com.carpool.scale.policy: openfaas" in capsys.readouterr().out
    if "--out" in argv:
        assert read_scenario(folder / argv[argv.index("--out") + 1])
        assert 0 == main(SIMULATE.split()[1:])
        assert (folder / "out.html").exists()


def test_there_are_commands() -> None:
    """The test above has commands to run."""
    assert 3 == len(COMMANDS)
