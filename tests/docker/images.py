"""The images that tests run: Carpool's own, from this source tree, and a scripted instance."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from docker.errors import BuildError
from testcontainers.core.image import DockerImage

from tests.faas_stack.rig import IMAGE

__all__ = ["ROOT", "TARGETS", "build", "build_image"]

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("sidecar", "scaler", "provider", "function")


def build() -> None:
    """Build missing base images, then Carpool's, then the scripted instance."""
    subprocess.run((sys.executable, "scripts/base_images.py"), cwd=ROOT, check=True, timeout=1200)
    for target in TARGETS:
        build_image(
            f"carpool/{target}:latest", ROOT, dockerfile_path="docker/Dockerfile", target=target
        )
    build_image(IMAGE, ROOT / "tests" / "services", dockerfile_path="instance.Dockerfile")


def build_image(tag: str, context: Path, **options: Any) -> str:
    """Build an image that is kept, and return the output of the build."""
    # The host's network, because a private one may lead nowhere from here.
    image = DockerImage(context, tag=tag, clean_up=False, network_mode="host", rm=True, **options)
    try:
        with image:
            printed = image.get_logs()
    except BuildError as error:
        raise AssertionError(_text(error.build_log)) from error
    return _text(printed)


def _text(log: Any) -> str:
    return "".join(entry.get("stream", entry.get("error", "")) for entry in log)
