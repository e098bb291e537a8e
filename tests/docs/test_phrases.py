"""The phrases of docs/phrases.txt are not used in texts that users read."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PHRASES = dict(
    line.split("->", 1) for line in (ROOT / "docs" / "phrases.txt").read_text().splitlines()
)
_FOUND = re.compile(rf"\b({'|'.join(PHRASES)})\b", re.IGNORECASE)
_NOT_OURS = ("benchmarks/results/", "docs/phrases.txt")
_SUFFIXES = {".html", ".js", ".md", ".py", ".yaml", ".yml"}
_QUOTED = re.compile(r"`[^`\n]*`")


def _read() -> list[Path]:
    """Return the files that the list of words applies to, which the Makefile names."""
    makefile = (ROOT / "Makefile").read_text()
    (named,) = re.findall(r"^WORDED := ((?:.*\\\n)*.*)$", makefile, re.MULTILINE)
    paths = [ROOT / name for name in named.replace("\\", " ").split()]
    within = [path.rglob("*") if path.is_dir() else [path] for path in paths]
    return [file for files in within for file in files if _has_words(file)]


def _has_words(file: Path) -> bool:
    """Return whether users or developers read the file: text, code, or a dashboard."""
    return file.name == "Makefile" or file.suffix in _SUFFIXES or file.match("dashboards/*.json")


def _words(file: Path) -> str:
    """Return the text on one line, without what a page quotes: names, and messages of before."""
    text = file.read_text(encoding="utf-8")
    own = _QUOTED.sub("", text) if file.suffix == ".md" else text
    return " ".join(own.split())


def test_listed_phrases_are_not_used() -> None:
    """The list has a plain English equivalent beside each phrase."""
    found = [
        f"{path.relative_to(ROOT)}: {match[0]!r}, say {PHRASES[match[0].lower()]}"
        for path in _read()
        if not str(path.relative_to(ROOT)).startswith(_NOT_OURS)
        for match in _FOUND.finditer(_words(path))
    ]
    assert [] == found


def test_pages_code_and_messages_are_read() -> None:
    """Pages, code, help texts, alerts and dashboards are among the files."""
    read = {path.relative_to(ROOT).as_posix() for path in _read()}
    named = {"README.md", "CHANGELOG.md", "Makefile", "docs/sidecar.md", "carpool/errors.py"}
    seen = {"alerts.yml", "compose.yaml", "grafana/dashboards/carpool.json"}
    assert named | {f"faas_stack/{file}" for file in seen} | {"scaler/dashboard/page.js"} <= read
