"""Installed packages for tests: metadata with entry points, as pip writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["install"]


def install(folder: Path, distribution: str, group: str, entries: str) -> None:
    """Install a package with entry points.

    Args:
        folder: Folder on the module search path, to which the package's modules are written.
        distribution: Its name.
        group: Group of the entry points.
        entries: The entry points, each as ``name = module:Class`` on a line.
    """
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entries}\n")
