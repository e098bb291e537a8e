"""Finds the scenarios that come with Carpool by their names.

A wheel contains them as package data (``scaler/_scenarios``); a source tree has them in
``examples/scenarios``.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["find", "find_file", "names"]

_PACKAGE = Path(__file__).resolve().parents[1]
_FOLDERS = (_PACKAGE / "_scenarios", _PACKAGE.parent / "examples" / "scenarios")


def find(path: Path) -> Path:
    """Return ``path`` itself, or the shipped scenario of that name if there is no such file."""
    return _found(path, f"{path.stem}.yaml")


def find_file(path: Path) -> Path:
    """Return ``path`` itself, or the file of that name beside the shipped scenarios."""
    return _found(path, path.name)


def names() -> list[str]:
    """Return the names that `find` knows."""
    return sorted({file.stem for folder in _FOLDERS for file in folder.glob("*.yaml")})


def _found(path: Path, name: str) -> Path:
    if path.exists() or path.name != str(path):
        return path
    files = (folder / name for folder in _FOLDERS)
    return next((file for file in files if file.is_file()), path)
