"""Merges requests for a server that knows nothing of Carpool, and divides its responses.

A form is a module with the members of `MergeForm`: it reads the mergeable content of a request,
merges many requests into one, and divides the one response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidecar.runtime.merging import oip, v1
from sidecar.runtime.merging.form import ENTRIES_MAX, Message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.runtime.merging.form import MergeForm

__all__ = ["ENTRIES_MAX", "FORMS", "Message"]

# Merging formats by the value of the setting `wire`.
FORMS: Mapping[str, MergeForm[Any]] = {"v1": v1, "oip": oip}
