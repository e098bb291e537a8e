"""docs/policies/batch.md shows what its code prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.docs.snippets import take_one

if TYPE_CHECKING:
    import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "policies"
PAGE = (FOLDER / "batch.md").read_text(encoding="utf-8")
CODE = take_one("docs/policies/batch.md", language="python")
PRINTED = take_one("docs/policies/batch.md", r"^MMPP\(2\)")


def test_the_fit_is_the_one_that_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The block of Python prints the line below it."""
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(CODE, "batch.md", "exec"), names)
    assert PRINTED == capsys.readouterr().out


def test_its_links_lead_somewhere() -> None:
    """The pages and plots that the page links to exist."""
    links = re.findall(r"\]\(([^)#]+)", PAGE)
    assert [] == [link for link in links if not (FOLDER / link).exists()]
    assert "batch.svg" in links
