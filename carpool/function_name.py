"""The names that OpenFaaS allows for functions: DNS labels."""

from __future__ import annotations

__all__ = ["PATTERN"]

PATTERN = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
