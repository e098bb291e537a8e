"""The page of the benchmarks."""

from __future__ import annotations

import re

from benchmarks.__main__ import BENCHMARKS
from tests.docs.snippets import ROOT


def test_every_benchmark_has_a_row() -> None:
    """The first table of the page has a row for each benchmark."""
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    table = page.partition("| benchmark |")[2].partition("\n\n")[0]
    assert set(BENCHMARKS) == set(re.findall(r"^\| `([\w-]+)`", table, re.MULTILINE))
