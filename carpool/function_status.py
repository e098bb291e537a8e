"""The fields that providers add to a function's status beyond those of OpenFaaS."""

from __future__ import annotations

__all__ = ["REASON"]

REASON = "kubernetes.reason"  # an annotation, as `faas-cli describe` shows those; never deployed
