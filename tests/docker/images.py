"""The images that tests run: Carpool's own from this source tree, and a scripted instance."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.faas_stack.rig import IMAGE

__all__ = ["ROOT", "build", "build_image"]

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("sidecar", "scaler", "provider", "function")
INSTANCE = """\
FROM carpool/sidecar:latest
COPY instance.py .
ENV sidecar_listen=0.0.0.0:8080
ENTRYPOINT ["python", "instance.py"]
"""


def build() -> None:
    """Base images where they are missing, then Carpool's, then the scripted instance."""
    subprocess.run((sys.executable, "scripts/base_images.py"), cwd=ROOT, check=True, timeout=1200)
    for target in TARGETS:
        build_image(
            f"carpool/{target}:latest", ROOT, "--file", "docker/Dockerfile", "--target", target
        )
    build_image(IMAGE, ROOT / "tests" / "services", "--file", "-", text=INSTANCE)


def build_image(tag: str, context: Path, *options: str, text: str | None = None) -> str:
    """``docker build``; what it printed."""
    # The host's network, because a private one may lead nowhere from here.
    command = ("docker", "build", "--network=host", "--tag", tag, *options, str(context))
    done = subprocess.run(
        command,
        cwd=ROOT,
        check=False,
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert 0 == done.returncode, done.stdout
    return done.stdout
