"""docs/matrix.svg shows the rows of its results."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.__main__ import main

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")


def test_the_command_on_the_page_draws_the_picture_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stored rows give the stored picture; run the command again after either changes."""
    monkeypatch.chdir(ROOT)
    (command,) = re.findall(
        r"^    carpool (compare .*--picture docs/matrix\.svg)$", PAGE, re.MULTILINE
    )
    drawn = tmp_path / "matrix.svg"
    argv = [str(drawn) if each == "docs/matrix.svg" else each for each in shlex.split(command)]
    assert 0 == main(argv)
    assert (ROOT / "docs" / "matrix.svg").read_text() == drawn.read_text()
    assert "](matrix.svg)" in PAGE
