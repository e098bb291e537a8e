"""Builds the Kubernetes that tests start: ``python3 tests/cluster/programs/build.py``.

Each folder beside this file is a Go module: ``kube`` is a control plane and a node in one binary,
``kwok`` plays nodes, ``pause`` holds the namespaces of a pod. Modules come from Go's proxy in the
versions of ``go.sum``; from nothing that takes ten minutes of a core, and 4 GB of Go's own cache. A
program stays in the user's cache under the digest of its sources, so a second run builds nothing.
Standard library only: CI runs this before there is an environment.

It ends with 0 if all is there, with 1 if a build fails, and with 2 where nothing can be built: Go
is missing or too old, or a module cannot be had.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["FAILED", "NAMES", "NOT_HERE", "build", "cache", "find_go", "main", "program", "version"]

NAMES = ("pause", "kube", "kwok")
FAILED, NOT_HERE = 1, 2  # exit statuses
_HERE = Path(__file__).resolve().parent
_GO = Path("/usr/local/go/bin/go")  # where its own archive puts it
_VERSION_OF = "k8s.io/component-base/version"


def cache() -> Path:
    """Return the folder of files that the tests keep between runs."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "carpool-tests" / "cluster"


def program(name: str) -> Path:
    """Return the path of the program ``name`` built from the current sources."""
    digest = hashlib.sha256()
    for path in sorted((_HERE / name).glob("go.*")) + sorted((_HERE / name).glob("*.go")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return cache() / f"{name}-{digest.hexdigest()[:16]}" / name


def version(module: str = "k8s.io/kubernetes") -> str:
    """Return the version of Kubernetes, such as ``v1.34.4``."""
    found = re.search(
        rf"^\s*{module} (v\S+)$", (_HERE / "kube" / "go.mod").read_text(), re.MULTILINE
    )
    if found is None:
        message = f"{_HERE}/kube/go.mod: expected a line with {module} and its version"
        raise ValueError(message)
    return found[1]


def find_go() -> str | None:
    """Return the path of the Go command; None if it is not installed."""
    return shutil.which("go") or (str(_GO) if _GO.exists() else None)


def build(name: str, go: str) -> Path:
    """Build the program ``name`` unless it exists, and return its path."""
    target = program(name)
    if target.exists():
        print(f"{name}: is there")
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{name}.{os.getpid()}")
    print(f"{name}: being built; from nothing that takes minutes", flush=True)
    command = (go, "build", "-trimpath", "-buildvcs=false", "-tags=grpcnotrace", "-o", str(part))
    flags = ("-ldflags", f"-s -w {_stamp()}" if name == "kube" else "-s -w")
    env = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": ""}
    subprocess.run((*command, *flags, "."), cwd=_HERE / name, env=env, check=True)
    part.rename(target)
    return target


def _stamp() -> str:
    """Return linker flags for the program's version, which clients and nodes compare."""
    major, minor, _ = version().removeprefix("v").split(".")
    settings = {
        f"{_VERSION_OF}.gitVersion": version(),
        f"{_VERSION_OF}.gitMajor": major,
        f"{_VERSION_OF}.gitMinor": minor,
        f"{_VERSION_OF}.gitTreeState": "clean",
        "k8s.io/client-go/pkg/version.gitVersion": version(),
    }
    return " ".join(f"-X {name}={value}" for name, value in settings.items())


def _has_modules(name: str, go: str) -> bool:
    """Return whether the modules of ``name`` can be downloaded, even if ``go.sum`` refuses them."""
    command = (go, "mod", "download")
    env = {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": ""}
    ran = subprocess.run(
        command, cwd=_HERE / name, env=env, check=False, capture_output=True, text=True
    )
    return ran.returncode == 0 or "SECURITY ERROR" in ran.stderr


def main() -> int:
    """Build the missing programs, and return the exit status."""
    wanted = [name for name in NAMES if not program(name).exists()]
    go = find_go()
    if wanted and go is None:
        print("go: neither on the PATH nor in /usr/local/go/bin; see https://go.dev/dl/")
        return NOT_HERE
    for name in wanted:
        assert go is not None
        try:
            build(name, go)
        except subprocess.CalledProcessError as error:
            print(f"go: ended with {error.returncode}")
            return FAILED if _has_modules(name, go) else NOT_HERE
    return 0


if __name__ == "__main__":
    sys.exit(main())
