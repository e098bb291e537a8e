"""Tests that the wheel has what a checkout has."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ["carpool", "faas_stack", "scaler", "sidecar", "simulator", "watchdog_plugin"]
DATA = {*(f"{package}/py.typed" for package in PACKAGES)}
DATA |= {"carpool/predictor/profiles.sqlite", "scaler/dashboard/page.html"}
DATA |= {f"faas_stack/_examples/{name}" for name in ("models.py", "filetype/handler.py")}
DATA |= {f"scaler/_scenarios/{path.name}" for path in (ROOT / "examples/scenarios").glob("*.*")}
# Without a checkout: what a user may try first, and the models of the demonstration.
TRIED = (
    "carpool new classify",
    "carpool doctor",
    "carpool plan osvt --policy infless",
    "carpool simulate osvt --policy infless --horizon 10s",
)
MODELS = """
from faas_stack.demo import stack

with stack.models() as examples:
    print(examples)
    assert (examples / "filetype" / "model.onnx").is_file()
"""


def _build(folder: Path, target: str, into: Path) -> Path:
    """Build ``target`` from the sources in ``folder`` and return its path."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "-d", str(into)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
    (built,) = into.glob("carpool-*.whl" if target == "wheel" else "carpool-*.tar.gz")
    return built


@pytest.mark.slow
def test_the_wheel_carries_packages_and_templates(tmp_path: Path) -> None:
    """The wheel has every module, type marker and template file, and no cached files."""
    carried = set(zipfile.ZipFile(_build(ROOT, "wheel", tmp_path)).namelist())
    modules = {str(path.relative_to(ROOT)) for p in PACKAGES for path in (ROOT / p).rglob("*.py")}
    templates = {
        f"faas_stack/_templates/{path.relative_to(ROOT / 'templates')}"
        for path in (ROOT / "templates").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert set() == (modules | templates | DATA) - carried
    assert [] == [name for name in carried if "__pycache__" in name]


@pytest.mark.slow
def test_the_source_distribution_builds_the_same_wheel(tmp_path: Path) -> None:
    """The source distribution builds the same wheel, and has no files only for a checkout."""
    with tarfile.open(_build(ROOT, "sdist", tmp_path)) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = [path for path in tmp_path.glob("carpool-*") if path.is_dir()]
    ours, theirs = (
        set(zipfile.ZipFile(_build(folder, "wheel", tmp_path / name)).namelist())
        for folder, name in ((ROOT, "ours"), (source, "theirs"))
    )
    assert set() == ours ^ theirs
    assert (source / "tests" / "test_wheel.py").is_file()
    assert [] == [*source.glob(".ci"), *source.glob(".venv*")]


@pytest.mark.slow
def test_commands_run_with_only_the_wheel(tmp_path: Path) -> None:
    """Commands run in an empty folder with only the wheel's modules and data."""
    venv, work = tmp_path / "venv", tmp_path / "work"
    work.mkdir()
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    wheel = _build(ROOT, "wheel", tmp_path)
    install = [
        str(venv / "bin" / "pip"),
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        str(wheel),
    ]
    subprocess.run(install, check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # and no .pth of it
    for command in TRIED:
        program, *arguments = command.split()
        subprocess.run([venv / "bin" / program, *arguments], cwd=work, check=True, timeout=300)
    asked = [str(venv / "bin" / "python"), "-c", MODELS]
    told = subprocess.run(asked, cwd=work, check=True, timeout=300, stdout=subprocess.PIPE)
    assert str(ROOT) not in told.stdout.decode()
