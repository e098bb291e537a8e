"""What providers add to a function's status beyond OpenFaaS's fields, for those who read it."""

from __future__ import annotations

__all__ = ["REASON"]

REASON = "kubernetes.reason"  # an annotation, as `faas-cli describe` shows those; never deployed
