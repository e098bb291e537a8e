"""Requests at a front that has no instance: they wait for one to start, whatever their objective.

A start takes longer than most objectives, so that to hold it against them would refuse everybody
who wakes a function. As at the gateway, they are answered when there is somebody to do it, and
count as late. What a caller himself will not wait for, his ``X-Timeout``, still ends it.
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

    def __init__(self, batcher: Batcher, fleet: FunctionUpstreams) -> None:
        self._batcher = batcher
        self._fleet = fleet
        self._alone = True

    def look(self) -> None:
        """Instances have come or gone."""
        alone = not any(instance.up for instance in self._fleet)
        if alone and not self._alone:
            self._batcher.hold(_until)
        self._alone = alone

    def arrived(self, request: Request) -> None:
        """A request is about to be admitted."""
        if self._alone:
            request.hold(_until(request))


def _until(request: Request) -> float:
    return request.arrived + min(_PATIENCE_S, float(request.payload.template.timeout_s))
