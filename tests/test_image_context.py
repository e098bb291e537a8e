"""What the wheel is made of is there when images are built."""

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
    """The lines of a file that say something."""
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("source", SOURCES)
def test_the_context_has_it_and_the_image_copies_it(source: str) -> None:
    """What the wheel includes and the context lacks fails the build of every image."""
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
