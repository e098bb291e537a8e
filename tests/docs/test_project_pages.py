"""CONTRIBUTING.md, RELEASING.md and the records of decisions are true."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.docs.snippets import take_one
from tests.waiting import HANG_S

ROOT = Path(__file__).resolve().parents[2]
ADR = ROOT / "docs" / "adr"
RECORDS = sorted(ADR.glob("[0-9]*.md"))
PAGES = [ROOT / name for name in ("CONTRIBUTING.md", "RELEASING.md", "docs/api-stability.md")]
CLONE = take_one("CONTRIBUTING.md", "^git clone")
SIGN = take_one("RELEASING.md", "^digest=")


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _yaml(name: str) -> Any:
    return pytest.importorskip("yaml").safe_load(_read(name))


def _paths(page: Path) -> list[str]:
    """Return the files and folders of the repository that a page names between backquotes."""
    spans = re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))
    shape = re.compile(r"\.?[a-z_]+(/[\w.]+)*(/|\.(py|toml|txt|yml))")
    return [word for span in spans for word in span.split() if shape.fullmatch(word)]


def test_files_and_folders_exist() -> None:
    """A renamed file has to be renamed in the page, too."""
    named = [(page.stem, path) for page in [*PAGES, *RECORDS] for path in _paths(page)]
    assert [] == [(page, path) for page, path in named if not (ROOT / path).exists()]


def test_paths_are_found() -> None:
    """The check above has something to check."""
    found = {path for page in [*PAGES, *RECORDS] for path in _paths(page)}
    assert {"constraints.txt", "sidecar/core/", "carpool/settings.py"} <= found


def test_contributing_names_tests_of_every_part() -> None:
    """CONTRIBUTING.md has a line for each part, and the tests that it names exist."""
    table = re.findall(r"^\| (`.+`) \| (.+) \|$", _read("CONTRIBUTING.md"), re.MULTILINE)
    changed = {path for names, _ in table for path in re.findall(r"`(\w+)/`", names)}
    parts = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"benchmarks"}
    assert set() == parts - changed
    tests = {path for _, run in table for path in re.findall(r"tests/[\w/]+", run)}
    assert [] == [path for path in sorted(tests) if not (ROOT / path).is_dir()]


def test_names_in_code_are_defined_where_page_says() -> None:
    """The names to change for a policy, a setting or a command are defined where the page says."""
    stated = re.findall(r"`(\w+)` (?:of|in) `([\w/]+\.py)`", _read("CONTRIBUTING.md"))
    assert {"BUILT_IN", "COMMANDS", "FunctionSettings"} <= {name for name, _ in stated}
    missing = [
        (name, path)
        for name, path in stated
        if not re.search(rf"^(class )?{name}\b", _read(path), re.MULTILINE)
    ]
    assert [] == missing


def test_pre_commit_runs_make_lint() -> None:
    """The only hook of pre-commit is `make lint`, on everything."""
    (repository,) = _yaml(".pre-commit-config.yaml")["repos"]
    (hook,) = repository["hooks"]
    assert ("local", "make lint") == (repository["repo"], hook["entry"])
    assert (True, False) == (hook["always_run"], hook["pass_filenames"])


def test_hosted_workflow_runs_ci_script() -> None:
    """Its one command is .ci/run, with the oldest Python supported."""
    (job,) = _yaml(".github/workflows/ci.yml")["jobs"].values()
    (command,) = [step["run"] for step in job["steps"] if "run" in step]
    assert ".ci/run" == command.split()[-1]
    (python,) = [step["with"] for step in job["steps"] if "python" in step.get("uses", "")]
    assert f'requires-python = ">={python["python-version"]}"' in _read("pyproject.toml")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: str(record.stem))
def test_a_record_has_its_number_date_and_sections(record: Path) -> None:
    """A record states the context, the decision and its consequences."""
    text = record.read_text(encoding="utf-8")
    assert re.match(
        rf"# {int(record.name[:4])}\. \S.*\n\n(Accepted|Proposed|Replaced)[^\n]*, 20\d\d-", text
    )
    assert ["Context", "Decision", "Consequences"] == re.findall(r"^## (.+)", text, re.MULTILINE)


def test_the_index_lists_every_record_under_its_title() -> None:
    """Numbers have no gaps, titles are those of the records, and proposals are marked."""
    listed = re.findall(
        r"^\| \[(\d{4})\]\(([^)]+)\) \| (.+) \|$", _read("docs/adr/README.md"), re.MULTILINE
    )
    titles = []
    for record in RECORDS:
        first, _, rest = record.read_text(encoding="utf-8").partition("\n\n")
        mark = " (proposed, not built)" if rest.startswith("Proposed") else ""
        titles.append(first.partition(". ")[2] + mark)
    assert [f"{number:04}" for number in range(1, len(RECORDS) + 1)] == [row[0] for row in listed]
    assert [(r.name, title) for r, title in zip(RECORDS, titles, strict=True)] == [
        row[1:] for row in listed
    ]


def _run(block: str, folder: Path, **variables: str) -> str:
    """Run a block in ``folder`` by a shell that ends at the first error, and return its output."""
    done = subprocess.run(
        ["bash", "-euc", block],
        cwd=folder,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert 0 == done.returncode, done.stdout
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the tests are not in a clone")
@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_fresh_clone_has_lint(tmp_path: Path) -> None:
    """Clone this repository; ``make`` prints what it would run there: a new .venv, and checks."""
    block = CLONE.replace("<this repository>", str(ROOT))
    printed = _run(block, tmp_path, MAKEFLAGS="n").splitlines()
    made, checked = (
        [number for number, line in enumerate(printed) if line.endswith(command)]
        for command in ("-m venv .venv", ".venv/bin/ruff check .")
    )
    assert made < checked
    assert 1 == len(made) == len(checked)


def test_digest_of_pushed_image_is_signed(tmp_path: Path) -> None:
    """The digest is read from what ``docker push`` prints; both programs only print here."""
    digest = f"sha256:{'0123456789abcdef' * 4}"
    pushed = f"The push refers to repository [x]\nabc: Pushed\n0.2.0: digest: {digest} size: 1573"
    for name, script in {"docker": f"printf '%b\\n' '{pushed}'", "cosign": 'echo "$@"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    lines = _run(SIGN, tmp_path, PATH=path).splitlines()
    assert ["sign", "attest"] == [line.split()[0] for line in lines]
    assert {f"REGISTRY/carpool/provider@{digest}"} == {line.split()[-1] for line in lines}
