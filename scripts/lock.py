"""Write constraints.txt: the exact versions that every extra together resolves to today.

Usage: python scripts/lock.py FILE. Run by ``make lock`` with the oldest Python supported.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEAD = """\
# Exact versions for every extra, resolved together. Generated: run `make lock`, never edit.
"""


def main(target: Path) -> int:
    """Resolve and write; nothing is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(need for extra in extras for need in extra)]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--report=-"]
    command += ["--ignore-installed", "--disable-pip-version-check", *wanted]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    pins = sorted(_pin(item["metadata"]) for item in report["install"])
    target.write_text(HEAD + "".join(f"{pin}\n" for pin in pins))
    print(f"{target}: {len(pins)} packages")
    return 0


def _pin(metadata: dict[str, str]) -> str:
    name = re.sub(r"[-_.]+", "-", metadata["name"]).lower()
    return f"{name}=={metadata['version']}"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
