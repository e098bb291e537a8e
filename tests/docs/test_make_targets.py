"""The documentation names only make targets and commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from carpool.__main__ import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def _mentioned(page: Path, program: str) -> set[str]:
    """Words after ``program`` where it starts a code span or a line of a code block."""
    pattern = re.compile(rf"(?:`|^\s*(?:\$ )?){program} ([a-z][a-z-]*)", re.MULTILINE)
    return set(pattern.findall(page.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_exist(page: Path) -> None:
    """Every `make TARGET` mentioned is a target of the Makefile."""
    assert set() == _mentioned(page, "make") - TARGETS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist(page: Path) -> None:
    """Every `carpool COMMAND` mentioned is in the command table."""
    assert set() == _mentioned(page, "carpool") - set(COMMANDS)


def test_the_readme_names_the_two_commands() -> None:
    """A newcomer finds the demo and the tests in the README."""
    assert {"demo", "test"} <= _mentioned(ROOT / "README.md", "make")
