"""docs/matrix.svg shows the rows of its results."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.__main__ import main
from tests.docs.snippets import take_one

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
COMMAND = take_one("docs/simulator.md", "--only-kept")


def test_page_command_draws_stored_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored rows give the stored picture; run the command again after either changes."""
    monkeypatch.chdir(ROOT)
    drawn = tmp_path / "matrix.svg"
    name, *argv = shlex.split(COMMAND.replace("docs/matrix.svg", str(drawn)))
    assert "carpool" == name
    assert 0 == main(argv)
    assert (ROOT / "docs" / "matrix.svg").read_text() == drawn.read_text()
    assert "](matrix.svg)" in PAGE
