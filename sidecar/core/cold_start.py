"""Requests at a front that has no instance: they wait for one to start, whatever their objective.

A start takes longer than most objectives: to hold it against requests would refuse every one that
wakes a function. As at the gateway, they are answered when an instance is there, and count as late.
A caller's own limit, ``X-Timeout``, still holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sidecar.core.batcher import Batcher
    from sidecar.core.request import Request

__all__ = ["ColdStart"]

_PATIENCE_S = 60.0  # for a start: as long as the provider waits for a front


class _Reachable(Protocol):
    @property
    def up(self) -> bool: ...


class ColdStart:
    """Holds requests while no instance can be reached.

    Args:
        batcher: Has the requests that wait.
        instances: Those there are, whenever it is asked.
        timeout_s: How long the caller of a request waits.
    """

    def __init__(
        self,
        batcher: Batcher,
        instances: Iterable[_Reachable],
        timeout_s: Callable[[Request], float],
    ) -> None:
        self._batcher = batcher
        self._instances = instances
        self._timeout_s = timeout_s
        self._alone = True

    def look(self) -> None:
        """Note that instances have come or gone."""
        alone = not any(instance.up for instance in self._instances)
        if alone and not self._alone:
            self._batcher.hold(self._until)
        self._alone = alone

    def arrived(self, request: Request) -> None:
        """A request is about to be admitted."""
        if self._alone:
            request.hold(self._until(request))

    def _until(self, request: Request) -> float:
        return request.arrived + min(_PATIENCE_S, self._timeout_s(request))
