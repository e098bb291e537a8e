"""CONTRIBUTING.md, RELEASING.md and the records of decisions are true."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ADR = ROOT / "docs" / "adr"
RECORDS = sorted(ADR.glob("[0-9]*.md"))
PAGES = [ROOT / name for name in ("CONTRIBUTING.md", "RELEASING.md", "docs/api-stability.md")]


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


def test_paths_are_found_at_all() -> None:
    """The check above has something to check."""
    found = {path for page in [*PAGES, *RECORDS] for path in _paths(page)}
    assert {"constraints.txt", "sidecar/core/", "carpool/settings.py"} <= found


def test_every_folder_of_code_says_which_tests_to_run() -> None:
    """CONTRIBUTING.md has a line for each part, and the tests that it names exist."""
    table = re.findall(r"^\| (`.+`) \| (.+) \|$", _read("CONTRIBUTING.md"), re.MULTILINE)
    changed = {path for names, _ in table for path in re.findall(r"`(\w+)/`", names)}
    parts = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"benchmarks"}
    assert set() == parts - changed
    tests = {path for _, run in table for path in re.findall(r"tests/[\w/]+", run)}
    assert [] == [path for path in sorted(tests) if not (ROOT / path).is_dir()]


def test_what_is_said_of_names_in_code_is_so() -> None:
    """The names to change for a policy, a setting or a command are defined where the page says."""
    stated = re.findall(r"`(\w+)` (?:of|in) `([\w/]+\.py)`", _read("CONTRIBUTING.md"))
    assert {"BUILT_IN", "COMMANDS", "FunctionSettings"} <= {name for name, _ in stated}
    missing = [
        (name, path)
        for name, path in stated
        if not re.search(rf"^(class )?{name}\b", _read(path), re.MULTILINE)
    ]
    assert [] == missing


def test_before_a_commit_runs_what_make_lint_runs() -> None:
    """The only hook of pre-commit is `make lint`, on everything."""
    (repository,) = _yaml(".pre-commit-config.yaml")["repos"]
    (hook,) = repository["hooks"]
    assert ("local", "make lint") == (repository["repo"], hook["entry"])
    assert (True, False) == (hook["always_run"], hook["pass_filenames"])


def test_the_hosted_workflow_runs_what_ci_runs() -> None:
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
    """Numbers have no gaps, and titles are those of the records."""
    listed = re.findall(
        r"^\| \[(\d{4})\]\(([^)]+)\) \| (.+) \|$", _read("docs/adr/README.md"), re.MULTILINE
    )
    titles = [record.read_text().partition("\n")[0].partition(". ")[2] for record in RECORDS]
    assert [f"{number:04}" for number in range(1, len(RECORDS) + 1)] == [row[0] for row in listed]
    assert [(r.name, title) for r, title in zip(RECORDS, titles, strict=True)] == [
        row[1:] for row in listed
    ]
