"""docs/settings.md agrees with the settings in the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carpool import settings
from tests.docs.snippets import take_one

if TYPE_CHECKING:
    from carpool.setting_spec import Row

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "settings.md"
EXAMPLE = take_one("docs/settings.md")


def test_generated_table_is_up_to_date() -> None:
    """The generated table in the documentation is up to date; `make docs` updates it."""
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (0, "") == (checked.returncode, checked.stderr)


@pytest.mark.parametrize("row", settings.rows(), ids=lambda row: str(row.key))
def test_every_setting_is_documented(row: Row) -> None:
    """Every setting is documented with label, environment variable and default."""
    lines = [line for line in PAGE.read_text().splitlines() if f"`{row.label}`" in line]
    assert 1 == len(lines)
    assert f"| `{row.env}` |" in lines[0]
    assert row.default_text in lines[0]


def test_the_example_parses() -> None:
    """The settings accept the stack file of the page."""
    yaml = pytest.importorskip("yaml")
    function = yaml.safe_load(EXAMPLE)["functions"]["classify"]
    read = settings.FunctionSettings.from_labels(function["labels"], function["annotations"])
    assert (0.2, 16, 2) == (read.slo_s, read.batch_max, len(read.apps))
