"""Tests that the build context of images has all sources of the wheel."""

from __future__ import annotations

import fnmatch
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
    "wheel"
]
SOURCES = [*WHEEL["packages"], *WHEEL["force-include"]]


def without_comments(path: Path) -> list[str]:
    """Return the lines of a file that are not empty or comments."""
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("source", SOURCES)
def test_wheel_files_are_in_context_and_copied(source: str) -> None:
    """What the wheel includes is in the context and copied, as images cannot be built without."""
    ignored = True
    for line in without_comments(ROOT / ".dockerignore"):
        pattern = line.removeprefix("!")
        if fnmatch.fnmatch(source, pattern):
            ignored = not line.startswith("!")
    assert not ignored, f".dockerignore: expected !{source}"
    copied = [
        Path(line.split()[1])
        for line in without_comments(ROOT / "docker" / "Dockerfile")
        if line.startswith("COPY ") and len(line.split()) == 3
    ]
    assert any(Path(source).is_relative_to(folder) for folder in copied)
