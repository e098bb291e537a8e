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


def _read() -> list[Path]:
    """Return the files that the list of words applies to, which the Makefile names."""
    makefile = (ROOT / "Makefile").read_text()
    (named,) = re.findall(r"^WORDED := ((?:.*\\\n)*.*)$", makefile, re.MULTILINE)
    paths = [ROOT / name for name in named.replace("\\", " ").split()]
    within = [path.rglob("*") if path.is_dir() else [path] for path in paths]
    return [file for files in within for file in files if file.suffix in (".md", ".py", ".yaml")]


def test_no_phrase_of_the_list_is_used() -> None:
    """The list has a plain English equivalent beside each phrase."""
    found = [
        f"{path.relative_to(ROOT)}: {match[0]!r}, say {PHRASES[match[0].lower()]}"
        for path in _read()
        if not str(path.relative_to(ROOT)).startswith(_NOT_OURS)
        for match in _FOUND.finditer(" ".join(path.read_text(encoding="utf-8").split()))
    ]
    assert [] == found


def test_texts_are_read_at_all() -> None:
    """Pages, code and messages are among the files."""
    read = {path.relative_to(ROOT).as_posix() for path in _read()}
    assert {"README.md", "docs/sidecar.md", "carpool/errors.py"} <= read
