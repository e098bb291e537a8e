"""The report of the benchmark of composed operators, and the interval taken from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import operators
from benchmarks.operators_unseen import LISTS, UnseenPoint
from benchmarks.unseen_report import unseen_report
from carpool.predictor.prediction_intervals import MEASURED
from carpool.predictor.profile import Origin, Setting

_REPORT = Path(__file__).parents[2] / "benchmarks" / "results" / "operators_unseen_first.md"


def test_intervals_contain_the_errors_of_the_committed_report() -> None:
    """The report is of one processor; the intervals hold for two."""
    found = re.search(r"chosen by: (\S+) to (\S+) on 1; (\S+) to (\S+) on 2\.", _REPORT.read_text())
    assert found
    one_low, one_high, two_low, two_high = map(float, found.groups())
    assert MEASURED[1][0] <= one_low < one_high <= MEASURED[1][1]
    assert MEASURED[2][0] <= two_low < two_high <= MEASURED[2][1]


def test_models_that_were_not_measured_are_named() -> None:
    """The report names the models that were not measured."""
    _, *others = LISTS["chosen by"]
    times_s = (1.0, 1.1, 0.9, 1.3, 1.05, 1.02)
    models = [model for models in LISTS.values() for model in models if model not in others]
    points = [UnseenPoint(m, Setting(1, threads), *times_s) for m in models for threads in (1, 2)]
    text = unseen_report(points, LISTS, Origin("a processor", "a runtime"), "", "")
    missing = f"{len(others)} of {len(others) + 1} models chosen by ({', '.join(others)})."
    assert f"Not measured, and in no figure: {missing}" in text


def test_page_of_another_processor_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default, a page of another processor is kept, and the error names the option to use."""
    monkeypatch.setattr(operators, "_RESULTS", tmp_path / "operators.md")
    page = tmp_path / "operators_unseen.md"
    page.write_text("commit 2fe4f30c, another processor (1-2-3), onnxruntime 1.31.1.")
    with pytest.raises(SystemExit):
        operators.main(["--unseen"])
    assert [page] == list(tmp_path.iterdir())
    assert "another processor" in page.read_text()
    assert "name another page with --out" in capsys.readouterr().err
