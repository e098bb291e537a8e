"""Benchmarks of the pages run as they are printed."""

from __future__ import annotations

import json
import shlex
import shutil
from typing import TYPE_CHECKING

import pytest

from benchmarks import prewarm
from benchmarks.__main__ import main
from tests.docs.snippets import ROOT, take_one
from tests.tools import require_tool

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
GROUPING = "docs/policies/harmonybatch.md"
SELECTION = take_one("docs/policies/infaas.md", "benchmarks selection$")
SIMULATED = take_one(GROUPING, "--simulate")
BUSY_LAW = take_one("docs/policies/batch.md", "benchmarks busy-law")
PICTURE = take_one(GROUPING, "--plot")
DIVISIONS = take_one(GROUPING, "--exhaustive")
VARIANTS = take_one("docs/policies/infaas.md", "benchmarks variants")
LAW = take_one("docs/policies/batch.md", "benchmarks batch-law")
PREWARM = take_one("docs/prewarm.md", r"benchmarks\.prewarm")
SERVERS = take_one("benchmarks/README.md", "benchmarks servers")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enter a folder with coefficients in place of those that the page leaves out."""
    shutil.copy(ROOT / "examples" / "scenarios" / "tagging.json", tmp_path / "vgg19.json")
    monkeypatch.chdir(tmp_path)


def run(command: str) -> int:
    """Run a benchmark, and return its exit code."""
    python, module, package, *argv = shlex.split(command)
    assert ["python", "-m", "benchmarks"] == [python, module, package]
    return main(argv)


def test_selection_has_a_row_for_each_count(capsys: pytest.CaptureFixture[str]) -> None:
    """There is a row for each number of variants of both kinds."""
    assert 0 == run(SELECTION)
    _, *rows = capsys.readouterr().out.splitlines()
    counts = ["10", "100", "1000", "10000"]
    assert [[k, c] for k in ("drawn", "traded") for c in counts] == [x.split()[:2] for x in rows]


def test_busy_law_prints_its_largest_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Short simulations with wide intervals give a row a point, near the law's."""
    require_tool("cc")
    assert 0 == run(BUSY_LAW)
    printed = capsys.readouterr().out
    assert "largest error" in printed.splitlines()[-1]
    assert {"Poisson", "MMPP"} <= {line.partition(" ")[0] for line in printed.splitlines()}


def test_plans_of_groups_are_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    """Every case has a simulated cost and a share of late requests."""
    assert 0 == run(SIMULATED)
    assert "eight at 1 2 1 2 3 20 3 2" in capsys.readouterr().out.splitlines()[-1]


def test_picture_of_groups_is_drawn(tmp_path: Path) -> None:
    """The picture is the one of the page."""
    (tmp_path / "docs" / "policies").mkdir(parents=True)
    assert 0 == run(PICTURE)
    stored = ROOT / "docs" / "policies" / "harmonybatch.svg"
    assert stored.read_text() == (tmp_path / "docs" / "policies" / "harmonybatch.svg").read_text()


def test_all_divisions_are_tried(capsys: pytest.CaptureFixture[str]) -> None:
    """The table has the cheapest division into sets, of each case."""
    assert 0 == run(DIVISIONS)
    printed = capsys.readouterr().out
    assert "sets" in printed
    assert "| eight at 1 2 1 2 3 20 3 2 |" in printed


def test_law_is_compared_with_simulations(capsys: pytest.CaptureFixture[str]) -> None:
    """The law's errors stay below what the command allows."""
    assert 0 == run(LAW)
    assert "exact: mean error" in capsys.readouterr().out


def test_variants_are_compared_with_the_optimum(capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints how far `greedy` is from the integer program."""
    assert 0 == run(VARIANTS)
    assert capsys.readouterr().out


def test_prewarm_policies_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each trace has its rows."""
    for name in ("periodic.csv", "sporadic.csv"):
        shutil.copy(ROOT / "examples" / "scenarios" / name, tmp_path)
    python, module, package, *argv = shlex.split(PREWARM)
    assert ["python", "-m", "benchmarks.prewarm"] == [python, module, package]
    assert 0 == prewarm.main(argv)
    printed = capsys.readouterr().out
    assert "periodic x1" in printed
    assert "sporadic x1" in printed


def test_highest_rate_is_measured(tmp_path: Path) -> None:
    """One round finds a rate; the handler and the load share this machine with other tests."""
    assert 0 == run(SERVERS)
    rows = [json.loads(line) for line in (tmp_path / "servers.jsonl").read_text().splitlines()]
    assert "carpool" in {row.get("server") for row in rows}
