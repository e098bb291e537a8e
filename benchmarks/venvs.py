"""Environments for the servers under test, made on first use below ``.venv-bench/``."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.servers.recipe import MODEL_PACKAGES

if TYPE_CHECKING:
    from benchmarks.servers.recipe import Server

__all__ = ["NotInstalled", "prepared", "versions"]

_FOLDER = Path(__file__).parent.parent / ".venv-bench"
_INSTALL_TIMEOUT_S = 900


class NotInstalled(Exception):
    """Raised when a server's packages cannot be installed; the message says why."""


def prepared(server: Server) -> Path:
    """Return a Python that has the server's packages, installing them if necessary.

    Raises:
        NotInstalled: pip failed, or took too long.
    """
    if not server.venv:
        return Path(sys.executable)
    folder = _FOLDER / server.venv
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    wanted = [*server.packages, *_pins()]
    if stamp.exists() and stamp.read_text().split() == wanted:
        return python
    venv.create(folder, clear=True, symlinks=True, with_pip=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *wanted]
    try:
        subprocess.run(pip, check=True, capture_output=True, timeout=_INSTALL_TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode("utf-8", "replace").strip().splitlines() or ["pip failed"]
        raise NotInstalled(lines[-1]) from error
    except subprocess.TimeoutExpired as error:
        msg = f"its installation took more than {_INSTALL_TIMEOUT_S} s"
        raise NotInstalled(msg) from error
    stamp.write_text("\n".join(wanted))
    return python


def versions(server: Server, python: Path) -> dict[str, str]:
    """Return the installed versions of the server's packages."""
    packages = [*server.packages, *MODEL_PACKAGES]
    names = [package.partition("[")[0] for package in packages]  # less its extras
    ask = "import sys, importlib.metadata as m; print(*map(m.version, sys.argv[1:]))"
    done = subprocess.run([python, "-c", ask, *names], check=True, capture_output=True, text=True)
    return dict(zip(names, done.stdout.split(), strict=True))


def _pins() -> list[str]:
    """Return the versions in Carpool's own environment, so that all servers share one runtime."""
    return [f"{name}=={importlib.metadata.version(name)}" for name in MODEL_PACKAGES]
