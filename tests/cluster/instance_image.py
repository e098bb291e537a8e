"""The scripted instance of the provider's stories as an image, built without an engine."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.cluster import function_image
from tests.cluster.image import Config, write_archive
from tests.faas_stack.rig import IMAGE

__all__ = ["archive"]

ROOT = Path(__file__).resolve().parents[2]
_HOME = "opt/instance"
_SERVICES = ROOT / "tests" / "services"
_TEMPLATE = ROOT / "templates" / "python3-onnx-batch" / "requirements.txt"


def archive(folder: Path) -> Path:
    """Write the image to an empty folder: this source tree over the packages of a function."""
    own = folder / "own" / _HOME
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "carpool", own / "carpool", ignore=skipped)
    shutil.copy(_SERVICES / "instance.py", own)
    layers = [function_image._debian(), function_image._packages(_TEMPLATE), folder / "own"]
    python = "/opt/function/bin/python"
    env = {"PYTHONPATH": f"/{_HOME}", "PYTHONUNBUFFERED": "1", "sidecar_listen": "0.0.0.0:8080"}
    target = folder / "image.tar"
    write_archive(target, f"{IMAGE}:latest", layers, Config((python, f"/{_HOME}/instance.py"), env))
    return target
