"""The commands and the code in docs/advise.md run as they are printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from carpool.__main__ import main
from carpool.arrivals.processes import read_trace
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
PRINTED = take_one(PAGE, "^bursty.csv: ")
SIMULATE = take_one(PAGE, "^carpool simulate")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a reader's folder with the files that the page mentions."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.csv").write_text(TRACE)
    table = (ROOT / "examples" / "scenarios" / "resnet-50.csv").read_text()
    (tmp_path / "latencies.csv").write_text(table)
    return tmp_path


@pytest.mark.parametrize(("span_s", "steps"), [(35, 4), (5, 1)])
def test_page_code_makes_trace_from_log(folder: Path, span_s: int, steps: int) -> None:
    """The trace has a request for each line of the log, in steps of ten seconds."""
    (folder / "times.txt").write_text("".join(f"{1000 + n % span_s}.5\n" for n in range(700)))
    exec(compile(CODE, "advise.md", "exec"), {"__name__": __name__})
    trace = read_trace(folder / "trace.csv")
    assert tuple(10.0 * n for n in range(steps + 1)) == trace.starts_s
    assert trace.mean_rate * trace.end_s == pytest.approx(700)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_give_advice(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command recommends a policy; a scenario that it writes can be read."""
    name, *argv = shlex.split(command)
    assert "carpool" == name
    assert main(argv) in {0, 1}  # in the trace of three rows, no policy meets the objective
    assert "com.carpool.scale.policy: " in capsys.readouterr().out
    if "--out" in argv:
        assert read_scenario(folder / argv[argv.index("--out") + 1])
        assert 0 == main(SIMULATE.split()[1:])
        assert (folder / "out.html").exists()


def sentences(text: str) -> set[str]:
    """Return the sentences of the advice without intervals, numbers and the policy's name."""
    advice = " ".join(text.split("\n\n")[1].split())
    plain = re.sub(r"Use \w+", "Use", re.sub(r" \(.*?\)", "", advice))
    return set(re.sub(r"\d+(\.\d+)?", "N", plain).rstrip(".").split(". "))


def headings(text: str) -> list[str]:
    """Return the headings of the table."""
    (line,) = re.findall(r"^policy .*", text, re.MULTILINE)
    return re.split(r"  +", line)


@pytest.mark.slow
def test_advice_has_form_of_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two parts and one policy give other numbers, but the same sentences, headings and labels."""
    del folder
    (command,) = [each for each in COMMANDS if "bursty.csv" in each]
    argv = shlex.split(re.sub(r"--policy \w+|--parts \d+", "", command))
    assert 0 == main([*argv[1:], "--parts", "2", "--policy", "infaas", "--budget", "1h"])
    printed = capsys.readouterr().out
    assert PRINTED.split("\n\n")[0] == printed.split("\n\n")[0]
    assert 4 == len(sentences(printed))
    assert sentences(printed) < sentences(PRINTED)
    assert headings(PRINTED) == headings(printed)
    assert (
        PRINTED.partition("In the stack")[2].strip() == printed.partition("In the stack")[2].strip()
    )


def test_commands_are_found() -> None:
    """The test above has commands to run."""
    assert 3 == len(COMMANDS)
