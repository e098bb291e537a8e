"""Measured profiles, coefficients and traces of others, kept beside the checkout and not in it."""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["measured"]

_FOLDER = Path(__file__).resolve().parents[1] / "../shared/data"


def measured(name: str) -> Path:
    """The file ``name``; the test is skipped where it is missing."""
    path = _FOLDER / name
    if not path.is_file():
        pytest.skip(f"the measured data {path} is not there")
    return path
