"""Rehearse a release: build it, try it where no checkout is in the way, and stop before publishing.

Usage: python scripts/release.py [--python PYTHON] [--no-demo]. Run by ``make release``. Writes to
dist/: the wheel, the source distribution, a bill of materials (CycloneDX) and checksums. It needs a
package index, uploads nothing, and neither tags nor pushes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
EXTRAS = "examples,onnx,scaler,stack"
TRIED = (
    "carpool --version",
    "carpool policies",
    "carpool new classify",
    "carpool doctor",
    "carpool plan osvt --policy infless",
    "carpool simulate osvt --policy infless --policy openfaas --horizon 60s",
)
DEMO = "carpool demo"
_WHOLE_TEXT = 100  # characters from which on a licence is no name but its text


def main(argv: list[str]) -> int:
    """Rehearse; a step that fails ends it with 1."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="the Python to try the wheel with")
    parser.add_argument("--no-demo", action="store_true", help="leave out carpool demo, a minute")
    args = parser.parse_args(argv)
    version = _version()
    changelog = _read("CHANGELOG.md")
    _say(f"Carpool {version}: {changelog_state(changelog, version)}")
    if not says_how_to_upgrade(changelog, version):
        return _fail(
            f'CHANGELOG.md: what is new in {version} has no part "### Upgrading": '
            "write what users of the version before have to do, or that there is nothing"
        )
    if _output("git", "status", "--porcelain"):
        return _fail(
            "the working tree has changes: commit or stash them, as builds take what is there"
        )
    _build()
    with tempfile.TemporaryDirectory(prefix="carpool-release-") as folder:
        tried = (*TRIED, *([] if args.no_demo else [DEMO]))
        inspected = _try(Path(folder), args.python, version, tried)
    _write_contents(version, inspected)
    _write_checksums()
    _say(f"Nothing has been published. dist/ has what would be; next: {_next(version)}")
    return 0


def changelog_state(changelog: str, version: str) -> str:
    """Whether the changelog has a section for ``version``, or one that is to become it."""
    heads = re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)
    if version in heads:
        return "the changelog has its section"
    if _section(changelog, "Unreleased").strip():
        return "its changes are still under Unreleased; rename the section to release them"
    return "the changelog has no section for it"


def says_how_to_upgrade(changelog: str, version: str) -> bool:
    """Whether the section of ``version``, or else Unreleased, has a part on upgrading with text."""
    section = _section(changelog, version) or _section(changelog, "Unreleased")
    return bool(section.partition("\n### Upgrading\n")[2].partition("\n### ")[0].strip())


def _section(changelog: str, name: str) -> str:
    """The text below a version's head; empty if it has none."""
    return changelog.partition(f"## [{name}]")[2].partition("\n")[2].partition("\n## ")[0]


def contents(inspected: dict[str, Any]) -> dict[str, Any]:
    """A bill of materials (CycloneDX 1.5) of what `pip inspect` found installed."""
    packages = [each["metadata"] for each in inspected["installed"]]
    own = [package for package in packages if package["name"] == "carpool"]
    others = [package for package in packages if package["name"] not in ("carpool", "pip")]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**_component(own[0]), "type": "application"}},
        "components": sorted(map(_component, others), key=lambda component: component["purl"]),
    }


def _component(package: dict[str, Any]) -> dict[str, Any]:
    name, version = package["name"].lower().replace("_", "-"), package["version"]
    purl = f"pkg:pypi/{name}@{version}"
    stated = _licence(package)
    known = {"licenses": [{"license": {"name": stated}}]} if stated else {}
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        **known,
    }


def _licence(package: dict[str, Any]) -> str:
    """A package's licence: as it states it by expression, by name or by classifier."""
    named = package.get("license_expression") or package.get("license") or ""
    if 0 < len(named) < _WHOLE_TEXT:
        return str(named)
    known = [line for line in package.get("classifier", ()) if line.startswith("License ::")]
    return known[0].rpartition(" :: ")[2] if known else ""


def _version() -> str:
    (version,) = re.findall(r'^__version__ = "(.+)"$', _read("carpool/__init__.py"), re.MULTILINE)
    return str(version)


def _build() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    _run(sys.executable, "-m", "hatchling", "build", "-d", str(DIST))
    _run(sys.executable, "-m", "pytest", "-q", "-m", "slow", "tests/test_wheel.py")


def _try(folder: Path, python: str, version: str, tried: tuple[str, ...]) -> dict[str, Any]:
    """Use the wheel in an empty folder; what `pip inspect` finds in its environment."""
    _run(python, "-m", "venv", str(folder / "venv"))
    scripts, work = folder / "venv" / "bin", folder / "work"
    work.mkdir()
    wheel = DIST / f"carpool-{version}-py3-none-any.whl"
    pip = (str(scripts / "python"), "-m", "pip", "--disable-pip-version-check")
    _run(*pip, "install", "--quiet", "-c", str(ROOT / "constraints.txt"), f"{wheel}[{EXTRAS}]")
    for command in tried:
        program, *arguments = command.split()
        _run(str(scripts / program), *arguments, cwd=work)
    inspected: dict[str, Any] = json.loads(_output(*pip, "inspect", "--local"))
    return inspected


def _write_contents(version: str, inspected: dict[str, Any]) -> None:
    path = DIST / f"carpool-{version}.cdx.json"
    path.write_text(json.dumps(contents(inspected), indent=2) + "\n", encoding="utf-8")


def _write_checksums() -> None:
    files = sorted(path for path in DIST.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in files]
    (DIST / "SHA256SUMS").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _next(version: str) -> str:
    return f"git tag v{version}, make images, and steps 8 to 10 of RELEASING.md."


def _run(*command: str, cwd: Path = ROOT) -> None:
    _say(f"$ {' '.join(command)}")
    subprocess.run(command, cwd=cwd, check=True)


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _say(text: str) -> None:
    print(text, flush=True)


def _fail(text: str) -> int:
    print(text, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
