"""The processor, as Linux describes it, and the runtime that models run on here."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

__all__ = ["processor", "runtime"]

_NUMBERS = ("cpu family", "model", "stepping")


def processor() -> str:
    """Return the processor's name, as precise as the system gives it."""
    fields: dict[str, str] = {}
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    name = fields.get("model name") or platform.processor() or platform.machine()
    numbers = [fields.get(key, "") for key in _NUMBERS]
    return f"{name} ({'-'.join(numbers)})" if any(numbers) else name


def runtime() -> str:
    """Return the installed runtime's name and version, without importing it; empty if none."""
    versions = map(_version, ("onnxruntime", "onnxruntime_gpu"))
    return next((f"onnxruntime {version}" for version in versions if version), "")


def _version(package: str) -> str:
    """Return the version of a package from its folder name, ten times as fast as by metadata."""
    folders = (Path(folder) for folder in sys.path)
    info = next((each for f in folders for each in f.glob(f"{package}-*.dist-info")), None)
    return info.name.removesuffix(".dist-info").partition("-")[2] if info else _asked(package)


def _asked(package: str) -> str:
    from importlib import metadata  # noqa: PLC0415  it takes as long as half of NumPy

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
