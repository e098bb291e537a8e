"""Carpool: the language all parts speak. Imports no other part, and nothing eagerly."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
