"""Requests at a front that has no instance: they wait for one to start, whatever their objective.

A start takes longer than most objectives: to hold it against requests would refuse every one that
wakes a function. As at the gateway, they are answered when an instance is there, and count as late.
A caller's own limit, ``X-Timeout``, still holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sidecar.core.batcher import Batcher
    from sidecar.core.request import Request
    from sidecar.runtime.upstreams import FunctionUpstreams

__all__ = ["ColdStart"]

_PATIENCE_S = 60.0  # for a start: as long as the provider waits for a front


class ColdStart:
    """Holds requests while no instance can be reached."""

    def __init__(self, batcher: Batcher, upstreams: FunctionUpstreams) -> None:
        self._batcher = batcher
        self._upstreams = upstreams
        self._alone = True

    def look(self) -> None:
        """Note that instances have come or gone."""
        alone = not any(instance.up for instance in self._upstreams)
        if alone and not self._alone:
            self._batcher.hold(_until)
        self._alone = alone

    def arrived(self, request: Request) -> None:
        """A request is about to be admitted."""
        if self._alone:
            request.hold(_until(request))


def _until(request: Request) -> float:
    return request.arrived + min(_PATIENCE_S, float(request.payload.template.timeout_s))
