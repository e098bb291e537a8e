"""The documentation names only make targets and commands that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.__main__ import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def _mentioned(page: Path, program: str) -> set[str]:
    """Return the words after ``program`` where it starts a code span or a line of a code block."""
    pattern = re.compile(rf"(?:`|^\s*(?:\$ )?){program} ([a-z][a-z-]*)", re.MULTILINE)
    return set(pattern.findall(page.read_text()))


def _unknown(program: str, known: Iterable[str]) -> dict[str, set[str]]:
    """Return the unknown words after ``program``, by the page that names them."""
    found = {str(page.relative_to(ROOT)): _mentioned(page, program) for page in PAGES}
    return {page: words - set(known) for page, words in found.items() if words - set(known)}


def test_make_targets_exist() -> None:
    """Every `make TARGET` mentioned is a target of the Makefile."""
    assert {} == _unknown("make", TARGETS)


def test_commands_exist() -> None:
    """Every `carpool COMMAND` mentioned is in the command table."""
    assert {} == _unknown("carpool", COMMANDS)


def test_readme_names_demo_and_tests() -> None:
    """A newcomer finds the demo and the tests in the README."""
    assert {"demo", "test"} <= _mentioned(ROOT / "README.md", "make")
