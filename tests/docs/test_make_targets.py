"""The documentation names only make targets and commands that exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carpool.__main__ import COMMANDS
from tests.docs.snippets import take_one

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
DEMO, TESTS = take_one("README.md", "^make demo").splitlines()
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


def run(line: str, **env: str) -> str:
    """Run a line of a page in the checkout, with the environment of these tests."""
    target = line.partition("#")[0].split()
    venv = Path(sys.executable).parents[1]
    done = subprocess.run(
        [*target, f"VENV={venv}"],
        cwd=ROOT,
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_make_demo_runs_to_end_with_right_predictions() -> None:
    """The demonstration has right predictions, shows both comparisons and exits with 0."""
    printed = run(DEMO)
    assert "WRONG" not in printed
    assert printed.count("   ok ") >= 8
    assert printed.count("In words:") == 2


@pytest.mark.slow
def test_make_test_runs_tests() -> None:
    """The command runs tests: here those of one file, as it is a test itself."""
    (only,) = ROOT.glob("tests/carpool/test_durations.py")
    assert " passed" in run(TESTS, PYTEST_ADDOPTS=f"--numprocesses 1 {only}")
