"""User and password as OpenFaaS keeps them: two files in a folder of secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.files import read_text
from carpool.strict import Problems

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["credentials"]


def credentials(folder: Path) -> tuple[str, str]:
    """User and password from ``basic-auth-user`` and ``basic-auth-password``.

    Raises:
        ConfigError: a file is missing or empty.
    """
    problems = Problems()
    texts = []
    for name in ("basic-auth-user", "basic-auth-password"):
        text = (read_text(folder / name, problems) or "").strip()
        if not text and not problems:
            problems.add(str(folder / name), "", "a text that is not empty")
        texts.append(text)
    problems.raise_if_any()
    return texts[0], texts[1]
