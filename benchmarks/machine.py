"""Describe where the numbers were measured: processor, system, Python, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["commit", "machine"]

_ROOT = Path(__file__).parent.parent


def machine() -> dict[str, Any]:
    """Return a description of the machine on which the numbers are measured."""
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        cpu = next((x.partition(":")[2].strip() for x in lines if "model name" in x), cpu)
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def commit() -> str:
    """Return the measured commit, with a plus if files differ from it; empty if unknown."""
    revision = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--", ".", ":(exclude)benchmarks/results")
    return revision + "+" * bool(revision and changed)


def _git(*words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], cwd=_ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
