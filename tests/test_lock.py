"""What images are made of is locked: exact versions, the developers' own, each with hashes."""

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
    """Versions by name."""
    matches = map(PIN.match, text.splitlines())
    return {found[1]: found[2] for found in matches if found}


@pytest.mark.parametrize("file", LOCKED, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_versions_are_exact_and_have_hashes(file: Path) -> None:
    """And they are those of constraints.txt, with which everything is tested."""
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
def test_an_image_has_what_its_part_needs(image: str, extras: tuple[str, ...]) -> None:
    """A dependency that was added and not locked would be missing from the image alone."""
    optional = PROJECT["optional-dependencies"]
    needs = [*PROJECT["dependencies"], *(need for extra in extras for need in optional[extra])]
    names = {re.split(r"[<>=;\[ ]", need)[0].lower() for need in needs}
    assert names <= pins((ROOT / "docker" / "requirements" / f"{image}.txt").read_text()).keys()


def test_nothing_is_installed_without_a_hash() -> None:
    """Every pip install of others' packages in Dockerfiles asks for hashes, but authors' own."""
    dockerfiles = [ROOT / "docker" / "Dockerfile", *(ROOT / "templates").glob("*/Dockerfile")]
    for dockerfile in dockerfiles:
        text = dockerfile.read_text().replace("\\\n", " ")
        for line in re.findall(r"pip install[^\n&|]*", text):
            ours = "--no-deps /" in line or "function/requirements.txt" in line
            bare = dockerfile.parent.name == "python3-batch"  # its list is empty
            assert ours or bare or "--require-hashes" in line, line
