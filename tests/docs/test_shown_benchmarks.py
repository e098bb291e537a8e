"""Benchmarks of the pages run as they are printed, on less: their last options are the test's."""

from __future__ import annotations

import shlex
import shutil
from typing import TYPE_CHECKING

import pytest

from benchmarks.__main__ import main
from tests.docs.snippets import ROOT, take_one

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow
GROUPING = "docs/policies/harmonybatch.md"
SELECTION = take_one("docs/policies/infaas.md", "benchmarks selection$")
SIMULATED = take_one(GROUPING, "--simulate")
BUSY_LAW = take_one("docs/policies/batch.md", "benchmarks busy-law")
PICTURE = take_one(GROUPING, "--plot")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enter a folder with coefficients in place of those that the page leaves out."""
    shutil.copy(ROOT / "examples" / "scenarios" / "tagging.json", tmp_path / "vgg19.json")
    monkeypatch.chdir(tmp_path)


def run(command: str, *less: str) -> int:
    """Run a benchmark with further options, and return its exit code."""
    python, module, package, *argv = shlex.split(command)
    assert ["python", "-m", "benchmarks"] == [python, module, package]
    return main([*argv, *less])


def test_selection_has_a_row_for_each_count(capsys: pytest.CaptureFixture[str]) -> None:
    """There is a row for each number of variants of both kinds."""
    assert 0 == run(SELECTION, "--requests", "50")
    _, *rows = capsys.readouterr().out.splitlines()
    counts = ["10", "100", "1000", "10000"]
    assert [[k, c] for k in ("drawn", "traded") for c in counts] == [x.split()[:2] for x in rows]


def test_busy_law_prints_its_largest_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Short simulations with wide intervals give a row a point, near the law's."""
    assert 0 == run(BUSY_LAW, "--requests", "2000", "--width", "1", "--allowed", "0.2")
    printed = capsys.readouterr().out
    assert "largest error" in printed.splitlines()[-1]
    assert {"Poisson", "MMPP"} <= {line.partition(" ")[0] for line in printed.splitlines()}


def test_plans_of_groups_are_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    """Every case has a simulated cost and a share of late requests."""
    assert 0 == run(SIMULATED, "--simulate", "20", "--rounds", "1")
    assert "eight at 1 2 1 2 3 20 3 2" in capsys.readouterr().out.splitlines()[-1]


def test_picture_of_groups_is_drawn(tmp_path: Path) -> None:
    """The picture is the one of the page."""
    (tmp_path / "docs" / "policies").mkdir(parents=True)
    assert 0 == run(PICTURE)
    stored = ROOT / "docs" / "policies" / "harmonybatch.svg"
    assert stored.read_text() == (tmp_path / "docs" / "policies" / "harmonybatch.svg").read_text()
