"""Commands in the documentation that run tests select at least one test."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.programs import build
from tests.docs.snippets import take_one

ROOT = Path(__file__).resolve().parents[2]
PAGES = (*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md")
SHOWN = take_one("docs/testing.md", r"^\.venv/bin/python -m pytest")
ON_CLUSTERS = take_one("docs/testing.md", "^make kubernetes$").splitlines()
COMMAND = re.compile(r'python -m pytest((?: -m (?:"[\w ]+"|\w+))?) (tests/[\w/]+\.py)')


def selected() -> dict[str, set[str]]:
    """Return the files that pages name, by the markers that they select."""
    found: dict[str, set[str]] = {}
    for page in PAGES:
        for marks, file in COMMAND.findall(page.read_text()):
            found.setdefault(marks, set()).add(file)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("marks", "files"), sorted(selected().items()))
def test_named_files_have_tests_with_those_markers(marks: str, files: set[str]) -> None:
    """Each named file has tests with those markers, so the figures beside it have a source."""
    options = ("--collect-only", "-q", "-n", "0", *shlex.split(marks))
    command = (sys.executable, "-m", "pytest", *options, *sorted(files))
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert files == {line.partition("::")[0] for line in listed.splitlines() if "::" in line}


@pytest.mark.slow
@pytest.mark.parametrize("line", [*SHOWN.splitlines(), *ON_CLUSTERS[1:]])
def test_shown_selections_have_tests(line: str) -> None:
    """Collect the tests of the command without running them."""
    python, *words = shlex.split(line, comments=True)
    assert ".venv/bin/python" == python
    command = (sys.executable, *words, "--collect-only", "-q", "-n", "0")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout
    assert f"{words[-1] if words[-1].startswith('tests') else words[2]}/" in done.stdout


@pytest.mark.slow
def test_programs_of_kubernetes_are_built() -> None:
    """A second run of the command builds nothing; the first may take as long as all other tests."""
    if not build.program("kube").exists():
        pytest.skip("the programs of kubernetes are not built here: make kubernetes")
    done = subprocess.run(shlex.split(ON_CLUSTERS[0]), cwd=ROOT, check=False)
    assert 0 == done.returncode
