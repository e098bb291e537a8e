"""docs/policies/batch.md shows what its code prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "policies"
PAGE = (FOLDER / "batch.md").read_text(encoding="utf-8")


def test_the_fit_is_the_one_that_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The block of Python prints the line below it."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(block, "batch.md", "exec"), names)
    assert f"    {capsys.readouterr().out}" in PAGE


def test_its_links_lead_somewhere() -> None:
    """Pages and plots are there."""
    links = re.findall(r"\]\(([^)#]+)", PAGE)
    assert [] == [link for link in links if not (FOLDER / link).exists()]
    assert "batch.svg" in links
