"""Merges requests for a server that knows nothing of Carpool, and divides its responses.

A protocol is a module with the members of `MergeProtocol`: it reads the mergeable content of a
request, merges many requests into one, and divides the one response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidecar.runtime.merging.protocol import ENTRIES_MAX, Message

if TYPE_CHECKING:
    from sidecar.runtime.merging.protocol import MergeProtocol

__all__ = ["ENTRIES_MAX", "Message", "protocol_of"]


def protocol_of(wire: str) -> MergeProtocol[Any] | None:
    """Return the protocol for a value of the setting ``wire``; None if requests are not merged."""
    if wire == "v1":
        from sidecar.runtime.merging import v1  # noqa: PLC0415 - most sidecars need neither

        return v1
    if wire == "oip":
        from sidecar.runtime.merging import oip  # noqa: PLC0415

        return oip
    return None
