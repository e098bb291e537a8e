"""A pod as the instance that calls are sent to.

Readiness is the kubelet's, as shown in the pod's object. The provider asks the instance itself only
where that is not enough: on its first call (whether calls may be sent to it twice), when a call
could not reach it, and when it is no longer ready (whether it is silent).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from carpool import wire
from carpool.http.client import ConnectionFailed, Pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from faas_stack.provider.kubernetes.pod_state import PodState

__all__ = ["PodInstance"]

_REPEATABLE = wire.REPEATABLE_HEADER.encode()
_CALLS = wire.CALLS_HEADER.encode()
_ANSWERS_WITHIN_S = 2.0
_ASK_AGAIN_S = 0.5
_SILENT_PROBES = 2


class PodInstance:
    """One pod of a function.

    Args:
        state: Known state of the pod.
        changed: Called when the pod becomes callable or stops being so.
    """

    confined = ""

    def __init__(self, state: PodState, changed: Callable[[], None]) -> None:
        self.state = state
        self.repeatable = self.takes_calls = False
        self._changed = changed
        self._suspected = False
        self._was_ready = state.ready
        self._unanswered = 0
        self._known = self._gone = False
        self._asking: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """Name of the pod."""
        return self.state.name

    @property
    def address(self) -> str:
        """Address at which the pod accepts requests."""
        return self.state.address

    @property
    def ready(self) -> bool:
        """Whether requests can be sent to the pod now."""
        return self.state.ready and not self._suspected

    @property
    def failing(self) -> bool:
        """Whether the pod cannot start in its present form."""
        return self.state.failing

    @property
    def reason(self) -> str:
        """Why the pod is not ready, according to Kubernetes; empty if unknown."""
        return self.state.reason

    @property
    def silent(self) -> bool:
        """Whether the pod has been ready and no longer responds at all."""
        return self._was_ready and self._unanswered >= _SILENT_PROBES

    def update(self, state: PodState) -> None:
        """Take over a new state of the pod."""
        before, self.state = self.state, state
        self._was_ready = self._was_ready or state.ready
        if state.ready:
            self._unanswered = 0
        if before.restarts != state.restarts:
            self._was_ready = state.ready
        if before.ready and not state.ready and not state.leaving:
            self._ask()

    def meet(self) -> None:
        """Ask the pod before its first call whether calls may be repeated."""
        if not self._known:
            self._ask()

    def suspect(self) -> None:
        """Mark the pod as not ready, after a failed connection, until it responds again."""
        self._suspected = True
        self._changed()
        self._ask()

    def close(self) -> None:
        """Stop asking the pod, which no longer exists."""
        self._gone = True  # one of its calls may notice this later and suspect it
        if self._asking:
            self._asking.cancel()

    def _ask(self) -> None:
        if not self._gone and (self._asking is None or self._asking.done()):
            self._asking = asyncio.get_running_loop().create_task(self._until_it_answers())

    async def _until_it_answers(self) -> None:
        while True:
            if self.address and await self._answers():
                self._known = True
                if self._suspected:
                    self._suspected = False
                    self._changed()
                return
            await asyncio.sleep(_ASK_AGAIN_S)

    async def _answers(self) -> bool:
        pool = Pool(self.address, max_connections=1)
        try:
            answer = await pool.request("GET", "/_/ready", timeout_s=_ANSWERS_WITHIN_S)
        except (ConnectionFailed, TimeoutError):
            self._unanswered += 1
            return False
        finally:
            pool.close()
        self._unanswered = 0
        self.repeatable = answer.header(_REPEATABLE) is not None
        self.takes_calls = answer.header(_CALLS) is not None
        return True
