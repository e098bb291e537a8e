"""Lets requests that arrive while the function has no instance wait until one has started.

A start takes longer than most objectives: applying the objective would refuse every request that
wakes a function. As at the gateway, such requests are answered once an instance is ready, and count
as late. A caller's own limit, ``X-Timeout``, still holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sidecar.core.batcher import Batcher
    from sidecar.core.request import Request

__all__ = ["ColdStart"]

_WAIT_MAX_S = 60.0  # for an instance to start: as long as the provider waits for a front


class _Reachable(Protocol):
    @property
    def up(self) -> bool: ...


class ColdStart:
    """Extends the deadlines of requests while no instance can be reached.

    Args:
        batcher: Holds the waiting requests.
        instances: Iterated whenever instances have changed.
        timeout_s: Returns how long the caller of a request waits.
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
        self._cold = True

    def instances_changed(self) -> None:
        """Note that instances were added or removed, or came up or went down."""
        cold = not any(instance.up for instance in self._instances)
        if cold and not self._cold:
            self._batcher.extend_deadlines(self._until)
        self._cold = cold

    def arrived(self, request: Request) -> None:
        """Extend the deadline of a request that is about to be admitted, if it has to wait."""
        if self._cold:
            request.extend_deadline(self._until(request))

    def _until(self, request: Request) -> float:
        return request.arrived + min(_WAIT_MAX_S, self._timeout_s(request))
