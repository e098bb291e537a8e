"""Merges requests for a server that knows nothing of Carpool, and divides its responses.

A protocol is a module with the members of `MergeProtocol`: it reads the mergeable content of a
request, merges many requests into one, and divides the one response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidecar.runtime.merging import oip, v1
from sidecar.runtime.merging.protocol import ENTRIES_MAX, Message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.runtime.merging.protocol import MergeProtocol

__all__ = ["ENTRIES_MAX", "PROTOCOLS", "Message"]

# Protocols by the value of the setting `wire`.
PROTOCOLS: Mapping[str, MergeProtocol[Any]] = {"v1": v1, "oip": oip}
