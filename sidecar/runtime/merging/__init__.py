"""Merges requests for a server that knows nothing of Carpool, and divides its answers.

A form is a module with what `MergeForm` says: what can be merged of a request, many as one, and the
one answer as many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidecar.runtime.merging import oip, v1
from sidecar.runtime.merging.form import ENTRIES_MAX, Message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.runtime.merging.form import MergeForm

__all__ = ["ENTRIES_MAX", "FORMS", "Message"]

# By the setting `wire`.
FORMS: Mapping[str, MergeForm[Any]] = {"v1": v1, "oip": oip}
