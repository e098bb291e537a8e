"""What a user gets from pip is what a checkout has."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ["carpool", "faas_stack", "scaler", "sidecar", "simulator", "watchdog_plugin"]
DATA = {"carpool/py.typed", "carpool/latency/profiles.sqlite", "scaler/dashboard/page.html"}


@pytest.mark.slow
def test_the_wheel_carries_packages_and_templates(tmp_path: Path) -> None:
    """Every module, the type marker and every template file is in the wheel, and nothing cached."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=100)
    (wheel,) = tmp_path.glob("carpool-*.whl")
    carried = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT)) for p in PACKAGES for path in (ROOT / p).rglob("*.py")}
    templates = {
        f"faas_stack/_templates/{path.relative_to(ROOT / 'templates')}"
        for path in (ROOT / "templates").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert set() == (modules | templates | DATA) - carried
    assert [] == [name for name in carried if "__pycache__" in name]
