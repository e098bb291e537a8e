"""What models run on here: the processor, as Linux tells it, and the runtime."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

__all__ = ["processor", "runtime"]

_NUMBERS = ("cpu family", "model", "stepping")


def processor() -> str:
    """The processor's name, as precise as the system tells it."""
    found: dict[str, str] = {}
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), value.strip())
    name = found.get("model name") or platform.processor() or platform.machine()
    numbers = [found.get(key, "") for key in _NUMBERS]
    return f"{name} ({'-'.join(numbers)})" if any(numbers) else name


def runtime() -> str:
    """The installed runtime's name and version, without importing it; empty where there is none."""
    for package in ("onnxruntime", "onnxruntime-gpu"):
        try:
            return f"onnxruntime {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            continue
    return ""
