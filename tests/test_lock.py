"""Tests that the requirements of images are locked to developers' versions, with hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOCKED = [*(ROOT / "docker" / "requirements").glob("*.txt")]
LOCKED += (ROOT / "templates").glob("python3-?*-batch*/requirements.txt")
PIN = re.compile(r"^([a-z0-9-]+)==([^ ;]+)")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins(text: str) -> dict[str, str]:
    """Return the versions by name."""
    matches = map(PIN.match, text.splitlines())
    return {found[1]: found[2] for found in matches if found}


@pytest.mark.parametrize("file", LOCKED, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_versions_are_exact_and_have_hashes(file: Path) -> None:
    """Versions are exact, have hashes, and match constraints.txt, which all tests use."""
    entries = re.split(r"\n(?=\S)", file.read_text().strip())[1:]  # the first line is a comment
    assert entries
    for entry in entries:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry
        assert PIN.match(entry), entry
    assert pins(file.read_text()).items() <= pins((ROOT / "constraints.txt").read_text()).items()


@pytest.mark.parametrize(
    ("image", "extras"),
    [
        ("sidecar", ()),
        ("scaler", ("stack", "scaler")),
        ("provider", ("stack", "docker", "kubernetes")),
    ],
)
def test_image_requirements_include_all_dependencies(image: str, extras: tuple[str, ...]) -> None:
    """An image's locked requirements include all dependencies of its component."""
    optional = PROJECT["optional-dependencies"]
    needs = [*PROJECT["dependencies"], *(need for extra in extras for need in optional[extra])]
    names = {re.split(r"[<>=;\[ ]", need)[0].lower() for need in needs}
    assert names <= pins((ROOT / "docker" / "requirements" / f"{image}.txt").read_text()).keys()


def test_nothing_is_installed_without_a_hash() -> None:
    """Dockerfiles install others' packages only with hashes, except authors' own requirements."""
    dockerfiles = [ROOT / "docker" / "Dockerfile", *(ROOT / "templates").glob("*/Dockerfile")]
    for dockerfile in dockerfiles:
        text = dockerfile.read_text().replace("\\\n", " ")
        for line in re.findall(r"pip install[^\n&|]*", text):
            ours = "--no-deps /" in line or "function/requirements.txt" in line
            bare = dockerfile.parent.name == "python3-batch"  # its list is empty
            assert ours or bare or "--require-hashes" in line, line
