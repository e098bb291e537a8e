"""Write the exact versions of packages to constraints.txt and to the lists that images install.

Usage: python scripts/lock.py [--keep]. Run by ``make lock``. With ``--keep``, locked versions stay,
and only new packages, and those whose version no longer fits, are resolved.

- constraints.txt: every extra, resolved together; what developers and CI install.
- docker/requirements/IMAGE.txt, and requirements.txt of the templates: the same versions, with the
  hashes of all their files, for ``pip install --require-hashes``.

Versions are valid for the oldest supported Python and all later ones, on every platform.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
HEAD = "# Generated: run `make lock`, never edit.\n"


def main(*, keep: bool) -> int:
    """Resolve and write; nothing is installed."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = document["project"]
    own, extras = project["dependencies"], project["optional-dependencies"]
    everything = [*own, *(need for extra in extras.values() for need in extra)]
    oldest = "--python-version=" + project["requires-python"].removeprefix(">=")
    upgrade = () if keep else ("--upgrade",)
    resolve(everything, CONSTRAINTS, oldest, *upgrade, "--no-annotate")

    flask = [need for need in extras["scaler"] if need.startswith(("flask", "gunicorn"))]
    images, templates = ROOT / "docker" / "requirements", ROOT / "templates"
    for target, needs in {
        images / "build.txt": document["build-system"]["requires"],
        images / "sidecar.txt": own,
        images / "scaler.txt": own + extras["stack"] + extras["scaler"] + extras["kubernetes"],
        images / "provider.txt": own + extras["stack"] + extras["docker"] + extras["kubernetes"],
        templates / "python3-flask-batch" / "requirements.txt": flask,
        templates / "python3-onnx-batch" / "requirements.txt": extras["handler"],
        templates / "python3-onnx-batch-gpu" / "requirements.txt": extras["gpu"],
    }.items():
        hashed = (f"--constraint={CONSTRAINTS}", "--generate-hashes", "--no-annotate")
        resolve(needs, target, oldest, *hashed)
    return 0


def resolve(needs: Iterable[str], target: Path, *options: str) -> None:
    """Write to ``target`` the versions that ``needs`` come to."""
    command = (sys.executable, "-m", "uv", "pip", "compile", "-", "--quiet", "--no-header")
    more = ("--universal", "--fork-strategy=fewest", f"--output-file={target}")
    lines = "\n".join(needs)
    target.parent.mkdir(exist_ok=True)
    subprocess.run((*command, *more, *options), check=True, input=lines, text=True, cwd=ROOT)
    target.write_text(HEAD + target.read_text())
    pins = sum("==" in line for line in target.read_text().splitlines())
    print(f"{target.relative_to(ROOT)}: {pins} packages")


if __name__ == "__main__":
    sys.exit(main(keep="--keep" in sys.argv[1:]))
