"""The folder that stands for an image where functions run as processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BuildContext"]


@dataclass(frozen=True, slots=True)
class BuildContext:
    """The content of an image, as a folder.

    Attributes:
        image: Image name in deployments.
        folder: Folder with the assembled files.
        fprocess: The template's command, which an image would have in its environment.
    """

    image: str
    folder: Path
    fprocess: str
